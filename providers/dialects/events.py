"""One event of a stream as all dialects read it."""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence, Sized
from contextlib import suppress
from enum import Enum
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import msgspec

from providers.bodies import BACKSLASH, CR, LF, QUOTE, complains, encoded
from providers.models import Usage
from providers.refusals import UNREADABLE, ErrorKind, UpstreamError, error_in, identifier

DONE = b"[DONE]"  # the data of the last event of OpenAI's streams
DONE_EVENT = b"data: [DONE]\n\n"

# Why an answer was cut short, in the words of all APIs: a server with one API uses words of another. An answer with any
# other word has ended as it should, unless the word is in ``errors.FAILED``.
CUT_SHORT = frozenset(
    {
        *("length", "max_tokens", "max_output_tokens", "MAX_TOKENS"),
        *("model_length", "model_context_window_exceeded"),  # Mistral's, Anthropic's
    }
)
_GOOGLES = (
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "JAILBREAK"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
)
FILTERED = frozenset(
    {
        *("content_filter", "refusal", "sensitive"),  # the last is Z.ai's
        *("guardrail_intervened", "content_filtered"),  # Converse's
        *_GOOGLES,
        *(word.lower() for word in _GOOGLES),  # of the proxies before Google's API
        *(f"content_filter: {word}" for word in _GOOGLES),  # in Google's chat completions
    }
)
_CALLED = frozenset({"tool_calls", "function_call", "tool_use"})
SHORT = CUT_SHORT | FILTERED  # they count even where a server has sent another reason before, as with every chunk


def chat_reason(word: str, *, calls: object) -> str:
    """Return why an answer ended, in chat's words. ``calls``: tools were called, where some servers say "stop"."""
    if word in CUT_SHORT:
        return "length"
    if word in FILTERED:
        return "content_filter"
    return "tool_calls" if calls or word in _CALLED else "stop"


# In place of a tool call's place:
WHOLE_CALL = -1  # the piece is a call of its own
SAME_CALL = -2  # the piece belongs to the call of the piece before


# The most choices of an answer, tool calls, items, blocks, parts of a block, or citations of a block: each becomes one
# event or several. A batch has as many prompts at most.
MOST_OF_ANSWER = 2048


_Items = TypeVar("_Items", bound=Sized)


def few(items: _Items, what: str) -> _Items:
    """Return ``items`` if there are at most ``MOST_OF_ANSWER``: each item takes the event loop some time.

    Raises:
        UpstreamError: there are more items (invalid_response).

    """
    if len(items) > MOST_OF_ANSWER:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"the answer has more than {MOST_OF_ANSWER} {what}")
    return items


class Chunk(msgspec.Struct, frozen=True):
    """One event. ``data``: the provider's own bytes. The other fields are the facts that the race needs."""

    data: bytes
    meaningful: bool = False  # has non-empty content, reasoning, a tool call, a refusal, audio or an image
    answer: bool = False  # has something meaningful besides reasoning
    reasoning: bool = False  # has reasoning text
    finished: bool = False  # a choice has its finish reason
    done: bool = False  # the event ends the answer: [DONE], or the dialect's counterpart
    usage: Usage | None = None
    usage_only: bool = False  # has usage and no choices: sent because usage was requested
    error: UpstreamError | None = None
    text_chars: int = 0  # generated characters, of reasoning and tool calls too, for an estimate of tokens
    model: str | None = None  # the model that answers, by the provider's name
    id: str | None = None  # the answer's id at the provider
    finish_reason: str | None = None
    tools: Sequence[tuple[int | str, str]] = ()  # pieces of tool calls' arguments, each with the call's place or id
    names: Sequence[str] = ()  # of tools whose calls begin with this event
    refused: bool = False  # a piece of a refusal
    idle: bool = False  # a ping, or an event with nothing in it: a provider that sends only these has stalled
    fingerprint: str | None = None  # of what answers, the provider's own (system_fingerprint)
    of_tool: bool = False  # the characters are of a tool's call or code, but of no tool of the client's
    sound: bool = False  # has sound: such an answer may end without a finish reason
    whole: bool = False  # ``tools`` has whole arguments, perhaps after their pieces in earlier events
    failed: bool = False  # the finish reason says that there is no answer, unless a part of an answer came before


_STRUCTURE = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
_JSON_ENDS = '}]"'
_BEFORE_VALUES = frozenset(":,[")
_SHORT = 16  # characters: null, true and most numbers
_anything = msgspec.json.Decoder(msgspec.Raw)


