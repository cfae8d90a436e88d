"""What a dead worker had not finished, found in its spool."""

from typing import TYPE_CHECKING

from gateway.ledger.entries import Audited, Entry, Finished, Lasting, Outage, Started
from gateway.ledger.lasting import LastingOutages
from gateway.ledger.rows import interrupted

if TYPE_CHECKING:
    from gateway.attempt_records import AttemptStart
    from gateway.calls import CallStart


class Unended:
    """Calls and outages without an end, and losers that were still watched when their gateway died.

    ``note`` must be called with every entry of a spool, in order. Only attempts launched together with their call are
    known before they end.
    """

    def __init__(self) -> None:
        self._calls: dict[str, Started] = {}
        self._watched: dict[str, dict[str, AttemptStart]] = {}  # by call, then by attempt
        self._of: dict[str, CallStart] = {}  # the calls of watched attempts
        self._lasting = LastingOutages()

    def note(self, entry: Entry) -> None:
        """Process the starts and ends in ``entry``."""
        if isinstance(entry, Started):
            self._calls[entry.call.id] = entry
        elif isinstance(entry, Finished):
            started = self._calls.pop(entry.call.id, None)
            if started is not None:
                self._of[entry.call.id] = started.call
                self._watched[entry.call.id] = {start.id: start for start in started.call.attempts}
                self._end(entry.call.id, [attempt.id for attempt in entry.call.attempts])
        elif isinstance(entry, Audited):
            self._end(entry.call_id, [attempt.id for attempt in entry.attempts])
        elif isinstance(entry, Outage):
            self._lasting.note(entry.outage)
        elif isinstance(entry, Lasting):
            self._lasting.see(entry)

    def outages(self) -> list[Outage]:
        """Return the outages without an end, which now have one: the last instant at which their gateway noted them."""
        return [Outage(outage) for outage in self._lasting.ended()]

    def calls(self) -> list[Started]:
        """Return the calls without an end."""
        return list(self._calls.values())

    def attempts(self) -> list[Audited]:
        """Return, as ``interrupted``, the attempts without an end whose call has one."""
        return [
            Audited(call_id, tuple(interrupted(start, self._of[call_id], audited=True) for start in starts.values()))
            for call_id, starts in self._watched.items()
        ]

    def _end(self, call_id: str, attempt_ids: list[str]) -> None:
        starts = self._watched.get(call_id)
        if starts is None:
            return
        for attempt_id in attempt_ids:
            starts.pop(attempt_id, None)
        if not starts:
            del self._watched[call_id], self._of[call_id]
