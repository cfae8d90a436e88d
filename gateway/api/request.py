"""A client's request, parsed as far as the gateway needs, in the same form for every dialect."""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.overrides import NOTHING, RaceOverride, read_override
from gateway.api.preferences import CONSUMED, Preferences, read_preferences
from gateway.api.preferences import NOTHING as NO_PREFERENCES
from gateway.api.relayed_api import RelayedApi
from gateway.core.calls import CallRequest, Maker
from gateway.core.errors import InvalidRequest
from gateway.core.prompt_classes import Effort, PromptClass, answer_class
from gateway.http import (
    CHARS_PER_TOKEN,
    ESCAPED_ASCII,
    Contents,
    Media,
    MediaScan,
    decoded,
    is_set,
    read_model,
    scan_media,
    size_class,
)
from providers import Form
from providers.dialects import DIALECTS, NAMES_STORED

if TYPE_CHECKING:
    from gateway.memory import Remembering

_TOKENS_PER_PAYLOAD = 1000  # about as many as a picture has
_LONG = 8 * 1024  # bytes; shorter prompts fit every context window
_ESCAPE_OVERHEAD = 4  # bytes: an escape like \u043f has six; the letter has two in UTF-8
_MOST_ESCAPED = 3  # the factor by which a text of escapes only is longer than in UTF-8

# Fields that name nothing stored and start no search: with only these, the provider reads nothing but the prompt.
INLINE = frozenset({
    "best_of", "dimensions", "echo", "encoding_format", "frequency_penalty", "include", "input", "instructions",
    "logit_bias", "logprobs", "max_completion_tokens", "max_output_tokens", "max_tokens", "messages", "metadata",
    "min_p", "model", "n", "output_config", "parallel_tool_calls", "presence_penalty", "prompt", "prompt_cache_key",
    "prompt_cache_retention", "reasoning", "reasoning_effort", "repetition_penalty", "response_format",
    "safety_identifier", "seed", "service_tier", "stop", "stop_sequences", "store", "stream", "stream_options",
    "suffix", "system", "temperature", "text", "thinking", "tool_choice", "tools", "top_k", "top_logprobs", "top_p",
    "truncation", "user", "verbosity",
}).union(*(dialect.requests.inline for dialect in DIALECTS.values()))  # fmt: skip
_NAMES_NOTHING = INLINE - NAMES_STORED
_TURNS = re.compile(rb"\s*(?:\{|\[\s*[^\s\]])")  # Google also accepts a single turn
_TEXT, _TEXT_OR_TURNS = re.compile(rb'\s*"'), "input"  # of Responses
_NONEMPTY_ARRAY = re.compile(rb"\s*\[\s*[^\s\]]")  # valid JSON, so the first bytes are enough

# Fields about how much the model should think: of the APIs, and of servers and vendors with fields of their own.
_EFFORT_FIELDS = frozenset({
    "chat_template_kwargs", "enable_thinking", "output_config", "reasoning", "thinking", "thinking_budget",
}).union(name for dialect in DIALECTS.values() if (name := dialect.requests.thinking.effort) is not None)  # fmt: skip
_EFFORT_KEYS = (  # within the fields' objects
    "type", "effort", "enabled", "budget_tokens", "max_tokens", "enable_thinking", "thinking", "thinking_budget",
    "thinkingBudget", "thinkingLevel", "thinking_level", "reasoning_effort",
)  # fmt: skip
_EFFORT_LONGEST = 2048  # bytes; a longer field is not read
_MUCH_TOKENS = 2048  # a thinking budget that counts like the effort medium
_EFFORTS: Mapping[str, Effort] = {
    **dict.fromkeys(("none", "off", "disabled", "minimal", "low"), Effort.LOW),
    **dict.fromkeys(("medium", "high", "xhigh", "max", "enabled", "adaptive"), Effort.HIGH),
}

Decoders = Mapping[str, msgspec.json.Decoder[Any]]


class Needs(msgspec.Struct, frozen=True):
    """The capabilities that a deployment needs to answer a request."""

    prompt_tokens: int  # estimated from the size of the body
    max_tokens: int | None = None  # the client's limit for the answer, if any
    tools: bool = False
    json_schema: bool = False
    vision: bool = False
    audio: bool = False
    documents: bool = False
    inline: bool = False  # the prompt is only text, and all of it is in the body

    @property
    def ordinary(self) -> bool:
        """Whether every deployment can answer the request, apart from its length."""
        return not (self.tools or self.json_schema or self.vision or self.audio or self.documents)