class Arguments(msgspec.Struct):
    """The arguments of one tool call in pieces, and whether they are whole JSON.

    Each character is looked at once, however often the question is asked.
    """

    pieces: list[str] = []
    _looked: int = 0  # pieces
    _chars: int = 0
    _carried: str = ""  # half an escape
    _depth: int = 0
    _in_text: bool = False
    _last: str = ""  # the last character that is not blank
    _is_closed: bool = False  # an object, an array or a text has ended
    _is_over: bool = False  # more followed, or this was no JSON: it never becomes an object
    _is_whole: bool = False

    def is_whole(self) -> bool:
        """Whether the data are JSON: an object, an array, a text, or a value of a few characters."""
        if self._looked < len(self.pieces):
            came = "".join(self.pieces[self._looked :])
            self._looked = len(self.pieces)
            if came.strip():
                self._look(self._carried + came)
        return self._is_whole

    def may_take_object(self) -> bool:
        """Whether an object may come next: only after a colon, a comma or a bracket would the whole be JSON."""
        self.is_whole()  # looks at all pieces
        return not self._in_text and self._last in _BEFORE_VALUES

    def _look(self, came: str) -> None:
        self._is_over = self._is_over or self._is_closed
        self._chars += len(came)
        marks = _STRUCTURE.findall(came)
        for mark in marks:
            if self._in_text:
                self._in_text = mark != '"'
            elif mark == '"':
                self._in_text = True
            elif mark in "{[":
                self._depth += 1
            elif mark in "}]":
                self._depth -= 1
        self._carried = "\\" if marks and marks[-1] == "\\" else ""
        is_outside = not (self._in_text or self._depth)
        self._last = came.rstrip()[-1]
        self._is_closed = is_outside and self._last in _JSON_ENDS
        may_be_whole = not self._is_over and (self._is_closed or (is_outside and self._chars <= _SHORT))
        self._is_whole = may_be_whole and is_json("".join(self.pieces))
        self._is_over = self._is_over or (self._is_closed and not self._is_whole)


_EMPTY_CHARS = 8  # of an empty object, with blanks


def replaces(before: Sequence[str], arguments: str) -> bool:
    """Whether ``arguments`` replace the arguments in pieces ``before``: a ``{}`` that was sent too early."""
    if not 0 < len(before) <= _EMPTY_CHARS or arguments.lstrip()[:1] != "{":  # no piece is empty
        return False
    if sum(map(len, before)) > _EMPTY_CHARS:
        return False
    return is_empty_object("".join(before))


def is_empty_object(text: str) -> bool:
    """Whether ``text`` is ``{}``."""
    return len(text) <= _EMPTY_CHARS and "".join(text.split()) == "{}"


class EarlyObject:
    """Keeps an empty object that a server sends with a call's name, until the arguments replace the object, or end."""

    def __init__(self) -> None:
        self.came = False
        self._kept = ""
        self._is_past = False

    @property
    def is_kept(self) -> bool:
        """Whether an empty object, or the beginning of one, is kept back."""
        return bool(self._kept.strip())

    def add(self, piece: str) -> str:
        """Add one more piece of the arguments; return what of the arguments may be sent on."""
        if self._is_past:
            return piece
        if piece.lstrip()[:1] == "{" and is_empty_object(self._kept):
            self._kept = ""
        self._kept += piece
        self.came = self.came or is_empty_object(self._kept)
        if len(self._kept) <= _EMPTY_CHARS and "{}".startswith("".join(self._kept.split())):
            return ""
        return self.end()

    def end(self) -> str:
        """Return the empty object if it is still kept: the call has ended."""
        kept, self._kept, self._is_past = self._kept, "", True
        return kept


def joined_arguments(pieces: Sequence[str]) -> str:
    """Return the arguments of a call from their pieces."""
    early = EarlyObject()
    return "".join(map(early.add, pieces)) + early.end()


def is_json(text: str) -> bool:
    """Whether ``text`` is JSON."""
    try:
        _anything.decode(text)
    except (msgspec.DecodeError, RecursionError):  # nested too deep for the parser
        return False
    return True


