"""One event of a stream as all dialects read it."""

import re
from collections.abc import Sequence, Sized
from operator import itemgetter
from typing import Protocol, TypeVar

import msgspec

from providers.errors import ErrorKind, UpstreamError
from providers.sse import BACKSLASH, CR, LF, QUOTE
from providers.usage import Usage

DONE = b"[DONE]"  # the data of the last event of OpenAI's streams
# In place of a tool call's place:
WHOLE_CALL = -1  # this is a call of its own
SAME_CALL = -2  # this belongs to the same call as the piece before it


MOST_OF_ANSWER = 2048  # choices of an answer, tool calls of one, parts of an event; as many prompts fit in a batch


_Items = TypeVar("_Items", bound=Sized)


def few(items: _Items, what: str) -> _Items:
    """Return ``items`` if there are at most ``MOST_OF_ANSWER``: each takes the event loop some time.

    Raises:
        UpstreamError: there are more (invalid_response).

    """
    if len(items) > MOST_OF_ANSWER:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"the answer has more than {MOST_OF_ANSWER} {what}")
    return items


class Chunk(msgspec.Struct, frozen=True):
    """One event. ``data`` are the provider's own bytes; the other fields are the facts that the race needs."""

    data: bytes
    meaningful: bool = False  # has non-empty content, reasoning, a tool call, a refusal, audio or an image
    answer: bool = False  # has something meaningful besides reasoning
    reasoning: bool = False  # has reasoning text
    finished: bool = False  # a choice has its finish reason
    done: bool = False  # it ends the answer: [DONE], or the dialect's counterpart
    usage: Usage | None = None
    usage_only: bool = False  # has usage and no choices: sent because usage was requested
    error: UpstreamError | None = None
    text_chars: int = 0  # generated characters, of reasoning and tool calls too, for an estimate of tokens
    model: str | None = None  # the model that answers, by the provider's own name
    id: str | None = None  # the answer's id at the provider
    finish_reason: str | None = None
    tools: Sequence[tuple[int | str, str]] = ()  # pieces of tool calls' arguments, by the call's place or its id
    names: Sequence[str] = ()  # of tools whose calls begin with this event
    refused: bool = False  # it is a piece of a refusal
    idle: bool = False  # a ping, or an event with nothing in it: a provider that sends only these has stalled
    fingerprint: str | None = None  # of what answers, the provider's own (system_fingerprint)
    of_tool: bool = False  # its characters are of a tool's call or code, though it has no ``tools`` of the client's


_STRUCTURE = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
_JSON_ENDS = '}]"'
_SHORT = 16  # characters: null, true and most numbers
_anything = msgspec.json.Decoder(msgspec.Raw)


class Arguments(msgspec.Struct):
    """The arguments of one tool call in pieces, and whether they are whole JSON.

    Each character is looked at once, however often that is asked.
    """

    pieces: list[str] = []
    _looked: int = 0  # pieces
    _chars: int = 0
    _carried: str = ""  # half an escape
    _depth: int = 0
    _in_text: bool = False
    _is_closed: bool = False  # an object, an array or a text has ended
    _is_over: bool = False  # and more came behind it, or it was no JSON: it never will be
    _is_whole: bool = False

    def is_whole(self) -> bool:
        """Whether they are JSON: an object, an array, a text, or a value of a few characters."""
        if self._looked < len(self.pieces):
            came = "".join(self.pieces[self._looked :])
            self._looked = len(self.pieces)
            if came.strip():
                self._look(self._carried + came)
        return self._is_whole

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
        self._is_closed = is_outside and came.rstrip()[-1] in _JSON_ENDS
        may_be_whole = not self._is_over and (self._is_closed or (is_outside and self._chars <= _SHORT))
        self._is_whole = may_be_whole and is_json("".join(self.pieces))
        self._is_over = self._is_over or (self._is_closed and not self._is_whole)


def is_json(text: str) -> bool:
    """Whether ``text`` is JSON."""
    try:
        _anything.decode(text)
    except (msgspec.DecodeError, RecursionError):  # nested too deep for the parser
        return False
    return True


def no_json_object() -> UpstreamError:
    """Return the error of an event that is not a JSON object, to be raised."""
    return UpstreamError(ErrorKind.INVALID_RESPONSE, "an event of the stream is not a JSON object")


# The pattern of a stream's plain events, by which all but the first are recognised without parsing them. Nearly every
# event of a stream has the same bytes as the one before it, except for a few letters of text. Splitting a block at
# the bytes between two texts finds all texts with one search; then it is proved that nothing else was there.

