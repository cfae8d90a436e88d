"""What is known about a model from its deployments: context length, capabilities, price."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from gateway.fleet.deployment import Deployment
from gateway.fleet.model import Model
from providers.dialects.index import DIALECTS
from providers.prices import Price

# The APIs of conversations.
_CONVERSING = frozenset(dialect.name for dialect in DIALECTS.values() if dialect.untranslated is None)


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is true for every call of a model, whichever deployment answers. None: unknown."""

    converses: bool  # answers chats; false: only embeddings, images etc.
    context_tokens: int | None  # the smallest of all deployments
    max_output_tokens: int | None  # likewise, and at most the operator's limit
    price: Price | None  # the highest of all deployments; None unless all are known
    # True: at least one deployment can, so such calls are answered. False: all are known to be unable.
    tools: bool | None
    json_schema: bool | None
    reasoning: bool | None
    vision: bool | None
    audio: bool | None
    documents: bool | None


def facts_of(model: Model, deployments: Sequence[Deployment]) -> ModelFacts:
    """Return what is known about ``model`` if only ``deployments`` may answer."""
    known = [deployment.capabilities for deployment in deployments]
    allowed = model.parameters.most_tokens if model.parameters is not None else None
    return ModelFacts(
        converses=not deployments or any(not _CONVERSING.isdisjoint(each.apis) for each in deployments),
        context_tokens=_least(each.context_tokens for each in known),
        max_output_tokens=_least((*(each.max_output_tokens for each in known), allowed)),
        price=_dearest([deployment.price for deployment in deployments]),
        tools=_any_can([each.tools for each in known]),
        json_schema=_any_can([each.json_schema for each in known]),
        reasoning=_any_can([each.reasoning for each in known]),
        vision=_any_can([each.vision for each in known]),
        audio=_any_can([each.audio for each in known]),
        documents=_any_can([each.documents for each in known]),
    )


def _least(figures: Iterable[int | None]) -> int | None:
    return min((figure for figure in figures if figure is not None), default=None)


def _any_can(known: Sequence[bool | None]) -> bool | None:
    if any(known):
        return True
    return None if not known or None in known else False


def _dearest(prices: Sequence[Price | None]) -> Price | None:
    known = [price for price in prices if price is not None]
    if not known or len(known) < len(prices):
        return None

    def most(usd: Callable[[Price], float | None], otherwise: Callable[[Price], float]) -> float | None:
        """Return the highest price of a part; where a deployment has none for it, its general price is used."""
        if all(usd(price) is None for price in known):
            return None
        return max(own if (own := usd(price)) is not None else otherwise(price) for price in known)

    return Price(
        input_usd=max(price.input_usd for price in known),
        output_usd=max(price.output_usd for price in known),
        cached_input_usd=most(lambda price: price.cached_input_usd, lambda price: price.input_usd),
        cache_write_usd=most(lambda price: price.cache_write_usd, lambda price: price.input_usd),
        reasoning_usd=most(lambda price: price.reasoning_usd, lambda price: price.output_usd),
    )