def fit(value: object, type_: Any) -> Any:
    """Return a decoded value as ``type_``; None if the value has another type."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return None


def fit_fields(value: object, struct: type[Any]) -> Any:
    """Return a decoded object as ``struct``; fields of another type become None, and so does what is no object."""
    if not isinstance(value, dict):
        return None
    fields = msgspec.structs.fields(struct)
    return struct(**{field.name: fit(value.get(field.name), field.type) for field in fields})


def untyped(data: bytes) -> dict[str, Any]:
    """Read an event that does not fit the types of its dialect.

    Raises:
        UpstreamError: the data are not a JSON object (invalid_response).

    """
    try:
        value = msgspec.json.decode(data)
    except UNREADABLE:
        raise no_json_object() from None
    if isinstance(value, list) and value:  # Google sends some errors in an array
        value = value[0]
    if not isinstance(value, dict):
        raise no_json_object()
    return value


# Finish reasons of a call that the vendor could not read, or that must not be made: Google's words, also after other
# words in its chat completions ("function_call_filter: MALFORMED_FUNCTION_CALL"), and OpenRouter's, beside "stop"
# (NousResearch/hermes-agent/issues/83886, Wei-Shaw/sub2api/issues/7098, googleapis/python-genai/issues/1836; read on
# 2026-11-29).
_UNREAD = re.compile(
    r"malformed_(?:function_call|tool|response)|unexpected_tool_call|too_many_tool_calls", re.IGNORECASE
)
_MISWRITTEN = re.compile(r"malformed_(?:function_call|tool)", re.IGNORECASE)  # of these: the model has begun a call


def is_unread(reason: object, native: object = None, *, after_text: bool = False) -> bool:
    """Whether an answer ended with an unreadable call, by its finish ``reason`` or the vendor's own reason, ``native``.

    If nothing came before, there is no answer. ``after_text``: a text came before, but no call. If the model had begun
    the unreadable call, the answer broke off. Another API has no word for that; its words for a good end would make an
    agent stop.
    """
    words = _MISWRITTEN if after_text else _UNREAD
    if isinstance(reason, str) and words.search(reason) is not None:
        return True
    return isinstance(native, str) and words.search(native) is not None


def ended_with(reason: str) -> UpstreamError:
    """Return the error, to be raised, of an answer whose finish reason says that there is no answer."""
    return UpstreamError(ErrorKind.STREAM_ERROR, f"the answer ended with {reason}")


def blocked(reason: str, answer: bytes = b"") -> UpstreamError:
    """Return the error, to be raised, of a prompt that a filter has blocked, as Google's ``answer`` says.

    Google's refusals with a status have the same words.
    """
    error = UpstreamError(
        ErrorKind.BAD_REQUEST,
        f"The prompt was blocked: {identifier(reason) or 'OTHER'}",
        status=HTTPStatus.BAD_REQUEST,
    )
    error.answer = answer
    return error


def failed_by(chunk: Chunk, event: bytes) -> UpstreamError:
    """Return the error of an answer that had nothing before this chunk, if the chunk says that there is no answer."""
    reason = chunk.finish_reason or ""
    return blocked(reason, event) if chunk.refused else ended_with(reason)


def no_json_object() -> UpstreamError:
    """Return the error, to be raised, of an event that is not a JSON object."""
    return UpstreamError(ErrorKind.INVALID_RESPONSE, "an event of the stream is not a JSON object")


def no_answer(body: bytes, what: str, secrets: Sequence[str]) -> UpstreamError:
    """Return the error of JSON that is no answer (``what`` was asked for): the provider's error, if there is one."""
    if complains(body):
        return error_in(body, secrets, otherwise=ErrorKind.SERVER_ERROR)
    return UpstreamError(ErrorKind.INVALID_RESPONSE, f"answered with JSON that is not {what}")


# The pattern of a stream's plain events: all plain events but the first are recognised without parsing. Nearly every
# event of a stream has the bytes of the event before, except for a few letters of text. Splitting a block where events
# meet finds all texts with one search. A check then proves that nothing else was between them.

_REST_OF_STRING = re.compile(rb'((?:[^"\\]|\\.)*)"')
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")
_FIRST_LINE_BYTES = 6  # of ``data: `` or ``event:``
_ONE_EVENT = re.compile(rb"(?:event:[^\r\n]+(\r?\n))?data: [^\r\n]+(\r?\n)\r?\n")  # of one line of data
_SIMPLE_TEXT = re.compile(rb"[ !#-\[\]-~]+")  # ASCII that JSON writes unescaped
_UNWRITTEN = re.compile(rb"[\x00-\x1f]|\\u[dD][89a-fA-F]")  # what JSON has to escape, and halves of characters
_texts = msgspec.json.Decoder(list[str])