_MARK_BYTES = len(b'"content":"')  # before the texts of chat's events
_REST_OF_STRING = re.compile(rb'((?:[^"\\]|\\.)*)"')
_START = b"data: "
_END = b"\n\n"
_SIMPLE_TEXT = re.compile(rb"[ !#-\[\]-~]+")  # ASCII that JSON writes as it is
_texts = msgspec.json.Decoder(list[str])


class Run(msgspec.Struct, frozen=True, gc=False):
    """Adjacent plain events, from ``start`` to ``end`` of a block, and the text of each as JSON writes it."""

    start: int
    end: int
    data: bytes
    raw_texts: list[bytes]
    chars: int  # of text; escapes count as they are written

    def texts(self) -> list[str]:
        """Return the texts. A half of a character becomes U+FFFD, as for readers of the events themselves."""
        try:
            return _decoded(self.raw_texts)
        except UnicodeDecodeError:
            return _decoded([raw.decode("utf-8", "replace").encode() for raw in self.raw_texts])


class Pattern(msgspec.Struct, frozen=True):
    """The bytes of an event before and after its text. Events that fit differ from ``example`` in their text only."""

    before: bytes
    after: bytes
    between: bytes  # the end of one event and the beginning of the next
    example: Chunk

    def find(self, block: bytes, at: int = 0) -> Run | None:
        """Return the adjacent plain events of ``block`` from ``at`` on; None where that cannot be proved."""
        before, after = self.before, self.after
        if len(block) - at < 2 * len(self.between):  # one event at most, the usual case in a slow stream
            if not (block.startswith(before, at) and block.endswith(after)):
                return None
            text = block[at + len(before) : -len(after)]
            chars = len(text) if _SIMPLE_TEXT.fullmatch(text) else _chars([text], text)
            return None if chars is None else Run(at, len(block), block[at:], [text], chars)
        start = block.find(before, at)
        end = block.rfind(after) + len(after)
        if start < 0 or end < start + len(before) or (start > at and not block.endswith(_END, at, start)):
            return None
        data = block[start:end]
        # Split at a short mark: Python takes far longer to find a long one. Then check that nothing else was between.
        _, *pieces = data.split(before[-_MARK_BYTES:])
        last = pieces.pop()[: -len(after)]
        raw = [*map(itemgetter(slice(_MARK_BYTES - len(self.between))), pieces), last]
        again = self.between.join([b"", *raw, b""])  # begins with ``after`` and ends with ``before``
        if len(again) != len(data) + len(self.between) or not again.startswith(data, len(after)):
            return None
        chars = _chars(raw, b"".join(raw))
        return None if chars is None else Run(start, end, data, raw, chars)


def learned(raw: bytes, chunk: Chunk, opening: re.Pattern[bytes]) -> Pattern | None:
    """Return the pattern of an event that only adds text; None if it has anything else, or an unusual form.

    ``opening`` matches the bytes before the text: the field's name and the quote.
    """
    if not chunk.answer or chunk.reasoning or chunk.finished or chunk.usage is not None or chunk.error is not None:
        return None
    found = opening.search(raw)
    if found is None or not raw.startswith(_START) or raw.find(b"\n") != len(raw) - len(_END) or CR in raw:
        return None
    text = _REST_OF_STRING.match(raw, found.end())
    if text is None:
        return None
    before, after = raw[: found.end()], raw[text.end() - 1 :]
    # If this is not all text of the event, another field has the rest.
    whole = _chars([text[1]], text[1]) is not None and len(_decoded([text[1]])[0]) == chunk.text_chars
    return Pattern(before, after, after + before, chunk) if whole else None


def _chars(raw: list[bytes], together: bytes) -> int | None:
    """Count the characters; None unless each text is the inside of a JSON string and not empty."""
    if LF in together or CR in together or b"" in raw:
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


# Gathering the events of a stream into one whole answer, for clients that did not ask for a stream.


class Gathering(Protocol):
    """Makes one whole answer of its events, as the dialect's API returns it."""

    def take(self, chunk: Chunk) -> None:
        """Add one event. It has data, which is not ``[DONE]``.

        Raises:
            UpstreamError: it is valid JSON, but not an event of the dialect (invalid_response).

        """

    def take_run(self, run: Run, pattern: Pattern) -> bool:  # noqa: ARG002 - for those that override it
        """Add plain events at once; False: not possible, read each and ``take`` it."""
        return False

    def body(self) -> bytes:
        """Return the whole answer as JSON."""