class StreamFormat(IntEnum):  # has a hash in C
    """The form in which a streamed answer is written."""

    EVENTS = auto()
    ARRAY = auto()  # the events' data are the elements of one JSON array
    FRAMES = auto()  # each event's data are in frames of AWS


class ParsedRequest(CallRequest, frozen=True, kw_only=True):
    """A request for an answer: in any dialect, or of an API whose answers pass unread."""

    relayed: RelayedApi | None = None  # an API whose answers pass unread; None: the dialect's answers are read
    form: Form | None = None
    size: int  # bytes
    values: int | None = None  # see ``Contents.values``
    needs: Needs
    race: RaceOverride
    preferences: Preferences
    written: StreamFormat = StreamFormat.EVENTS
    framed: Callable[[bytes], bytes] | None = None  # turns the data of an event into frames
    told_as: Callable[[bytes], bytes] | None = None  # converts a whole answer; None: unchanged
    headers: Mapping[str, str] = {}  # headers of the API that the body has
    for_hosted: bool = False  # stateful only for what its provider is to run: where that is left out, nothing is
    for_program: bool = False  # tools or JSON: the reader is a program that needs the whole answer
    continues: str | None = None  # the id of the stored response that the request continues
    follows: Maker | None = None  # may have stored the answer that the gateway has put before the input
    converses: str | None = None  # the field that continues a conversation stored at one provider
    has_ids: bool = False  # the prompt may stand for items that a provider stores, though it has only text
    nests: bool = False  # a tool has tools, which may name objects that a provider stores
    stores: bool = False  # the provider stores the answer, so that a later request can continue it
    remembering: "Remembering | None" = None  # the gateway keeps the answer, if no provider does
    cache_key: str | None = None  # the client's key for prompts with the same prefix
    response_headers: Mapping[str, str] = {}  # report changes by the gateway
    scan_media: MediaScan | None = None  # of a large prompt whose answer passes unread

    @property
    def prompt_class(self) -> PromptClass:
        """The prompt class of a request of this size and effort."""
        if self.relayed is not None:
            return PromptClass(self.relayed.endpoint, size_class(self.size))
        fields = self.fields
        effort = None if _EFFORT_FIELDS.isdisjoint(fields) else _effort_of(fields)
        return answer_class(size_class(self.size), effort)

    @property
    def may_name_stored(self) -> bool:
        """Whether the request may name objects stored at a provider (a file); if not, the body is not searched."""
        is_read = self.relayed is None and self.needs.inline
        fields = self.fields
        if not is_read or self.stateful or self.has_ids or self.nests or not fields.keys() <= _NAMES_NOTHING:
            return True
        return "tool_choice" in fields and bytes(fields["tool_choice"])[:1] == b"{"

    @property
    def is_to_be_stored(self) -> bool:
        """Whether the client wants the answer kept at the provider, and the gateway does not keep it instead.

        No later chat request continues a kept answer, but OpenAI's users evaluate and distil kept answers.
        """
        if not self.stateful or self.remembering is not None:
            return False
        return self.stores or (self.relayed is None and bytes(self.fields.get("store", b"")) == b"true")

    def inline_bytes(self, fields: Mapping[str, msgspec.Raw]) -> int | None:
        """Return the bytes of the body if the provider reads only the body; None if it may read or do more.

        ``fields``: those that are sent.
        """
        return self.size if self.needs.inline and not self.stateful and fields.keys() <= INLINE else None