class Run(msgspec.Struct, frozen=True, gc=False):
    """Adjacent plain events, from ``start`` to ``end`` of a block, and the text of each as written in JSON."""

    start: int
    end: int
    data: bytes | memoryview
    raw_texts: list[bytes]
    chars: int  # of text; an escape counts as the characters that write it

    @property
    def is_json(self) -> bool:
        """Whether each text can stand unchanged in any JSON: UTF-8, whole characters, nothing left unescaped."""
        together = b"".join(self.raw_texts)
        if _SIMPLE_TEXT.fullmatch(together):
            return True
        try:
            return _UNWRITTEN.search(together) is None and all(map(bytes.decode, self.raw_texts))
        except UnicodeDecodeError:
            return False

    def text(self) -> str:
        """Return the texts joined; ASCII without escapes, as most is, need not be read as JSON."""
        together = b"".join(self.raw_texts)
        if together.isascii() and BACKSLASH not in together:
            return together.decode()
        return "".join(self.texts())

    def texts(self) -> list[str]:
        """Return the texts. A half of a character becomes U+FFFD, as for readers of the events themselves."""
        try:
            return _decoded(self.raw_texts)
        except UnicodeDecodeError:
            return _decoded([raw.decode("utf-8", "replace").encode() for raw in self.raw_texts])


class Pattern(msgspec.Struct, frozen=True):
    """The bytes of an event before and after its text. Matching events differ from ``example`` in their text alone."""

    before: bytes
    after: bytes
    between: bytes  # the end of one event and the beginning of the next
    meeting: bytes  # the end of an event, the blank line, and the first bytes of the next
    example: Chunk

    def find(self, block: bytes, at: int = 0) -> Run | None:
        """Return the adjacent plain events of ``block`` from ``at`` on; None if not all of them are certainly plain."""
        before, after = self.before, self.after
        if len(block) - at < 2 * len(self.between):  # one event at most, the usual case in a slow stream
            if not (block.startswith(before, at) and block.endswith(after)):
                return None
            text = block[at + len(before) : -len(after)]
            chars = len(text) if _SIMPLE_TEXT.fullmatch(text) else _chars([text], text)
            return None if chars is None else Run(at, len(block), block[at:], [text], chars)
        start = block.find(before, at)
        end = block.rfind(after) + len(after)
        if start < 0 or end < start + len(before) or (start > at and not block.endswith(_BLANK_LINES, at, start)):
            return None
        meeting = self.meeting
        blank_bytes = len(meeting) - _FIRST_LINE_BYTES
        if not block.startswith(meeting[blank_bytes:], end):  # nothing follows, or no event
            block = block[:end]
        data = memoryview(block)[start:end]  # no copy: one of many events would cost as much as finding them
        # Split where events meet: Python skips quickly whatever has none of a mark's characters, and takes far longer
        # to find a long mark. The check that nothing else was between comes after.
        pieces = block.split(meeting)
        ahead = block.count(meeting, 0, start + _FIRST_LINE_BYTES)
        behind = block.count(meeting, end - blank_bytes)
        inside = itemgetter(slice(len(before) - _FIRST_LINE_BYTES, blank_bytes - len(after)))
        raw = [*map(inside, pieces[ahead : len(pieces) - behind])]
        if not ahead:
            raw[0] = raw[0][_FIRST_LINE_BYTES:]
        if not behind:
            raw[-1] = raw[-1][:-blank_bytes]
        again = self.between.join([b"", *raw, b""])  # begins with ``after`` and ends with ``before``
        if len(again) != len(data) + len(self.between) or not again.startswith(data, len(after)):
            return None
        chars = _chars(raw, b"".join(raw))
        return None if chars is None else Run(start, end, data, raw, chars)


def learned(raw: bytes, chunk: Chunk, opening: re.Pattern[bytes], *, named: bool = False) -> Pattern | None:
    """Return the pattern of an event that only adds text; None if the event has something else, or an unusual form.

    ``opening``: matches the bytes before the text: the field's name and the quote. ``named``: events have names.
    """
    if not chunk.answer or chunk.reasoning or chunk.finished or chunk.usage is not None or chunk.error is not None:
        return None
    found, form = opening.search(raw), _ONE_EVENT.fullmatch(raw)
    if found is None or form is None or form[1] not in (form[2] if named else None, None):
        return None
    text = _REST_OF_STRING.match(raw, found.end())
    if text is None:
        return None
    before, after = raw[: found.end()], raw[text.end() - 1 :]
    # If this text is not the whole text of the event, another field has the rest.
    whole = _chars([text[1]], text[1]) is not None and len(_decoded([text[1]])[0]) == chunk.text_chars
    return Pattern(before, after, after + before, 2 * form[2] + before[:_FIRST_LINE_BYTES], chunk) if whole else None


