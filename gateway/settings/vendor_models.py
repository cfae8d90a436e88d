"""The models that ``holeshot init`` proposes, with each vendor's names for them, and where and when these were read.

Names change: read the pages again, and put the new names and the day here. A test demands a price of each model, and
that no vendor has retired it; ``holeshot check --live`` asks the vendors.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from gateway.settings.patterns import covers, is_pattern

Size = Literal["small", "large"]


class Equivalent(msgspec.Struct, frozen=True):
    """One open-weight model and its names. ``names``: the vendor's name in the catalog → the model's name there."""

    model: str  # the proposed public name
    size: Size
    names: Mapping[str, str]


# Open-weight models that several vendors sell. The names are those of litellm's price table 1.110.2 and the vendors'
# own lists. Cerebras has no Llama 3.3 since February (inference-docs.cerebras.ai/support/deprecation, 2026-11-29).
EQUIVALENTS = (
    Equivalent(
        "gpt-oss-120b",
        "small",
        {
            "groq": "openai/gpt-oss-120b",
            "cerebras": "gpt-oss-120b",
            "sambanova": "gpt-oss-120b",
            "together": "openai/gpt-oss-120b",
            "fireworks": "accounts/fireworks/models/gpt-oss-120b",
            "deepinfra": "openai/gpt-oss-120b",
            "baseten": "openai/gpt-oss-120b",
            "nebius": "openai/gpt-oss-120b",
            "novita": "openai/gpt-oss-120b",
            "nvidia_nim": "openai/gpt-oss-120b",
            "openrouter": "openai/gpt-oss-120b",
        },
    ),
    Equivalent(
        "llama-3.3-70b",
        "small",
        {
            "sambanova": "Meta-Llama-3.3-70B-Instruct",
            "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
            "fireworks": "accounts/fireworks/models/llama-v3p3-70b-instruct",
            "deepinfra": "meta-llama/Llama-3.3-70B-Instruct",
            "hyperbolic": "meta-llama/Llama-3.3-70B-Instruct",
            "nebius": "meta-llama/Llama-3.3-70B-Instruct",
            "novita": "meta-llama/llama-3.3-70b-instruct",
            "nscale": "meta-llama/Llama-3.3-70B-Instruct",
            "nvidia_nim": "meta/llama-3.3-70b-instruct",
            "openrouter": "meta-llama/llama-3.3-70b-instruct",
        },
    ),
    Equivalent(
        "kimi-k2.6",
        "large",
        {
            "moonshot": "kimi-k2.6",
            "together": "moonshotai/Kimi-K2.6",
            "fireworks": "accounts/fireworks/models/kimi-k2p6",
            "deepinfra": "moonshotai/Kimi-K2.6",
            "baseten": "moonshotai/Kimi-K2.6",
            "nebius": "moonshotai/Kimi-K2.6",
            "novita": "moonshotai/kimi-k2.6",
            "openrouter": "moonshotai/kimi-k2.6",
        },
    ),
)


class VendorModels(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's own models of today: a small and a large model, and others that programs ask for by name."""

    small: str | None = None
    large: str | None = None
    asked: Mapping[str, Size] = {}  # with the size that answers in place of the model; also names that end in a star
    example: str | None = None  # proposed alone; None: the small model, else the large one
    page: str
    read: str

    def of(self, size: Size) -> str | None:
        """Return the model of a size."""
        return self.small if size == "small" else self.large

    def named(self) -> Iterator[tuple[str, Size]]:
        """Yield the names that clients may ask for, each with its size."""
        known: dict[str, Size] = {}
        if self.small is not None:
            known[self.small] = "small"
        if self.large is not None:
            known[self.large] = "large"
        yield from {**known, **self.asked}.items()


