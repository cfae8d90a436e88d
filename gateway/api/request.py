"""A client's request, read as far as the gateway needs it, in the same form for every dialect."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.api.json_body import CHARS_PER_TOKEN, Contents, Media, decoded, is_set, read_model, size_class, survey
from gateway.api.overrides import RaceOverride, read_override
from gateway.api.preferences import Preferences, read_preferences
from gateway.core.errors import InvalidRequest
from gateway.core.prompt_classes import PromptClass, answer_class
from providers.dialects.dialect import Dialect

_TOKENS_PER_PAYLOAD = 1000  # about as many as a picture has
_LONG = 8 * 1024  # bytes; shorter prompts fit every context window
_ESCAPE_OVERHEAD = 4  # bytes: an escape like \u043f has six; the letter has two in UTF-8

_NONEMPTY_ARRAY = re.compile(rb"\s*\[\s*[^\s\]]")  # the input is valid JSON, so its first bytes are enough

Decoders = Mapping[str, msgspec.json.Decoder[Any]]


class Needs(msgspec.Struct, frozen=True):
    """What a deployment must be able to do to answer."""

    prompt_tokens: int  # estimated from the size of the body
    max_tokens: int | None = None  # the client's limit for the answer, if it set one
    tools: bool = False
    json_schema: bool = False
    vision: bool = False
    audio: bool = False
    documents: bool = False

    @property
    def ordinary(self) -> bool:
        """Whether every deployment can do it, apart from the length."""
        return not (self.tools or self.json_schema or self.vision or self.audio or self.documents)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer, in any dialect."""

    dialect: Dialect
    model: str
    fields: Mapping[str, msgspec.Raw]  # without the gateway's own fields
    size: int  # bytes
    values: int | None = None  # see ``Contents.values``
    needs: Needs
    race: RaceOverride
    preferences: Preferences
    stream: bool = False
    wants_usage: bool = True  # in the stream; dialects that always send usage ignore this
    stateful: bool = False  # must not be duplicated
    for_program: bool = False  # tools or JSON: the reader is a program that needs the whole answer
    continues: str | None = None  # the id of the stored response that it continues
    converses: bool = False  # it continues a conversation that one provider stores
    stores: bool = False  # the provider stores the answer, so that a later request can continue it
    cache_key: str | None = None  # the client's key for prompts with the same prefix
    response_headers: Mapping[str, str] = {}  # that report what the gateway changed

    @property
    def prompt_class(self) -> PromptClass:
        """The prompt class of a request of this size."""
        return answer_class(size_class(self.size))


def needs_of(
    prompt: msgspec.Raw, contents: Contents, media: Media, *, max_tokens: int | None, tools: bool, json_schema: bool
) -> Needs:
    """Return what ``prompt`` (raw JSON) needs from a deployment; ``contents`` are those of its whole body."""
    seen, size = contents.survey, contents.size
    if seen is None:
        if media.any.search(prompt) is None:
            if size > _LONG:
                size -= bytes(prompt).count(b"\\u") * _ESCAPE_OVERHEAD
            return Needs(size // CHARS_PER_TOKEN, max_tokens, tools, json_schema)
        seen = survey(prompt, media)
    if size > _LONG:
        size -= seen.escapes * _ESCAPE_OVERHEAD
    return Needs(
        size // CHARS_PER_TOKEN + seen.payloads * _TOKENS_PER_PAYLOAD - seen.payload_bytes // CHARS_PER_TOKEN,
        max_tokens,
        tools,
        json_schema,
        vision=seen.vision,
        audio=seen.audio,
        documents=seen.documents,
    )


class Beginning(msgspec.Struct, frozen=True):
    """The fields that are read from every body first, whatever its API."""

    fields: dict[str, msgspec.Raw]  # without the gateway's own fields
    model: str
    race: RaceOverride
    preferences: Preferences


def begin(contents: Contents, race_header: str | None) -> Beginning:
    """Read the model, race settings and provider preferences from a body's top level; remove the gateway's own fields.

    Raises:
        InvalidRequest: there is no model, or the race settings are invalid.

    """
    fields = contents.fields
    race = fields.pop("race", None)
    preferences = read_preferences(fields)
    model = preferences.models[0] if preferences.models and "model" not in fields else read_model(fields)
    return Beginning(fields, model, read_override(race, race_header), preferences)


def required_messages(fields: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    """Return the field ``messages``, unparsed.

    Raises:
        InvalidRequest: it is missing, not an array, or empty.

    """
    messages = required(fields, "messages", "the messages of the conversation so far")
    if not _NONEMPTY_ARRAY.match(messages):
        raise InvalidRequest("'messages' must be an array with at least one message", param="messages")
    return messages


def decoded_fields(fields: Mapping[str, msgspec.Raw], decoders: Decoders) -> dict[str, Any]:
    """Decode those fields for which there is a decoder; return their values.

    Raises:
        InvalidRequest: a field has the wrong type.

    """
    return {name: decoded(name, raw, decoders[name]) for name, raw in fields.items() if name in decoders}


def required(fields: Mapping[str, msgspec.Raw], name: str, hint: str) -> msgspec.Raw:
    """Return a required field, unparsed.

    Raises:
        InvalidRequest: it is missing or null. ``hint`` says what it should contain.

    """
    raw = fields.get(name)
    if raw is None or not is_set(raw):
        raise InvalidRequest(f"'{name}' is missing: {hint}", param=name)
    return raw