def _chars(raw: list[bytes], together: bytes) -> int | None:
    """Count the characters; None unless each text is the inside of a JSON string and not empty."""
    if LF in together or CR in together or not all(raw):
        return None
    if QUOTE in together or BACKSLASH in together:
        try:
            if len(_decoded(raw)) != len(raw):
                return None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
    return len(together) if together.isascii() else len(together.decode("utf-8", "replace"))


def _decoded(raw: list[bytes]) -> list[str]:
    return _texts.decode(b'["' + b'","'.join(raw) + b'"]')


# Gathers the events of a stream into one whole answer, for clients that did not ask for a stream.


class Gathering(Protocol):
    """Makes one whole answer of the events, as the dialect's API returns it."""

    single: bool = False  # one answer was asked for: all choices are that one, however the server numbers them

    def take(self, chunk: Chunk) -> None:
        """Add one event, which has data, and not ``[DONE]``.

        Raises:
            UpstreamError: the data are valid JSON, but no event of the dialect (invalid_response).

        """

    def take_run(self, run: Run, pattern: Pattern) -> bool:  # noqa: ARG002 - for those that override it
        """Add plain events at once; False: this is not possible, so read and ``take`` each event."""
        return False

    def body(self) -> bytes:
        """Return the whole answer as JSON."""


# How each field of a stream joins with the same field of earlier events: one table in each dialect.


class Join(Enum):
    """How the values of a field become one. A null never replaces a value, nor does an empty text."""

    LAST = "last"  # the last one has all
    TEXT = "text"  # pieces of one text
    BASE64 = "base64"  # each is a complete Base64 text: the bytes are joined
    LIST = "list"  # lists: each has the new entries
    SET = "set"  # lists whose entries may come again
    ENTRIES = "entries"  # objects, found again by ``index`` or ``id``; parts of an answer in order, each of a type
    BY_TYPE = "by type"  # a text is a piece of one, a list has what is new, an object joins field by field


class FieldTable(msgspec.Struct, frozen=True):
    """The rules of an object's fields. ``other``: the rule of all fields that have none."""

    fields: Mapping[str, "Join | FieldTable"]
    other: Join = Join.BY_TYPE


ENTRY = FieldTable({  # of a list, or any object within a delta
    **dict.fromkeys(("id", "index", "type", "format", "name", "object", "role"), Join.LAST),
    **dict.fromkeys(("closed", "data", "expires_at", "signature", "thought_signature"), Join.LAST),
    **dict.fromkeys(("reasoning_details", "summary", "thinking", "thinking_blocks"), Join.ENTRIES),
    **dict.fromkeys(("images", "token_ids"), Join.LIST),
})  # fmt: skip
TOKENS = FieldTable({}, Join.LIST)  # lists with one entry a token, as of log probabilities
_PLACES = ("index", "id")
TEXTS_OF_THOUGHTS = ("text", "thinking", "summary")


class Pieces:
    """A value in pieces, joined at the end: joining each piece with all earlier pieces would take ever longer."""

    __slots__ = ("is_base64", "texts")

    def __init__(self, texts: list[str], *, is_base64: bool = False) -> None:
        self.texts = texts
        self.is_base64 = is_base64

    def joined(self) -> str:
        """Return the whole value. Base64 that was cut anywhere, so that no piece is whole Base64, is one text."""
        if self.is_base64 and not any(len(text) % 4 for text in self.texts):
            with suppress(ValueError):
                return b64encode(b"".join(b64decode(text, validate=True) for text in self.texts)).decode()
        return "".join(self.texts)


def whole(value: Any) -> Any:
    """Return a joined value for JSON's encoder.

    Raises:
        TypeError: the value cannot be encoded.

    """
    if not isinstance(value, Pieces):
        raise TypeError
    return value.joined()


