"""Reads providers' lists of models: all known formats of ``GET /models``, into one record.

Lists have OpenAI's basic format (``{"data": [{"id": …}]}``, or the bare array of Together) and differ in all details:
OpenRouter, Novita, DeepInfra, Together and SambaNova have prices, in different units; Groq, Mistral, vLLM, Fireworks
and llama.cpp have the context length, under different names; Anthropic and Gemini send pages.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from providers.refusals import UNREADABLE, ErrorKind, UpstreamError

# Parses one entry of a provider's model list, in any of the known formats.

ListedKind = Literal["chat", "embedding", "rerank", "audio", "image", "video", "moderation"]

_LARGEST_PRICE_USD = 0.01  # per token; a higher price has another unit
_PER_MILLION = 1e-6
_NOVITA_UNIT = 1e-10  # a ten-thousandth of a dollar, per million tokens
_ABSENT: Mapping[str, Any] = {}

_KINDS: Mapping[str, ListedKind] = {  # the words in lists
    "chat": "chat",
    "language": "chat",
    "code": "chat",
    "llm": "chat",
    "text-generation": "chat",
    "embedding": "embedding",
    "embeddings": "embedding",
    "rerank": "rerank",
    "reranker": "rerank",
    "reranking": "rerank",
    "audio": "audio",
    "transcribe": "audio",
    "speech": "audio",
    "image": "image",
    "video": "video",
    "moderation": "moderation",
}
_CONTEXT = ("context_length", "context_window", "max_context_length", "max_model_len", "context_size")
_INPUT = ("max_input_tokens", "inputTokenLimit", "input_token_limit")  # of the prompt alone
_OUTPUT = ("max_output_tokens", "max_completion_tokens", "max_output_length", "outputTokenLimit")


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a provider's list. None: not in the list."""

    id: str  # its name in requests
    name: str | None = None  # its display name
    created_s: int | None = None  # Unix time
    owner: str | None = None
    parent: str | None = None  # the base model of an adapter
    kind: ListedKind | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    quantization: str | None = None
    input_usd: float | None = None  # per token
    output_usd: float | None = None
    input_modalities: tuple[str, ...] | None = None  # "text", "image", "audio", "file", …
    output_modalities: tuple[str, ...] | None = None
    tools: bool | None = None
    json_schema: bool | None = None
    reasoning: bool | None = None

    @property
    def vision(self) -> bool | None:
        """Whether it accepts images."""
        return None if self.input_modalities is None else "image" in self.input_modalities


def read_row(row: Mapping[str, Any]) -> ListedModel | None:
    """Return the model of a row, None if it has no name."""
    name = _name_in(row)
    return None if name is None else _listed(row, name)


def _name_in(row: Mapping[str, Any]) -> str | None:
    """Return the model's name in requests; Gemini lists ``models/NAME`` and accepts both."""
    name = _text(row, "id", "name", "model")
    return name.removeprefix("models/") if name else None


def _listed(row: Mapping[str, Any], name: str) -> ListedModel:
    metadata = _object(row, "metadata")  # DeepInfra
    input_usd, output_usd = _prices(row)
    takes, gives = _modalities(row)
    return ListedModel(
        id=name,
        name=_text(row, "display_name", "displayName", "title", "name"),
        created_s=_created_s(row),
        owner=_text(row, "owned_by", "organization"),
        parent=_text(row, "parent"),
        kind=_kind(row, gives),
        context_tokens=_context_tokens(row),
        max_output_tokens=_least(
            _count(row, *_OUTPUT),
            _count(row, "max_tokens"),  # Anthropic, Vercel
            _count(metadata, "max_tokens"),
            _count(_object(row, "top_provider"), "max_completion_tokens"),
        ),
        quantization=_quantization(row),
        input_usd=input_usd,
        output_usd=output_usd,
        input_modalities=takes,
        output_modalities=gives,
        tools=_able(row, ("function_calling", "tools", "tool_use"), ("tools", "function-calling", "tool-use")),
        json_schema=_able(row, ("structured_outputs", "json_schema"), ("structured_outputs", "structured-outputs")),
        reasoning=_able(row, ("reasoning", "thinking"), ("reasoning", "include_reasoning")),
    )