def needs_of(
    prompt: msgspec.Raw, contents: Contents, media: Media, *, max_tokens: int | None, tools: bool, json_schema: bool
) -> Needs:
    """Return the needs of ``prompt`` (raw JSON); ``contents``: of the whole body."""
    scanned, size = contents.scan_media, contents.size
    if scanned is None:
        is_odd = media.odd.search(prompt) is not None
        if not is_odd or media.any.search(prompt) is None:
            text = bytes(prompt)
            if size > _LONG:
                size = _unescaped(size, text.count(b"\\u"))
            inline = not is_odd and text.find(ESCAPED_ASCII) < 0
            return Needs(size // CHARS_PER_TOKEN, max_tokens, tools, json_schema, inline=inline)
        scanned = scan_media(prompt, media)
    text_bytes = size - scanned.payload_bytes
    if size > _LONG:
        text_bytes = _unescaped(text_bytes, scanned.escapes)  # some escapes may be in a payload
    return Needs(
        text_bytes // CHARS_PER_TOKEN + scanned.payloads * _TOKENS_PER_PAYLOAD,
        max_tokens,
        tools,
        json_schema,
        vision=scanned.vision,
        audio=scanned.audio,
        documents=scanned.documents,
        inline=not scanned.odd,
    )


def _unescaped(size: int, escapes: int) -> int:
    """Return the length in UTF-8 of a text that has ``size`` bytes in JSON.

    ``escapes`` may count too many, as after an escaped backslash u is only a letter. So the result has a lower bound: a
    prompt with a negative number of tokens would offset other usage.
    """
    return max(size - escapes * _ESCAPE_OVERHEAD, size // _MOST_ESCAPED)


def read_common(contents: Contents, race_header: str | None) -> tuple[str, RaceOverride, Preferences]:
    """Read the parts of every API: the model, race settings and preferences. Removes the gateway's own fields.

    Raises:
        InvalidRequest: there is no model, or the race settings are invalid.

    """
    fields = contents.fields
    race = fields.pop("race", None)
    preferences = NO_PREFERENCES if CONSUMED.isdisjoint(fields) else read_preferences(fields)
    model = preferences.models[0] if preferences.models and "model" not in fields else read_model(fields)
    override = NOTHING if race is None and not race_header else read_override(race, race_header)
    return model, override, preferences


def required_messages(fields: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    """Return the field ``messages``, unparsed.

    Raises:
        InvalidRequest: the field is missing, not an array, or empty.

    """
    messages = fields.get("messages")
    if messages is None or not _NONEMPTY_ARRAY.match(messages):
        required(fields, "messages", "the messages of the conversation so far")
        raise InvalidRequest("'messages' must be an array with at least one message", param="messages")
    return messages


def required_turns(fields: Mapping[str, msgspec.Raw], prompt: str) -> msgspec.Raw:
    """Return the field ``prompt``, unparsed: the turns of a conversation, at least one.

    Raises:
        InvalidRequest: the field is missing, neither an array nor an object, or an empty array.

    """
    if prompt == "messages":
        return required_messages(fields)
    turns = required(fields, prompt, "the turns of the conversation so far")
    if not (_TURNS.match(turns) or (prompt == _TEXT_OR_TURNS and _TEXT.match(turns))):
        raise InvalidRequest(f"{prompt!r} must be an array with at least one turn", param=prompt)
    return turns


def decoded_fields(fields: Mapping[str, msgspec.Raw], decoders: Decoders) -> dict[str, Any]:
    """Return the decoded values of the fields that have a decoder.

    Raises:
        InvalidRequest: a field has the wrong type.

    """
    decoded_values = {}
    for name, raw in fields.items():  # no comprehension: it would be one call more
        if name in decoders:
            try:
                decoded_values[name] = decoders[name].decode(raw)
            except (msgspec.DecodeError, RecursionError):  # ``decoded`` raises the error in words
                decoded_values[name] = decoded(name, raw, decoders[name])
    return decoded_values


def required(fields: Mapping[str, msgspec.Raw], name: str, hint: str) -> msgspec.Raw:
    """Return a required field, unparsed.

    Raises:
        InvalidRequest: the field is missing or null. ``hint``: its expected content, for the message.

    """
    raw = fields.get(name)
    if raw is None or not is_set(raw):
        raise InvalidRequest(f"'{name}' is missing: {hint}", param=name)
    return raw


def _effort_of(fields: Mapping[str, msgspec.Raw]) -> Effort | None:
    """Return the effort that a request asks for, the least of several; None: not stated, or unknown."""
    efforts: set[Effort | None] = set()
    for name in _EFFORT_FIELDS.intersection(fields):
        raw = fields[name]
        try:
            value = msgspec.json.decode(raw) if len(raw) <= _EFFORT_LONGEST else None
        except msgspec.DecodeError:  # the provider may say what is wrong
            continue
        values = [value.get(key) for key in _EFFORT_KEYS] if isinstance(value, dict) else [value]
        efforts.update(map(_effort, values))
    return Effort.LOW if Effort.LOW in efforts else Effort.HIGH if Effort.HIGH in efforts else None


def _effort(value: object) -> Effort | None:
    if isinstance(value, str):
        return _EFFORTS.get(value.lower())
    if isinstance(value, bool):
        return Effort.HIGH if value else Effort.LOW
    if isinstance(value, int | float):  # tokens; below 0 as many as the model likes
        return Effort.LOW if 0 <= value < _MUCH_TOKENS else Effort.HIGH
    return None
