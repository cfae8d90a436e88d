"""GET /v1/models and /v1/models/{id}: a client's models, in the format of OpenAI, OpenRouter, Anthropic or Google."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Literal, TypeVar

import msgspec
from aiohttp import web
from aiohttp.hdrs import METH_POST
from msgspec import UNSET, Meta, UnsetType

from gateway.access import Client
from gateway.api.context import CONTEXT
from gateway.api.preferences import policy_violation
from gateway.core.errors import Forbidden, InvalidRequest, NothingEnabled
from gateway.fleet import Deployment, Fleet, Model
from gateway.keys import GOOGLES
from providers import Price, encoded
from providers.dialects import DIALECTS, GEMINI, MESSAGES, PIVOT, Dialect

# The properties of a model, computed from its deployments: context length, capabilities, price.

# The conversational APIs.
_CONVERSING = frozenset(dialect.name for dialect in DIALECTS.values() if dialect.untranslated is None)


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a model that hold for every call, whichever deployment answers. None: unknown."""

    converses: bool  # answers chats; false: only embeddings, images etc.
    context_tokens: int | None  # the smallest of all deployments
    max_output_tokens: int | None  # likewise, and at most the operator's limit
    price: Price | None  # the highest of all deployments; None unless all are known
    # True: at least one deployment has the ability, so such calls are answered. False: all are known to lack it.
    tools: bool | None
    json_schema: bool | None
    reasoning: bool | None
    vision: bool | None
    audio: bool | None
    documents: bool | None


def facts_of(model: Model, deployments: Sequence[Deployment]) -> ModelFacts:
    """Return the properties of ``model`` if only ``deployments`` may answer."""
    capabilities = [deployment.capabilities for deployment in deployments]
    allowed = model.parameters.most_tokens if model.parameters is not None else None
    return ModelFacts(
        converses=not deployments or any(not _CONVERSING.isdisjoint(each.apis) for each in deployments),
        context_tokens=_least(each.context_tokens for each in capabilities),
        max_output_tokens=_least((*(each.max_output_tokens for each in capabilities), allowed)),
        price=_dearest([deployment.price for deployment in deployments]),
        tools=_any_can([each.tools for each in capabilities]),
        json_schema=_any_can([each.json_schema for each in capabilities]),
        reasoning=_any_can([each.reasoning for each in capabilities]),
        vision=_any_can([each.vision for each in capabilities]),
        audio=_any_can([each.audio for each in capabilities]),
        documents=_any_can([each.documents for each in capabilities]),
    )


def _least(figures: Iterable[int | None]) -> int | None:
    return min((figure for figure in figures if figure is not None), default=None)


def _any_can(flags: Sequence[bool | None]) -> bool | None:
    if any(flags):
        return True
    return None if not flags or None in flags else False


def _dearest(prices: Sequence[Price | None]) -> Price | None:
    priced = [price for price in prices if price is not None]
    if not priced or len(priced) < len(prices):
        return None

    def most(usd: Callable[[Price], float | None], otherwise: Callable[[Price], float]) -> float | None:
        """Return the highest price of a part; a deployment without such a price counts with its general price."""
        if all(usd(price) is None for price in priced):
            return None
        return max(part_usd if (part_usd := usd(price)) is not None else otherwise(price) for price in priced)

    return Price(
        input_usd=max(price.input_usd for price in priced),
        output_usd=max(price.output_usd for price in priced),
        cached_input_usd=most(lambda price: price.cached_input_usd, lambda price: price.input_usd),
        cache_write_usd=most(lambda price: price.cache_write_usd, lambda price: price.input_usd),
        reasoning_usd=most(lambda price: price.reasoning_usd, lambda price: price.output_usd),
    )


_EPOCH = "1970-01-01T00:00:00Z"  # Anthropic's value for an unknown date

# A model in each format, and the lists of them.


class TopProvider(msgspec.Struct, frozen=True):
    """The limits of a model, in tokens."""

    context_length: int | UnsetType = UNSET
    max_completion_tokens: int | UnsetType = UNSET


class Modalities(msgspec.Struct, frozen=True):
    """The kinds of input and output of a model."""

    input_modalities: list[str]
    output_modalities: list[str]


class MistralCapabilities(msgspec.Struct, frozen=True):
    """The abilities of a model, in Mistral's words: without them Mistral's SDK cannot read the list (mistralai 3.7)."""

    completion_chat: bool
    function_calling: bool | UnsetType = UNSET
    reasoning: bool | UnsetType = UNSET
    vision: bool | UnsetType = UNSET
    audio: bool | UnsetType = UNSET


class OpenAIModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in OpenAI's format, with its known properties in OpenRouter's and Mistral's fields."""

    id: str
    object: Literal["model"] = "model"
    type: Literal["base"] = "base"
    capabilities: MistralCapabilities
    created: Annotated[int, Meta(description="Always 0: a configured name has no date.")] = 0
    owned_by: Literal["holeshot"] = "holeshot"
    deployments: list[str]
    name: str
    context_length: Annotated[int | UnsetType, Meta(description="The smallest of all deployments, in tokens.")] = UNSET
    top_provider: TopProvider | UnsetType = UNSET
    pricing: Annotated[
        dict[str, str] | UnsetType, Meta(description="US dollars per token, the highest of all deployments.")
    ] = UNSET
    supported_parameters: list[str] | UnsetType = UNSET
    architecture: Modalities | UnsetType = UNSET


class AnthropicModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in Anthropic's format."""

    type: Literal["model"] = "model"
    id: str
    display_name: str
    created_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] = _EPOCH
    lifecycle: str = "active"
    max_input_tokens: int | None
    max_tokens: int | None


class GoogleModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A model in Google's format."""

    name: str
    base_model_id: str
    version: str = ""
    display_name: str
    supported_generation_methods: tuple[str, ...] = ("generateContent", "countTokens")
    input_token_limit: int | UnsetType = UNSET
    output_token_limit: int | UnsetType = UNSET


class OpenAIModels(msgspec.Struct, frozen=True):
    """All models."""

    data: list[OpenAIModel]
    object: Literal["list"] = "list"


class AnthropicModels(msgspec.Struct, frozen=True):
    """A page of models."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


class GoogleModels(msgspec.Struct, frozen=True):
    """All models."""

    models: list[GoogleModel]


_Fact = TypeVar("_Fact", int, bool)
_LONGEST_PAGE = 1000  # Anthropic's limit
MODELS_A_TURN = 50  # in a list; about a millisecond
_PRICE_DIGITS = 12  # significant digits; more are rounding errors of the division by a million
# Capabilities in OpenRouter's terms: the request parameters of each, and the input modalities.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "tools": ("tools", "tool_choice"),
    "json_schema": ("response_format", "structured_outputs"),
    "reasoning": ("reasoning", "include_reasoning"),
}
_MODALITIES: Mapping[str, str] = {"vision": "image", "documents": "file", "audio": "audio"}


async def list_models(request: web.Request) -> web.Response:
    """List the configured models this client may use.

    Anthropic's clients see only the models that can answer messages, in pages on request.

    Raises:
        InvalidRequest: the page's parameters are invalid.

    """
    work, models, dialect = request.app[CONTEXT].body_work, await _used(request), dialect_of(request)
    if dialect is PIVOT:
        return json_of(OpenAIModels(await work.pieces((_as_openai(*each) for each in models), MODELS_A_TURN)))
    conversing = await _conversing(request, models)
    if dialect is GEMINI:
        return json_of(GoogleModels(await work.pieces((_as_google(*each) for each in conversing), MODELS_A_TURN)))
    return json_of(_page([_as_anthropic(model, each) for model, each in conversing], request.query))


async def models_for(request: web.Request) -> list[str]:
    """Return the names of the configured models this client may use that answer chats."""
    return [model.name for model, _ in await _conversing(request, await _used(request))]


_Used = list[tuple[Model, list[Deployment]]]


async def _used(request: web.Request) -> _Used:
    """Return the configured models this client may use, with the deployments open to the client."""
    context = request.app[CONTEXT]
    client = context.admission.admit(request)
    models = [model for name, model in context.fleet.models.items() if client.may_use(name)]
    work, fleet = context.body_work, context.fleet
    facts = await work.made(((model, _visible(fleet, model, client)) for model in models), MODELS_A_TURN)
    if client.tenant is None:
        return facts
    return [(model, visible) for model, visible in facts if visible]  # a tenant can use no others


async def _conversing(request: web.Request, models: _Used) -> list[tuple[Model, ModelFacts]]:
    work = request.app[CONTEXT].body_work
    facts = await work.made(((model, facts_of(model, visible)) for model, visible in models), MODELS_A_TURN)
    return [(model, each) for model, each in facts if each.converses]


async def get_model(request: web.Request) -> web.Response:
    """Describe one model; the id may contain slashes."""
    context = request.app[CONTEXT]
    client = context.admission.admit(request)
    name = request.match_info["id"]
    client.check_model(name)
    model = context.fleet.find(name, adhoc=client.adhoc)
    visible = _visible(context.fleet, model, client)
    dialect = dialect_of(request)
    if dialect is PIVOT:
        return json_of(_as_openai(model, visible))
    return json_of((_as_google if dialect is GEMINI else _as_anthropic)(model, facts_of(model, visible)))


def dialect_of(request: web.Request) -> Dialect:
    """Return Gemini for a request of Google's clients, Messages for one of Anthropic's, else chat.

    Google's clients have the key in a header of Google's or in the URL, and only they post to the path of a model.
    """
    is_of_model = request.method == METH_POST and "/models/" in request.path
    is_googles = is_of_model or request.path.startswith(GOOGLES)
    if is_googles or "x-goog-api-key" in request.headers or "key" in request.query:
        return GEMINI
    is_anthropics = "anthropic-version" in request.headers or "x-api-key" in request.headers
    return MESSAGES if is_anthropics else PIVOT


def _visible(fleet: Fleet, model: Model, client: Client) -> list[Deployment]:
    """Return the deployments that this client may use; no other must show in the client's answers."""
    try:
        deployments = client.deployments(model)
    except (Forbidden, NothingEnabled):
        return []
    open_ = [deployment for deployment in deployments if fleet.may_ask(deployment, client.tenant)]
    return [deployment for deployment in open_ if policy_violation(deployment, client.require) is None]