def _created_s(row: Mapping[str, Any]) -> int | None:
    created = row.get("created", row.get("created_at"))
    if isinstance(created, str):  # Anthropic
        try:
            created = datetime.fromisoformat(created).timestamp()
        except ValueError:
            return None
    instant = _number(created)
    return int(instant) if instant is not None and instant > 0 else None


def _kind(row: Mapping[str, Any], gives: tuple[str, ...] | None) -> ListedKind | None:
    for key in ("type", "model_type", "kind", "task"):
        if isinstance(word := row.get(key), str) and (kind := _KINDS.get(word.lower())):
            return kind
    capabilities = _object(row, "capabilities")
    if capabilities.get("completion_chat") is True or row.get("supports_chat") is True:
        return "chat"
    if gives is None:
        return None
    if "text" in gives:
        return "chat"
    return next((kind for word in gives if (kind := _KINDS.get(word))), None)


def _context_tokens(row: Mapping[str, Any]) -> int | None:
    meta = _object(row, "meta")  # llama.cpp: the configured context length, else the model's
    return _least(
        _count(row, *_CONTEXT),
        _count(_object(row, "top_provider"), "context_length"),
        _count(_object(row, "metadata"), "context_length"),
        _count(meta, "n_ctx", "n_ctx_train"),
    ) or _count(row, *_INPUT)


def _quantization(row: Mapping[str, Any]) -> str | None:
    """Return the quantization of its weights; None if it is unknown, or differs among its endpoints."""
    told = [_text(row, "quantization", "precision", "dtype") or _text(_object(row, "meta"), "ftype")]
    if not told[0] and isinstance(endpoints := row.get("endpoints"), list):
        told = [_text(endpoint, "quantization") for endpoint in endpoints if isinstance(endpoint, dict)]
    words = {word.lower() if word else None for word in told}
    word = words.pop() if len(words) == 1 else None
    return None if word in (None, "unknown", "none", "auto") else word


