"""Tool calls between chat and Messages: chat may stream several at a time, Messages one after the other."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.errors import ErrorKind, UpstreamError


class Call:
    """One tool call, and the part of its arguments that has not been sent yet."""

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.unsaid: list[str] = []
        self._arguments: list[str] = []

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add a piece of the call from a chunk; the name arrives in one piece."""
        function = piece.get("function") or {}
        self.call_id = self.call_id or piece.get("id") or ""
        self.name = self.name or function.get("name") or ""
        if arguments := function.get("arguments"):
            if not isinstance(arguments, str):  # some servers send the object itself
                arguments = msgspec.json.encode(arguments).decode()
            self.unsaid.append(arguments)
            self._arguments.append(arguments)

    def take(self) -> str:
        """Return the arguments that have not been sent yet, and count them as sent."""
        unsaid = "".join(self.unsaid)
        self.unsaid.clear()
        return unsaid

    def is_whole(self) -> bool:
        """Whether the arguments are a complete JSON object. A call without any may still get some."""
        try:
            msgspec.json.decode("".join(self._arguments), type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError):
            return False
        return True


class Calls:
    """The tool calls of one answer, in the order of their beginnings. The first incomplete one is being sent."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._by_id: dict[str, int] = {}
        self._said = 0  # how many have been sent completely

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add a piece to the call with its index, else its id, else the last one.

        Raises:
            UpstreamError: that call has been sent completely (invalid_response).

        """
        index, call_id = piece.get("index"), piece.get("id")
        if not isinstance(index, int):
            index = self._by_id.get(call_id or "", len(self._calls) if call_id else max(len(self._calls) - 1, 0))
        if call_id:
            self._by_id.setdefault(call_id, index)
        call = self._calls.setdefault(index, Call())
        call.add(piece)
        if "".join(call.unsaid).strip() and call in list(self._calls.values())[: self._said]:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "continued a tool call that had ended")

    def check(self) -> None:
        """Check at the end that every call could be sent.

        Raises:
            UpstreamError: one has no name (invalid_response).

        """
        if any(not call.name for call in self._calls.values()):
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "called a tool without a name")

    def __len__(self) -> int:
        return len(self._calls)

    def current(self) -> tuple[int, Call] | None:
        """Return the number of the call to be sent now, and the call; None while it has no name."""
        calls = list(self._calls.values())
        if self._said < len(calls) and calls[self._said].name:
            return self._said, calls[self._said]
        return None

    def advance(self, *, finished: bool) -> bool:
        """Go on to the next call, if the current one is complete and a next one exists or will not come.

        ``finished``: the answer has ended, so every call counts as complete.
        """
        calls = list(self._calls.values())
        more = self._said + 1 < len(calls)
        if self._said < len(calls) and (finished or (more and calls[self._said].is_whole())):
            self._said += 1
            return True
        return False
