"""A request body, read once: its top level as raw JSON, and the few fields the gateway itself must understand."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.errors import InvalidRequest
from gateway.ingress.override import RaceOverride, read_override

CHARS_PER_TOKEN = 4  # of prompt, JSON included
CLASS_LIMITS = (4 * 1024, 32 * 1024)  # bytes; about 1k and 8k tokens (STEERING 1.1)
MAX_TAGS = 16
LONGEST_MODEL = 512  # characters, of a comma list too: names come back in headers
MAX_TAG_CHARS = 256

# Tools a provider runs itself: they act, search or spend, so their calls are never duplicated.
_CLIENT_TOOLS = frozenset({"function", "custom"})
_JSON_FORMATS = frozenset({"json_object", "json_schema"})


class ChatBody(msgspec.Struct, frozen=True):
    """A chat completion as asked for."""

    model: str
    stream: bool
    wants_usage: bool
    stateful: bool  # must not be duplicated
    for_program: bool  # tools or JSON: whoever reads it can do nothing with half of it
    max_tokens: int | None  # what the answer may be at most, if the client said so
    size: int  # bytes
    fields: Mapping[str, msgspec.Raw]
    race: RaceOverride

    @property
    def prompt_class(self) -> int:
        """The prompt's class by the size of the body: 0, 1 or 2."""
        return prompt_class(self.size)

    @property
    def prompt_tokens(self) -> int:
        """A rough estimate, for deciding whether a prompt is too long to race."""
        return self.size // CHARS_PER_TOKEN


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Tool(msgspec.Struct):
    type: str = "function"


class _ResponseFormat(msgspec.Struct):
    type: str = "text"


_NONEMPTY_ARRAY = re.compile(rb"\s*\[\s*[^\s\]]")  # of valid JSON; looks at its first bytes only
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Each is made once: a type is dearer to prepare than a value to decode.
_MODEL = msgspec.json.Decoder(str | None)
_DECODERS: Mapping[str, msgspec.json.Decoder[Any]] = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(_StreamOptions | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
    "response_format": msgspec.json.Decoder(_ResponseFormat | None),
    "store": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "max_tokens": msgspec.json.Decoder(float | None),
    "max_completion_tokens": msgspec.json.Decoder(float | None),
}


def prompt_class(size: int) -> int:
    """Return the class of a prompt whose body has ``size`` bytes."""
    return bisect_left(CLASS_LIMITS, size)


def read_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the top level of a JSON object.

    Raises:
        InvalidRequest: not JSON, or not an object.

    """
    try:
        if not body.isascii():
            body.decode()  # msgspec does not look into the strings it leaves raw
        return _TOP.decode(body)
    except msgspec.ValidationError:
        raise InvalidRequest("the body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not valid UTF-8") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def read_chat(body: bytes, race_header: str | None) -> ChatBody:
    """Understand the body of a chat completion.

    Raises:
        InvalidRequest: anything in it makes no sense; the message says what.

    """
    fields = read_fields(body)
    raw_race = fields.pop("race", None)
    messages = fields.get("messages")
    if messages is None:
        raise InvalidRequest("'messages' is missing", param="messages")
    if not _NONEMPTY_ARRAY.match(messages):
        raise InvalidRequest("'messages' must be an array with at least one message", param="messages")
    model = read_model(fields)
    said = {name: _decoded(name, raw, _DECODERS[name]) for name, raw in fields.items() if name in _DECODERS}.get
    options, tools, answer = said("stream_options"), said("tools") or (), said("response_format")
    return ChatBody(
        model=model,
        stream=bool(said("stream")),
        wants_usage=bool(options and options.include_usage),
        stateful=bool(said("store") or said("background")) or _acts(fields, tools),
        for_program=bool(tools) or (answer is not None and answer.type in _JSON_FORMATS),
        max_tokens=_least(said("max_tokens"), said("max_completion_tokens")),
        size=len(body),
        fields=fields,
        race=read_override(raw_race, race_header),
    )


def read_model(fields: Mapping[str, msgspec.Raw]) -> str:
    """Return the field ``model``.

    Raises:
        InvalidRequest: it is missing, empty or no string.

    """
    raw = fields.get("model")
    model = None if raw is None else _decoded("model", raw, _MODEL)
    if not model:
        raise InvalidRequest("'model' is missing: name one of GET /v1/models", param="model")
    if len(model) > LONGEST_MODEL or not model.isprintable():
        raise InvalidRequest(f"'model' must be printable and at most {LONGEST_MODEL} characters long", param="model")
    return str(model)


def read_tags(header: str | None) -> dict[str, str]:
    """Return the tags of ``x-holeshot-tags``: ``name=value, name=value``, or a JSON object of strings.

    Raises:
        InvalidRequest: neither, or too much.

    """
    if not header:
        return {}
    if header.lstrip().startswith("{"):
        try:
            tags = msgspec.json.decode(_header_bytes(header), type=dict[str, str])
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"x-holeshot-tags is no JSON object of strings: {error}") from None
    else:
        pairs = [part.partition("=") for part in header.split(",") if part.strip()]
        if any(not (name.strip() and equals) for name, equals, _ in pairs):
            raise InvalidRequest("x-holeshot-tags must read 'name=value, name=value', or be a JSON object of strings")
        tags = {name.strip(): value.strip() for name, _, value in pairs}
    if len(tags) > MAX_TAGS or any(len(name) + len(value) > MAX_TAG_CHARS for name, value in tags.items()):
        raise InvalidRequest(f"x-holeshot-tags takes at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters")
    return tags


def _decoded(name: str, raw: msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name!r} is not what it should be: {error}", param=name) from None


def _acts(fields: Mapping[str, msgspec.Raw], tools: Iterable[_Tool]) -> bool:
    """Tell whether the provider is to do more than answer, or to go on from what it has stored."""
    if _is_set(fields.get("previous_response_id")) or _is_set(fields.get("web_search_options")):
        return True
    return any(tool.type not in _CLIENT_TOOLS for tool in tools)


def _is_set(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw) != b"null"


def _least(*limits: float | None) -> int | None:
    """Return the smallest limit said; some servers take -1 for none."""
    return min([int(limit) for limit in limits if limit is not None and limit >= 1], default=None)


def _header_bytes(header: str) -> bytes:
    """Return a header's value in UTF-8; what was none in it (aiohttp escapes it as surrogates) as question marks."""
    return header.strip().encode(errors="replace")