# GPT-6.2 Sol follows 6.1 once the price table has it. Claude Code asks for Opus and Haiku, through another address than
# Anthropic's also for older versions (docs.rs/claude-codes/2.1.311, 2026-11-29). Gemini CLI asks for gemini-3.8-flash,
# and for older models to sum up and for small tasks. While such a name is unknown (404), Gemini CLI asks again without
# end (0.61.0: handleFallback of packages/core/src/fallback/handler.ts). Codex and Cursor ask for the model that a
# person sets there.
_CLAUDE = VendorModels(
    small="claude-haiku-5-5",
    large="claude-sonnet-5-5",
    asked={"claude-opus-5-5": "large", "claude-haiku-*": "small", "claude-*": "large"},
    page="platform.claude.com/docs/resources/overview",
    read="2026-11-29",
)
# Other sellers of the same models: with keys or credentials of several sellers, the next is asked if one is late.
NAMED_BY_REGION = frozenset({"bedrock_invoke"})  # the names of these sellers' models have the region in them
SELLERS = ("anthropic", "foundry", "claude_aws", "claude_google", "vertex", "bedrock_invoke")
_SELLERS_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(SELLERS, SELLERS),
    "gemini": ("gemini", "vertex"),
    "google": ("google", "vertex"),
}
_GOOGLE = VendorModels(
    small="gemini-3.5-flash-lite",
    large="gemini-4-argon",
    asked={"gemini-3.8-flash": "large", "gemini-*": "large"},
    example="gemini-3.8-flash",
    page="ai.google.dev/gemini-api/docs/models",
    read="2026-11-29",
)
OWN: Mapping[str, VendorModels] = {
    "openai": VendorModels(
        small="gpt-6-luna", large="gpt-6.1-sol", page="developers.openai.com/api/docs/models", read="2026-11-29"
    ),
    **dict.fromkeys(SELLERS, _CLAUDE),
    "gemini": _GOOGLE,
    "google": _GOOGLE,
    "mistral": VendorModels(
        small="mistral-small-latest",
        large="mistral-medium-latest",
        page="docs.mistral.ai/models",
        read="2026-11-29",
    ),
    "deepseek": VendorModels(
        small="deepseek-flash",
        large="deepseek-v4-pro",
        page="api-docs.deepseek.com/quick_start/pricing",
        read="2026-11-29",
    ),
    "xai": VendorModels(
        small="grok-4.3",
        large="grok-4.7",
        example="grok-4.7",
        page="docs.cloud.google.com/gemini-enterprise-agent-platform/models/partner-models/grok",
        read="2026-11-29",
    ),
    "dashscope": VendorModels(
        small="qwen3.8-flash",
        large="qwen3.8-max",
        page="github.com/VladoIvankovic/Codeep/releases/tag/v3.3.0",
        read="2026-11-29",
    ),
    "minimax": VendorModels(small="MiniMax-M3", page="github.com/BerriAI/litellm", read="2026-11-29"),
    "zai": VendorModels(
        small="glm-5.3-flash", large="glm-5.3", page="docs.z.ai/guides/vlm/glm-5.3-flash", read="2026-11-29"
    ),
    # These two vendors do not race by size: one searches the web in each call, the other's newest model has no known
    # price.
    "perplexity": VendorModels(example="sonar", page="github.com/BerriAI/litellm", read="2026-11-29"),
    "cohere": VendorModels(example="command-a-03-2025", page="docs.cohere.com/docs/deprecations", read="2026-11-29"),
}


class ProposedModel(msgspec.Struct, frozen=True):
    """A proposed model: its name, its deployments, the budget of their race, and other names that it answers."""

    name: str
    deployments: tuple[str, ...]
    fallback: str | None = None

    @property
    def is_by_size(self) -> bool:
        """Whether its deployments are different models of one size."""
        return self.name in _SIZES

    @property
    def is_hedged(self) -> bool:
        """Whether the sellers are asked one after the other, as calls are expensive, and only one's cache is warm."""
        vendors = [_vendor(each) for each in self.deployments]
        sellers = _SELLERS_OF.get(vendors[0], ())
        return len(vendors) > 1 and not self.is_by_size and all(each in sellers for each in vendors)

    @property
    def budget(self) -> float | None:
        """Extra attempts per call; None: the model has one deployment."""
        if len(self.deployments) < 2:  # noqa: PLR2004 - a race needs two
            return None
        if self.is_hedged:
            return HEDGE_BUDGET
        return BY_SIZE_BUDGET if self.is_by_size else SAME_MODEL_BUDGET

    @property
    def settings(self) -> dict[str, object]:
        """The proposed model's entry in ``models:``."""
        settings: dict[str, object] = {"deployments": list(self.deployments)}
        if self.budget is not None:
            settings["race"] = {"mode": "hedge" if self.is_hedged else "auto", "budget": self.budget}
        if self.fallback is not None:
            settings["fallbacks"] = [self.fallback]
        return settings


BY_SIZE_BUDGET, SAME_MODEL_BUDGET, HEDGE_BUDGET = 0.1, 1.0, 0.1
_SIZES: tuple[Size, ...] = ("small", "large")


def example_of(vendor: str) -> str | None:
    """Return the model that is proposed of ``vendor`` if none of its sizes races; None: no model is known."""
    own = OWN.get(vendor)
    if own is not None:
        return own.example or own.small or own.large
    return next((equivalent.names[vendor] for equivalent in EQUIVALENTS if vendor in equivalent.names), None)


