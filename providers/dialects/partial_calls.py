"""Tool calls between chat, which may stream several at a time, and the dialects that stream one after the other."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.chat.deltas import CallNumbers, googles_in, string, written_arguments
from providers.dialects.events import Arguments, is_empty_object
from providers.dialects.wording import BLANK, arguments_object
from providers.refusals import ErrorKind, UpstreamError

_OBJECTS = frozenset({"{", '"', "n"})  # the first characters of an object, an object that is encoded twice, and null


class PartialCall:
    """One tool call, and the part of its arguments that has not been sent yet."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.is_custom = False  # the argument is a text: it may be whole at any time, or go on
        self.signature = ""  # Google's signature of the thoughts before the call
        self._unsaid: list[str] = []
        self._arguments = Arguments()
        self._begin = ""  # the first character of the arguments

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add a piece of the call from a chunk; the name arrives in one piece."""
        custom = piece.get("custom")
        self.is_custom = self.is_custom or isinstance(custom, dict)
        called = custom if isinstance(custom, dict) else piece.get("function")
        called = called if isinstance(called, dict) else {}
        self.call_id = self.call_id or string(piece.get("id"))
        self.name = self.name or string(called.get("name"))
        if "extra_content" in piece:
            self.signature = googles_in(piece)
        if arguments := written_arguments(called.get("input" if self.is_custom else "arguments")):
            self._unsaid.append(arguments)
            self._arguments.pieces.append(arguments)
            self._begin = self._begin or arguments.lstrip(BLANK)[:1]

    def take(self, *, finished: bool = True) -> str:
        """Return the arguments that have not been sent yet, and count them as sent.

        Arguments that do not begin as an object are kept until they are whole. ``null`` is sent as ``{}``, and an
        object that was encoded twice as the object: ``"{}"`` as ``{}``.
        """
        is_object = self.is_custom or self._begin in {"", "{"}
        if not (is_object or finished or self.is_whole()):
            return ""
        unsaid = "".join(self._unsaid)
        self._unsaid.clear()
        said = None if is_object or not unsaid.strip(BLANK) else arguments_object(unsaid)
        return unsaid if said is None else bytes(said).decode()

    def take_object(self) -> msgspec.Raw:
        """Return all arguments of a call that is whole, as an object.

        Raises:
            UpstreamError: the arguments are no JSON object (invalid_response).

        """
        arguments = arguments_object(self.take())
        if arguments is None:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "called a tool with arguments that are no JSON object")
        return arguments

    def has_none(self) -> bool:
        """Whether the call has no arguments: they are blank, ``null``, or one of both encoded as text."""
        return "".join(self._arguments.pieces).strip(BLANK + '"') in {"", "null"}

    def is_empty_object(self) -> bool:
        """Whether the arguments are an empty object."""
        return is_empty_object("".join(self._arguments.pieces))

    def is_whole(self) -> bool:
        """Whether the arguments are complete, so far as is known. Missing arguments may come, and a text may go on."""
        return not self.is_custom and self._arguments.is_whole() and self._begin in _OBJECTS


class PartialCalls:
    """The tool calls of one answer, in the order of their beginnings. The first incomplete one is being sent."""

    def __init__(self) -> None:
        self._calls: list[PartialCall] = []
        self._numbers = CallNumbers()
        self._said = 0  # number of calls that have been sent completely

    def add(self, piece: Mapping[str, Any], *, waits: bool) -> None:
        """Add a piece to its call, as ``CallNumbers`` finds it.

        ``waits``: kept pieces are only said at the end. Otherwise a call that grows behind a kept piece is not kept
        waiting.

        Raises:
            UpstreamError: that call has been sent completely (invalid_response).

        """
        number, each = self._numbers.say(piece)
        if not waits and self._numbers.is_behind(number):
            self.finish()
        self._add(number, each)

    def _add(self, number: int, piece: Mapping[str, Any]) -> None:
        if number == len(self._calls):
            self._calls.append(PartialCall())
        call = self._calls[number]
        call.add(piece)
        late = call.take().strip() if number < self._said else ""
        if late and not (is_empty_object(late) and call.is_empty_object()):  # else the piece repeats what was said
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "continued a tool call that had ended")

    def finish(self) -> None:
        """Add what was kept of the calls' arguments: the arguments have ended."""
        for number, piece in self._numbers.rest():
            self._add(number, piece)

    def check(self) -> None:
        """Check at the end that every call could be sent.

        Raises:
            UpstreamError: a call has no name (invalid_response).

        """
        if any(not call.name for call in self._calls):
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "called a tool without a name")

    def without_arguments(self) -> list[PartialCall]:
        """Return the calls that have no arguments."""
        return [call for call in self._calls if call.has_none()]

    def __len__(self) -> int:
        return len(self._calls)

    def has_rest(self) -> bool:
        """Whether there is a call that is not sent completely."""
        return self._said < len(self._calls)

    def are_cut(self) -> bool:
        """Whether the arguments of a call that is not sent completely are incomplete."""
        return not all(call.is_whole() for call in self._calls[self._said :])

    def current(self) -> tuple[int, PartialCall] | None:
        """Return the number of the call to be sent now, and the call; None while it has no name."""
        if self._said < len(self._calls) and self._calls[self._said].name:
            return self._said, self._calls[self._said]
        return None

    def advance(self, *, finished: bool) -> bool:
        """Go on to the next call, if the current one is complete and a next one exists or will not come.

        ``finished``: the answer has ended, so every call counts as complete.
        """
        calls, said = self._calls, self._said
        if said < len(calls) and (finished or (said + 1 < len(calls) and calls[said].is_whole())):
            self._said += 1
            return True
        return False