def _as_openai(model: Model, visible: Sequence[Deployment]) -> OpenAIModel:
    """Return the model in OpenAI's format, with its properties in OpenRouter's fields."""
    facts = facts_of(model, visible)
    context_tokens, max_tokens = _known(facts.context_tokens), _known(facts.max_output_tokens)
    supported: list[str] | UnsetType = UNSET
    if facts.converses and facts.tools is not None:  # if unknown, a list without tools would claim that there are none
        supported = [name for ability, names in _PARAMETERS.items() if getattr(facts, ability) for name in names]
    architecture: Modalities | UnsetType = UNSET
    if facts.converses and facts.vision is not None:  # likewise
        inputs = [modality for ability, modality in _MODALITIES.items() if getattr(facts, ability)]
        architecture = Modalities(["text", *inputs], ["text"])
    return OpenAIModel(
        id=model.name,
        capabilities=MistralCapabilities(
            facts.converses, *map(_known, (facts.tools, facts.reasoning, facts.vision, facts.audio))
        ),
        deployments=[deployment.name for deployment in visible],
        name=model.name,
        context_length=context_tokens,
        top_provider=UNSET if context_tokens is max_tokens is UNSET else TopProvider(context_tokens, max_tokens),
        pricing=UNSET if facts.price is None else _pricing(facts.price),
        supported_parameters=supported,
        architecture=architecture,
    )


def _known(fact: _Fact | None) -> _Fact | UnsetType:
    return UNSET if fact is None else fact


def _pricing(price: Price) -> dict[str, str]:
    """Return prices in US dollars per token, as text without exponents."""
    prices = {
        "prompt": price.input_usd,
        "completion": price.output_usd,
        "input_cache_read": price.cached_input_usd,
        "input_cache_write": price.cache_write_usd,
        "internal_reasoning": price.reasoning_usd,
    }
    return {name: f"{Decimal(f'{usd:.{_PRICE_DIGITS}g}'):f}" for name, usd in prices.items() if usd is not None}


def _as_anthropic(model: Model, facts: ModelFacts) -> AnthropicModel:
    return AnthropicModel(
        id=model.name,
        display_name=model.name,
        max_input_tokens=facts.context_tokens,
        max_tokens=facts.max_output_tokens,
    )


def _as_google(model: Model, facts: ModelFacts) -> GoogleModel:
    return GoogleModel(
        name=f"models/{model.name}",
        base_model_id=model.name,
        display_name=model.name,
        input_token_limit=_known(facts.context_tokens),
        output_token_limit=_known(facts.max_output_tokens),
    )


def _page(entries: Sequence[AnthropicModel], query: Mapping[str, str]) -> AnthropicModels:
    """Return the requested page; without ``limit`` the longest, as a client without paging would miss the rest."""
    limit = _limit(query)
    if (before := query.get("before_id")) is not None:
        end = _place(entries, before, "before_id")
        start = max(0, end - limit)
        has_more = start > 0
    else:
        after = query.get("after_id")
        start = 0 if after is None else _place(entries, after, "after_id") + 1
        end = start + limit
        has_more = end < len(entries)
    page = list(entries[start:end])
    return AnthropicModels(page, has_more, page[0].id if page else None, page[-1].id if page else None)


def _limit(query: Mapping[str, str]) -> int:
    number = query.get("limit", str(_LONGEST_PAGE))
    limit = int(number) if number.isascii() and number.isdigit() and len(number) <= len(str(_LONGEST_PAGE)) else 0
    if not 1 <= limit <= _LONGEST_PAGE:
        raise InvalidRequest(f"'limit' must be a whole number from 1 to {_LONGEST_PAGE}, not {number!r}", param="limit")
    return limit


def _place(entries: Sequence[AnthropicModel], model: str, param: str) -> int:
    for place, each in enumerate(entries):
        if each.id == model:
            return place
    raise InvalidRequest(f"'{param}' must be the id of a model in the list, and {model!r} is not", param=param)


def json_of(body: msgspec.Struct) -> web.Response:
    """Return a struct as the response."""
    return web.Response(body=encoded(body), content_type="application/json")
