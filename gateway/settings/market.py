"""The models of the found vendors, as lines of the configuration that ``holeshot init --live`` writes.

Names come from the providers' lists, so characters that could end a comment or start something else are removed.
"""

import json
import re
from collections.abc import Mapping, Sequence

import msgspec

from gateway.settings.model_names import ModelKind, ModelName, parsed_name
from providers import ListedModel

# Finds the same model in several providers' lists, by names and listed facts.

# Vendors without base models: their plain "llama3.1-8b" is the trained one.
TRAINED_ONLY = frozenset({"cerebras", "groq", "ollama"})


class MarketOffer(msgspec.Struct, frozen=True):
    """One model at one provider."""

    provider: str
    listed: ListedModel
    name: ModelName

    @property
    def deployment(self) -> str:
        """The offer's name as a deployment."""
        return f"{self.provider}/{self.listed.id}"

    @property
    def quantization(self) -> str | None:
        """How the model's weights are stored, from the list, else from the name."""
        return self.listed.quantization or self.name.quantization


class SameModel(msgspec.Struct, frozen=True):
    """One model and its offers. ``offers``: a provider's plain offer comes before its other variants."""

    model: str
    kind: ModelKind
    offers: tuple[MarketOffer, ...]

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that offer the model, without duplicates."""
        return tuple(dict.fromkeys(offer.provider for offer in self.offers))

    @property
    def quantizations(self) -> tuple[str, ...]:
        """The different known quantizations."""
        return tuple(dict.fromkeys(offer.quantization for offer in self.offers if offer.quantization))

    @property
    def is_shared(self) -> bool:
        """Whether two or more providers offer the model."""
        return len(self.providers) > 1

    @property
    def is_certain(self) -> bool:
        """Whether the offers' names identify the model."""
        return all(offer.name.certain for offer in self.offers)

    @property
    def note(self) -> str | None:
        """What to check before the offers are raced as one model; None: nothing."""
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


def same_models(
    lists: Mapping[str, Sequence[ListedModel]], trained_only: frozenset[str] = frozenset()
) -> list[SameModel]:
    """Return all models in ``lists``, by provider: models of the most providers first, then the newest.

    ``trained_only``: the providers without base models. Names too short to identify a model are merged only if
    identical, with a note. A name whose meaning changes is never merged, nor is an adapter.
    """
    found: dict[tuple[str, ModelKind], list[MarketOffer]] = {}
    for provider, models in lists.items():
        for listed in models:
            name = parsed_name(listed.id, trained=provider in trained_only, listed_kind=_listed_kind(listed))
            if name.moving or _is_adapter(listed):
                key = f"{provider}/{listed.id}"
            else:
                key = name.model if name.certain else f"={listed.id.lower()}"
            found.setdefault((key, name.kind), []).append(MarketOffer(provider, listed, name))
    order = {provider: number for number, provider in enumerate(lists)}

    def plainest(offer: MarketOffer) -> tuple[int, bool]:
        return order[offer.provider], offer.name.serving is not None

    merged = [
        SameModel(offers[0].name.model, kind, tuple(sorted(offers, key=plainest)))
        for (_, kind), offers in found.items()
    ]
    return sorted(merged, key=lambda same: (-len(same.providers), -_newest_s(same), same.model))


def _listed_kind(listed: ListedModel) -> ModelKind | None:
    """Return the kind in a list. "Chat" is ignored: lists have OCR models and guards under "chat" too."""
    return None if listed.kind == "chat" else listed.kind


def _newest_s(same: SameModel) -> int:
    """Return the Unix time at which the last of the model's providers began to list it; 0 if unknown."""
    return max((offer.listed.created_s or 0 for offer in same.offers), default=0)


def _is_adapter(listed: ListedModel) -> bool:
    return listed.parent is not None and listed.parent != listed.id


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")  # needs no quotes in YAML
_WRITABLE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9_./:@+-]*")
_COLUMN = 62  # where comments begin, if there is room
_PER_MTOK = 1e6