def join(target: dict[str, Any], name: str, value: Any, table: FieldTable) -> None:
    """Join a field of one more event with the field's earlier value in ``target``."""
    rule = table.fields.get(name, table.other)
    old = target.get(name)
    if rule is Join.LAST:
        if old is None or (value is not None and value != ""):
            target[name] = value
    elif isinstance(value, str) and isinstance(old, Pieces):
        old.texts.append(value)
    elif isinstance(value, str):
        target[name] = Pieces([old, value] if isinstance(old, str) else [value], is_base64=rule is Join.BASE64)
    elif isinstance(value, dict):
        inner = target[name] = old if isinstance(old, dict) else {}
        for key, each in value.items():
            join(inner, key, each, rule if isinstance(rule, FieldTable) else ENTRY)
    elif isinstance(value, list):
        entries = target[name] = old if isinstance(old, Entries) else Entries()
        _join_lists(entries, value, rule)
    elif value is not None or old is None:
        target[name] = value


class Entries(list[Any]):
    """A list whose entries come in pieces. An index finds the entry: a search would take ever longer."""

    __slots__ = ("_latest", "_said")

    def __init__(self, entries: Sequence[Any] = ()) -> None:
        super().__init__(entries)
        # The number of the latest entry, by what it has in one place and by its type (None: any type).
        self._latest: dict[tuple[str, Any, str | None], int] = {}
        self._said: set[bytes] = set()

    def find(self, piece: Mapping[str, Any]) -> int | None:
        """Return the number of the entry with the index or id of ``piece``; index, id and type must not contradict."""
        kind = _kind_of(piece)
        keys = [(*place, each) for place in _places_of(piece) for each in ((kind, "") if kind else (None,))]
        same = [*_places_of(piece), *([("type", kind)] if kind else [])]
        for number in sorted({self._latest[key] for key in keys if key in self._latest}, reverse=True):
            if all(self[number].get(name) in (None, "", value) for name, value in same):
                return number
        return None

    def note(self, number: int, piece: Mapping[str, Any]) -> None:
        """Note that entry ``number`` has the index and the id of ``piece``."""
        for place in _places_of(piece):
            for kind in (_kind_of(self[number]), None):
                self._latest[*place, kind] = max(number, self._latest.get((*place, kind), number))

    def add_new(self, more: Sequence[Any]) -> None:
        """Add new entries: where ``more`` repeats the known entries, what follows these; else those that differ."""
        said = len(self)
        goes_on = len(more) >= said and list(more[:said]) == self
        for each in more[said:] if goes_on else more:
            written = encoded(each)
            if goes_on or written not in self._said:
                self._said.add(written)
                self.append(each)


def _kind_of(entry: Mapping[str, Any]) -> str:
    kind = entry.get("type")
    return kind if isinstance(kind, str) else ""


def _places_of(piece: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, place) for name in _PLACES if isinstance(place := piece.get(name), int | str) and place != ""]


def _join_lists(entries: Entries, more: list[Any], rule: Join | FieldTable) -> None:
    if rule is Join.SET:
        entries.add_new(more)
    elif rule is Join.LIST:
        entries += more
    else:
        join_entries(entries, more, typed=rule is Join.ENTRIES)


def join_entries(entries: Entries, more: Sequence[Any], *, typed: bool = True) -> None:
    """Add entries of one more event: each to the entry with its index or id, otherwise at the end.

    ``typed``: a first entry without index and id continues the last entry, if both are pieces of a text or a thought of
    one type. A signature belongs to such a thought, and ends it.
    """
    for place, each in enumerate(more):
        if not isinstance(each, dict):
            entries.append(each)
            continue
        found = entries.find(each)
        if found is None and typed and entries and not (place and _grown(each)) and _continues(entries[-1], each):
            found = len(entries) - 1
        if found is None:
            entries.append({})
            found = len(entries) - 1
        for key, value in each.items():
            join(entries[found], key, value, ENTRY)
        entries.note(found, each)


def _continues(last: Any, piece: Mapping[str, Any]) -> bool:
    is_placed = bool(_places_of(piece))
    if is_placed or not isinstance(last, dict) or not piece.get("type") or piece["type"] != last.get("type"):
        return False
    growing = (*TEXTS_OF_THOUGHTS, "signature")
    grows = any(name in last for name in TEXTS_OF_THOUGHTS) and any(name in piece for name in growing)
    return grows and not last.get("signature")


def _grown(piece: Mapping[str, Any]) -> bool:
    return any(piece.get(name) for name in TEXTS_OF_THOUGHTS)


def index_of(choice: Mapping[str, Any]) -> int:
    """Return the number of a decoded choice; some servers write the number as text.

    Raises:
        ValueError, TypeError: this is no number.

    """
    return int(choice.get("index") or 0)