def _prices(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the prices in US dollars per token of input and of output."""
    pricing = _object(row, "pricing")
    if "prompt" in pricing:  # OpenRouter, SambaNova: per token, as text
        return _price(pricing.get("prompt"), 1), _price(pricing.get("completion"), 1)
    if "input" in pricing:  # Together: per million; Vercel: per token, as text
        unit = 1 if isinstance(pricing["input"], str) else _PER_MILLION
        return _price(pricing["input"], unit), _price(pricing.get("output"), unit)
    own = _object(_object(row, "metadata"), "pricing")
    if "input_tokens" in own:  # DeepInfra: per million
        return _price(own["input_tokens"], _PER_MILLION), _price(own.get("output_tokens"), _PER_MILLION)
    if "input_token_price_per_m" in row:
        return (
            _price(row["input_token_price_per_m"], _NOVITA_UNIT),
            _price(row.get("output_token_price_per_m"), _NOVITA_UNIT),
        )
    return None, None


def _price(value: Any, unit: float) -> float | None:
    """Return a price in dollars per token; None for -1, which OpenRouter has for its router."""
    try:
        price = float(value) * unit
    except (TypeError, ValueError):
        return None
    return round(price, 15) if math.isfinite(price) and 0 <= price <= _LARGEST_PRICE_USD else None


def _modalities(row: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return its kinds of input and of output."""
    architecture = _object(row, "architecture")  # OpenRouter
    takes = _words(architecture, "input_modalities") or _words(row, "input_modalities")
    gives = _words(architecture, "output_modalities") or _words(row, "output_modalities")
    if takes is None and (images := _takes_images(row)) is not None:
        takes = ("text", "image") if images else ("text",)
    return takes, gives


def _takes_images(row: Mapping[str, Any]) -> bool | None:
    capabilities = _object(row, "capabilities")
    for told in (
        row.get("supports_image_input"),  # Fireworks
        row.get("supports_image_in"),  # Moonshot
        row.get("supports_vision"),
        capabilities.get("vision"),  # Mistral
        _object(capabilities, "image_input").get("supported"),  # Anthropic
    ):
        if isinstance(told, bool):
            return told
    return True if "vision" in (_words(_object(row, "metadata"), "tags") or ()) else None  # DeepInfra


def _able(row: Mapping[str, Any], flags: tuple[str, ...], words: tuple[str, ...]) -> bool | None:
    """Return whether it has a capability, by a flag or by a word in one of its lists."""
    capabilities = _object(row, "capabilities")
    for flag in flags:
        told = row.get(f"supports_{flag}", capabilities.get(flag))
        told = told.get("supported") if isinstance(told, dict) else told
        if isinstance(told, bool):
            return told
    for source, key, whole in (
        (row, "supported_parameters", True),  # OpenRouter: parameters that are not listed are refused
        (row, "supported_features", True),
        (row, "features", False),  # Novita
        (_object(row, "metadata"), "tags", False),  # DeepInfra
        (row, "tags", False),
    ):
        if (told := _words(source, key)) is not None:
            if any(word in told for word in words):
                return True
            if whole:
                return False
    return None


def _object(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return value if isinstance(value := row.get(key), dict) else _ABSENT


def _text(row: Mapping[str, Any], *keys: str) -> str | None:
    return next(_texts(row, keys), None)


def _texts(row: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        if isinstance(value := row.get(key), str) and (text := value.strip()) and text.isprintable():
            yield text


def _words(row: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = row.get(key)
    return (
        tuple(word for word in value if isinstance(word, str) and word.isprintable())
        if isinstance(value, list) and value
        else None
    )


def _count(row: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        if (number := _number(row.get(key))) is not None and number >= 1:
            return int(number)
    return None


def _least(*counts: int | None) -> int | None:
    return min((count for count in counts if count is not None), default=None)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


MOST_PAGES = 20  # of one list


class Listing(msgspec.Struct, frozen=True):
    """A provider's whole list, and the headers of its last page (names in lower case)."""

    models: tuple[ListedModel, ...]
    headers: Mapping[str, str] = {}


ReadPage = Callable[[Mapping[str, str]], Awaitable[tuple[bytes, Mapping[str, str]]]]


async def read_pages(read_page: ReadPage) -> Listing:
    """Return the list from ``read_page``, which takes a query and returns a body and its headers.

    Raises:
        UpstreamError: as of ``read_page``; or a body is not a list of models (invalid_response).

    """
    models: dict[str, ListedModel] = {}
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    for _ in range(MOST_PAGES):
        body, headers = await read_page(query)
        known = len(models)
        models |= {model.id: model for model in read_listing(body)}
        following = next_page(body)
        if following is None or len(models) == known:  # a page without new models would lead to an endless loop
            break
        query = following
    return Listing(tuple(models.values()), headers)


def read_listing(body: bytes) -> list[ListedModel]:
    """Return the models of a list, or of one of its pages, in its order; rows without a name are left out.

    Raises:
        UpstreamError: it is not a list of models (invalid_response).

    """
    answer = _decoded(body)
    rows = answer
    if isinstance(answer, dict):
        rows = next((answer[key] for key in ("data", "models") if key in answer), None)
        if isinstance(rows, dict):  # OpenRouter: one model and its endpoints
            rows = [rows]
    if not isinstance(rows, list):
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "its list of models has an unknown format")
    return [listed for row in rows if isinstance(row, dict) and (listed := read_row(row)) is not None]


def next_page(body: bytes) -> Mapping[str, str] | None:
    """Return the query for the next page, None if this is the last one."""
    answer = _decoded(body)
    if not isinstance(answer, dict):
        return None
    if answer.get("has_more") is True and isinstance(last := answer.get("last_id"), str):  # Anthropic
        return {"after_id": last}
    if isinstance(token := answer.get("nextPageToken"), str) and token:  # Gemini: fifty models a page
        return {"pageToken": token}
    if isinstance(links := answer.get("links"), dict) and isinstance(following := links.get("next"), str):  # OpenRouter
        return dict(parse_qsl(urlsplit(following).query)) or None
    return None


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except UNREADABLE:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "its list of models is not JSON") from None