def _sells_all(_vendor: str, _model: str) -> bool:
    return True


Called = Callable[[str, str], str | None]  # from a vendor and a model to the vendor's name; None: it has none


def _as_it_is(_vendor: str, model: str) -> str:
    return model


def proposed_models(
    vendors: Sequence[str],
    sells: Callable[[str, str], bool] = _sells_all,
    raced: Mapping[str, Collection[str]] = {},
    called: Called = _as_it_is,
) -> list[ProposedModel]:
    """Return the models for the keys of ``vendors``: races by size, of the same model, then the vendors' own names.

    ``sells`` returns whether a vendor may have a model. ``raced``: further models to propose, by their public names,
    with the vendors of each; the known equivalents are not proposed then. ``called`` returns a vendor's name for a
    model.
    """
    alone = [vendor for number, vendor in enumerate(vendors) if not _is_twin(vendor, vendors[:number])]
    by_size = list(_by_size(alone, sells, called))
    sized = {each.name: each for each in by_size}
    names: dict[str, ProposedModel] = {}
    if not raced:
        for each in EQUIVALENTS:
            found = tuple(f"{vendor}/{each.names[vendor]}" for vendor in alone if vendor in each.names)
            if len(found) > 1:
                names[each.model] = ProposedModel(each.model, found, _in_place(found, each.size, sized))
    served = {_vendor(name) for each in names.values() for name in each.deployments}
    served.update(vendor for sellers in raced.values() for vendor in sellers)
    in_sizes = {_vendor(name) for each in by_size for name in each.deployments}
    for vendor in alone:
        own: Iterable[tuple[str, Size | None]] = ()
        others = [each for each in vendors if each in _SELLERS_OF.get(vendor, ()) and each != vendor]
        if vendor in in_sizes or others:
            own = _named(vendor)
        elif vendor not in served and (example := example_of(vendor)) is not None:
            own = [(each, None) for each in (example, *_widest(OWN[vendor].asked if vendor in OWN else ()))]
        for model, size in own:
            name = model.rpartition("/")[2]
            there = ((each, called(each, model)) for each in (vendor, *others))
            found = tuple(f"{each}/{own_name}" for each, own_name in there if own_name is not None)
            is_sold = is_pattern(model) or sells(vendor, model)
            if found and is_sold and name not in names and name not in raced:
                names[name] = ProposedModel(name, found, size and _in_place(found, size, sized))
    return [*by_size, *names.values()]


def _widest(names: Iterable[str]) -> Iterator[str]:
    """Yield the ``names`` that end in a star and are not covered by another pattern."""
    patterns = [name for name in names if is_pattern(name)]
    for name in patterns:
        if not any(other != name and covers(other, name) for other in patterns):
            yield name


def _is_twin(vendor: str, others: Collection[str]) -> bool:
    """Whether one of ``others`` is the same vendor, by another of its APIs."""
    return any(OWN[other] is OWN.get(vendor) for other in others if other in OWN)


def _by_size(vendors: Sequence[str], sells: Callable[[str, str], bool], called: Called) -> Iterator[ProposedModel]:
    """Yield the model of each size that at least two of ``vendors`` have one for."""
    for size in _SIZES:
        each = ((vendor, _of_size(vendor, size)) for vendor in vendors)
        named = ((vendor, called(vendor, model)) for vendor, model in each if model is not None)
        found = tuple(f"{vendor}/{name}" for vendor, name in named if name is not None and sells(vendor, name))
        if len(found) > 1:
            yield ProposedModel(size, found)


def _of_size(vendor: str, size: Size) -> str | None:
    if vendor in OWN:
        return OWN[vendor].of(size)
    return next((each.names[vendor] for each in EQUIVALENTS if each.size == size and vendor in each.names), None)


def _named(vendor: str) -> Iterator[tuple[str, Size]]:
    """Yield the names of a vendor's models that clients may ask for, each with its size."""
    if vendor in OWN:
        yield from OWN[vendor].named()
        return
    for size in _SIZES:
        if (model := _of_size(vendor, size)) is not None:
            yield model, size


def _in_place(deployments: Collection[str], size: Size, sized: Mapping[str, ProposedModel]) -> str | None:
    """Return the model of ``size`` if it has other deployments, which can answer in the place of these."""
    others = sized[size].deployments if size in sized else ()
    return size if set(others) - set(deployments) else None


def _vendor(deployment: str) -> str:
    return deployment.partition("/")[0]