class SoldModel(msgspec.Struct, frozen=True):
    """A model that several vendors sell, with the proposed public name."""

    name: str
    same: SameModel

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that sell the model."""
        return self.same.providers

    def block(self, race: str) -> str:
        """Return the model as an entry of ``models:``, with a line for each provider; other variants are comments."""
        head = [f"  {_quoted(self.name)}:\n"]
        if self.same.note:
            head.append(f"    # {self.same.note}; remove deployments that are not the same model\n")
        lines = []
        served: set[str] = set()
        for offer in self.same.offers:
            mark = "# - " if offer.provider in served else "- "
            served.add(offer.provider)
            lines.append(f"{f'      {mark}{_entry(offer)}':{_COLUMN}}  # {_facts(offer)}".removesuffix("  # ").rstrip())
        return "".join([*head, "    deployments:\n", *(f"{line}\n" for line in lines), race])

    def comment(self) -> str:
        """Return the model in one line that takes effect when the # is removed."""
        first = {offer.provider: offer for offer in reversed(self.same.offers)}
        entries = ", ".join(_entry(first[provider]) for provider in self.providers)
        note = f"  # {self.same.note}" if self.same.note else ""
        return f"  # {_quoted(self.name)}: {{ deployments: [{entries}] }}{note}\n"


class Market(msgspec.Struct, frozen=True):
    """The vendors' lists: models proposed for racing, others that several sell, and vendors without an answer."""

    raced: tuple[SoldModel, ...]
    others: tuple[SoldModel, ...] = ()
    silent: Mapping[str, str] = {}  # by vendor, the reason why its models are unknown
    listed: Mapping[str, frozenset[str]] = {}  # by vendor, the names of its models

    def may_sell(self, vendor: str, model: str) -> bool:
        """Whether ``vendor`` lists ``model``, or the vendor's list is unknown."""
        return vendor not in self.listed or model in self.listed[vendor]


def proposed_market(
    models: Sequence[SameModel], top: int, silent: Mapping[str, str], listed: Mapping[str, frozenset[str]]
) -> Market:
    """Return the proposal for ``models``, which are ordered by number of vendors: the first ``top`` are raced."""
    sold: list[SoldModel] = []
    names: set[str] = set()
    for same in models:
        short = same.model.rpartition("/")[2]
        name = same.model if short in names else short
        offers = tuple(offer for offer in same.offers if _WRITABLE.fullmatch(offer.listed.id))
        kept = msgspec.structs.replace(same, offers=offers)
        if same.kind == "chat" and kept.is_shared and _WRITABLE.fullmatch(name) and name not in names:
            names.add(name)
            sold.append(SoldModel(name, kept))
    raced = [each for each in sold if each.same.is_certain][:top]  # the others need a check by the user
    others = [each for each in sold if each not in raced]
    return Market(tuple(raced), tuple(others), {key: _in_one_line(why) for key, why in silent.items()}, listed)


def _entry(offer: MarketOffer) -> str:
    """Return a deployment as written in the file."""
    deployment = _quoted(offer.deployment)
    if offer.quantization is None:
        return deployment
    return f"{{ deployment: {deployment}, quantization: {_quoted(_word(offer.quantization))} }}"


def _facts(offer: MarketOffer) -> str:
    """Return the facts in the offer's list, for a comment."""
    listed = offer.listed
    facts = []
    if offer.name.serving is not None:
        facts.append(f"served as {_word(offer.name.serving)}")
    if listed.context_tokens is not None:
        facts.append(f"context {listed.context_tokens:,}")
    if listed.input_usd is not None and listed.output_usd is not None:
        facts.append(f"${listed.input_usd * _PER_MTOK:g} in, ${listed.output_usd * _PER_MTOK:g} out per million")
    return "; ".join(facts)


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _word(text: str) -> str:
    """Return a word of a list without unsuitable characters."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:40]


def _in_one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:160]
