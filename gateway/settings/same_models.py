"""Finds the same model in several providers' lists, by names and listed facts."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.settings.model_names import ModelKind, ModelName, parsed_name
from providers.listed import Listed

# Vendors without base models: their plain "llama3.1-8b" is the trained one.
TRAINED_ONLY = frozenset({"cerebras", "groq", "ollama"})


class Offer(msgspec.Struct, frozen=True):
    """One model at one provider."""

    provider: str
    listed: Listed
    name: ModelName

    @property
    def deployment(self) -> str:
        """Its name as a deployment."""
        return f"{self.provider}/{self.listed.id}"

    @property
    def quantization(self) -> str | None:
        """How its weights are stored, by the list, else by the name."""
        return self.listed.quantization or self.name.quantization


class SameModel(msgspec.Struct, frozen=True):
    """One model and its offers. ``offers``: a provider's plain offer comes before its other variants."""

    model: str
    kind: ModelKind
    offers: tuple[Offer, ...]

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that offer it, without duplicates."""
        return tuple(dict.fromkeys(offer.provider for offer in self.offers))

    @property
    def quantizations(self) -> tuple[str, ...]:
        """The different known quantizations."""
        return tuple(dict.fromkeys(offer.quantization for offer in self.offers if offer.quantization))

    @property
    def is_shared(self) -> bool:
        """Whether two or more providers offer it."""
        return len(self.providers) > 1

    @property
    def is_certain(self) -> bool:
        """Whether its names identify the model."""
        return all(offer.name.certain for offer in self.offers)

    @property
    def note(self) -> str | None:
        """What to check before its offers are raced as one; None if nothing."""
        known = self.quantizations
        unknown = [offer.provider for offer in self.offers if offer.quantization is None]
        notes = []
        if self.is_shared and not self.is_certain:
            notes.append("the names are similar but not exact: make sure that it is the same model")
        if len(known) > 1:
            notes.append(f"different quantization: {', '.join(known)}")
        elif known and unknown:
            notes.append(f"quantization is {known[0]} where known; unknown for {', '.join(dict.fromkeys(unknown))}")
        return "; ".join(notes) or None


def same_models(lists: Mapping[str, Sequence[Listed]], trained_only: frozenset[str] = frozenset()) -> list[SameModel]:
    """Return all models in ``lists``, by provider: those of the most providers first, then the newest.

    ``trained_only``: the providers without base models. Names too short to identify a model are merged only if
    identical, with a note. A name whose meaning changes is never merged, nor is an adapter.
    """
    found: dict[tuple[str, ModelKind], list[Offer]] = {}
    for provider, models in lists.items():
        for listed in models:
            name = parsed_name(listed.id, trained=provider in trained_only, listed_kind=_listed_kind(listed))
            if name.moving or _is_adapter(listed):
                key = f"{provider}/{listed.id}"
            else:
                key = name.model if name.certain else f"={listed.id.lower()}"
            found.setdefault((key, name.kind), []).append(Offer(provider, listed, name))
    order = {provider: number for number, provider in enumerate(lists)}

    def plainest(offer: Offer) -> tuple[int, bool]:
        return order[offer.provider], offer.name.serving is not None

    merged = [
        SameModel(offers[0].name.model, kind, tuple(sorted(offers, key=plainest)))
        for (_, kind), offers in found.items()
    ]
    return sorted(merged, key=lambda same: (-len(same.providers), -_newest_s(same), same.model))


def _listed_kind(listed: Listed) -> ModelKind | None:
    """Return the kind in a list. "Chat" is ignored: OCR models and guards are listed as that too."""
    return None if listed.kind == "chat" else listed.kind


def _newest_s(same: SameModel) -> int:
    """Return when the last of its providers began to list it, Unix time; 0 if unknown."""
    return max((offer.listed.created_s or 0 for offer in same.offers), default=0)


def _is_adapter(listed: Listed) -> bool:
    return listed.parent is not None and listed.parent != listed.id
