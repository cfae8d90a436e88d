"""The items of an output as they arrive: one follows the other; only calls stay open together until the end."""

from collections.abc import Callable, Mapping
from typing import Any

from providers.dialects.responses.output import Called, Item, Said, Thought
from providers.dialects.responses.telling import Telling
from providers.dialects.responses.thoughts import TRANSLATED
from providers.errors import ErrorKind, UpstreamError


class OpenItems:
    """Begins and ends items, and tells their events. ``stem`` is a part of all ids, set before the first item."""

    def __init__(
        self,
        telling: Telling,
        names: Mapping[str, str | tuple[str, str]],
        *,
        as_summary: bool,
        new_id: Callable[[], str],
    ) -> None:
        self.stem = ""
        self._telling = telling
        self._names = names
        self._as_summary = as_summary
        self._new_id = new_id
        self._count = 0  # items begun so far
        self._items: dict[int, Item] = {}  # complete items by their index in the output
        self._open: tuple[int, Said | Thought] | None = None
        self._calls: dict[Any, tuple[int, Called]] = {}  # open calls, by their index or id in chat
        self._nameless: dict[Any, list[tuple[str, str]]] = {}  # ids and arguments of calls without a name so far

    @property
    def output(self) -> list[Item]:
        """The complete items, in the order in which they were begun."""
        return [self._items[number] for number in sorted(self._items)]

    def thinking(self) -> Thought:
        """Return the thought that is open; one is begun if none is."""
        if self._open is not None and isinstance(self._open[1], Thought):
            return self._open[1]
        self._close_open("completed")
        number, item_id = self._next(TRANSLATED)
        thought = Thought(self._telling, item_id, number, as_summary=self._as_summary)
        self._open = number, thought
        return thought

    def saying(self) -> Said:
        """Return the message that is open; one is begun if none is."""
        if self._open is not None and isinstance(self._open[1], Said):
            return self._open[1]
        self._close_open("completed")
        number, item_id = self._next("msg")
        said = Said(self._telling, item_id, number)
        self._open = number, said
        return said

    def call(self, call: dict[str, Any]) -> None:
        """Add a piece of a tool call, as a delta of chat has it."""
        is_custom = isinstance(call.get("custom"), dict)
        inner = call.get("custom" if is_custom else "function")
        inner = inner if isinstance(inner, dict) else {}
        index, call_id, name = call.get("index"), string(call.get("id")), string(inner.get("name"))
        piece = string(inner.get("input" if is_custom else "arguments"))
        key = index if isinstance(index, int) else call_id or next(reversed(self._calls | self._nameless), 0)
        if key not in self._calls:
            self._nameless.setdefault(key, []).append((call_id, piece))
            if not name:
                return
            before = self._nameless.pop(key)
            self._close_open("completed")
            number, item_id = self._next("ctc" if is_custom else "fc")
            call_id = next((one for one, _ in before if one), "") or f"call_{self._new_id()}"
            begun = Called(
                self._telling, item_id, number, call_id=call_id, name=self._names.get(name, name), is_custom=is_custom
            )
            self._calls[key] = number, begun
            piece = "".join(said for _, said in before)
        if piece:
            self._calls[key][1].add(piece)

    def close_all(self, status: str) -> None:
        """End all open items. The last one ends with ``status``; calls before it are complete.

        Raises:
            UpstreamError: a call never had a name (invalid_response).

        """
        if self._nameless:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "called a tool without a name")
        self._close_open(status)
        last = self._count - 1
        for number, call in self._calls.values():
            self._items[number] = call.close(status if number == last else "completed")
        self._calls.clear()

    def _next(self, prefix: str) -> tuple[int, str]:
        number = self._count
        self._count += 1
        return number, f"{prefix}_{self.stem}_{number}"

    def _close_open(self, status: str) -> None:
        if self._open is not None:
            number, item = self._open
            self._open = None
            self._items[number] = item.close(status)


def string(value: Any) -> str:
    """Return ``value`` if it is text, otherwise none."""
    return value if isinstance(value, str) else ""
