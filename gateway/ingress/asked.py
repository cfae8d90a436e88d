"""What a client asks for, understood as far as the gateway must: alike for every dialect."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import InvalidRequest
from gateway.ingress.body import CHARS_PER_TOKEN, Contents, decoded, is_set, read_model, size_class
from gateway.ingress.preferences.override import RaceOverride, read_override
from gateway.ingress.preferences.provider_preferences import Preferences, read_preferences
from gateway.ingress.survey import Media, survey
from gateway.prompt_classes import PromptClass, answer_class
from providers.dialects.dialect import Dialect

_TOKENS_PER_PAYLOAD = 1000  # about those of a picture
_LONG = 8 * 1024  # bytes; below it no context is too small
_ESCAPE_OVERHEAD = 4  # bytes: a letter that is escaped as \u043f has two in UTF-8

_NONEMPTY_ARRAY = re.compile(rb"\s*\[\s*[^\s\]]")  # of valid JSON; looks at its first bytes only

Decoders = Mapping[str, msgspec.json.Decoder[Any]]


class Needs(msgspec.Struct, frozen=True):
    """What a deployment must be able to do to answer."""

    prompt_tokens: int  # estimated from the size of the body
    max_tokens: int | None = None  # what the answer may be at most, if the client said so
    tools: bool = False
    json_schema: bool = False
    vision: bool = False
    audio: bool = False
    documents: bool = False

    @property
    def ordinary(self) -> bool:
        """Whether every deployment can do it, as far as length goes not."""
        return not (self.tools or self.json_schema or self.vision or self.audio or self.documents)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer, in any dialect."""

    dialect: Dialect
    model: str
    fields: Mapping[str, msgspec.Raw]  # without what is the gateway's own
    size: int  # bytes
    values: int | None = None  # as its contents have it
    needs: Needs
    race: RaceOverride
    preferences: Preferences
    stream: bool = False
    wants_usage: bool = True  # in the stream; where the dialect always has it, it is never taken out
    stateful: bool = False  # must not be duplicated
    for_program: bool = False  # tools or JSON: whoever reads it can do nothing with half of it
    continues: str | None = None  # the id of the stored response it goes on from
    converses: bool = False  # it goes on with a conversation that one provider keeps
    stores: bool = False  # the answer is kept by the provider, to be continued there
    cache_key: str | None = None  # the client's own word for prompts that begin alike
    told: Mapping[str, str] = {}  # response headers that say what the gateway made of it

    @property
    def prompt_class(self) -> PromptClass:
        """The class of an answer to a body of this size."""
        return answer_class(size_class(self.size))


def needs_of(
    prompt: msgspec.Raw, contents: Contents, media: Media, *, max_tokens: int | None, tools: bool, json_schema: bool
) -> Needs:
    """Return what answering a ``prompt``, raw JSON of a body with these ``contents``, needs."""
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
    """What every body begins with, whatever it asks for."""

    fields: dict[str, msgspec.Raw]  # without what is the gateway's own
    model: str
    race: RaceOverride
    preferences: Preferences


def begin(contents: Contents, race_header: str | None) -> Beginning:
    """Read from a body's top level who is asked how; what is the gateway's own is taken out.

    Raises:
        InvalidRequest: it names no model, or says of its race what makes no sense.

    """
    fields = contents.fields
    race = fields.pop("race", None)
    preferences = read_preferences(fields)
    model = preferences.models[0] if preferences.models and "model" not in fields else read_model(fields)
    return Beginning(fields, model, read_override(race, race_header), preferences)


def demand_turns(fields: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    """Return the field ``messages``, which is not parsed for it.

    Raises:
        InvalidRequest: it is missing, no array, or empty.

    """
    messages = demand(fields, "messages", "the messages of the conversation so far")
    if not _NONEMPTY_ARRAY.match(messages):
        raise InvalidRequest("'messages' must be an array with at least one message", param="messages")
    return messages


def said(fields: Mapping[str, msgspec.Raw], decoders: Decoders) -> dict[str, Any]:
    """Return the fields that ``decoders`` understand.

    Raises:
        InvalidRequest: one of them is of another type.

    """
    return {name: decoded(name, raw, decoders[name]) for name, raw in fields.items() if name in decoders}


def demand(fields: Mapping[str, msgspec.Raw], name: str, hint: str) -> msgspec.Raw:
    """Return a field that must be there.

    Raises:
        InvalidRequest: it is not.

    """
    raw = fields.get(name)
    if raw is None or not is_set(raw):
        raise InvalidRequest(f"'{name}' is missing: {hint}", param=name)
    return raw
