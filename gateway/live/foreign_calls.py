"""The calls of other processes, as they publish them: checked, and turned into events of the hub.

Others may write to the same Redis, and messages may be lost: what cannot be true is ignored and counted, and a process
may only tell of its own calls. Of calls that are lost from sight it is told that their end is not known.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import structlog

from gateway.live.events import Began, Done, Ended, First, Gap, Launched, RunningCall, Tokens, frame
from gateway.live.hub import Hub, WatchedCall
from gateway.live.viewer import OwnWanted

MOST_CALLS = 20_000  # known at a time, with those of this process
MOST_ATTEMPTS = 64  # of one call
MOST_PROCESSES = 1_000
MOST_CHARS = 2_000_000  # of one message; ours have a tenth of it
LONGEST_WORKER = 64  # characters
SILENT_S = 10.0  # a process that says nothing for so long has ended, or cannot reach Redis


class ForeignCalls:
    """What others say of their calls. ``clock``: monotonic seconds. ``ignored`` counts what cannot be true."""

    def __init__(self, hub: Hub, *, worker: str, clock: Callable[[], float]) -> None:
        self.ignored = 0
        self._hub = hub
        self._worker = worker  # this process
        self._clock = clock
        self._heard_at: dict[str, float] = {}  # by process
        self._kinds: Mapping[str, tuple[msgspec.json.Decoder[Any], Callable[[str, Any], bool]]] = {
            kind.kind: (msgspec.json.Decoder(kind), act)
            for kind, act in (
                (Began, self._began),
                (RunningCall, self._found),
                (Launched, self._launched),
                (First, self._first),
                (Tokens, self._counted),
                (Ended, self._ended),
                (Done, self._done),
                (Gap, self._missed),
            )
        }

    def take(self, message: str) -> None:
        """Take a message: the process that sends it in the first line, then events as a viewer is sent them."""
        worker, _, events = message.partition("\n")
        if worker == self._worker:
            return
        is_new = worker not in self._heard_at
        if (
            not 0 < len(worker) <= LONGEST_WORKER
            or len(message) > MOST_CHARS
            or (is_new and len(self._heard_at) >= MOST_PROCESSES)
        ):
            self._ignore(message)
            return
        self._heard_at[worker] = self._clock()
        for event in events.split("\n\n"):
            if event:
                self._read(worker, event)

    def forget_silent(self) -> None:
        """Give up the calls of processes that are not heard of any more."""
        now = self._clock()
        for worker in [worker for worker, at in self._heard_at.items() if now - at > SILENT_S]:
            del self._heard_at[worker]
            self._give_up(worker, ())

    def clear(self) -> None:
        """Give up the calls of all other processes: they are not listened to any more."""
        for worker in self._heard_at:
            self._give_up(worker, ())
        self._heard_at.clear()

    def _read(self, worker: str, text: str) -> None:
        head, _, data = text.partition("\ndata: ")
        known = self._kinds.get(head.removeprefix("event: "))
        if known is None:
            self._ignore(text)
            return
        decoder, act = known
        try:
            if not act(worker, decoder.decode(data)):
                self._ignore(text)
        except msgspec.MsgspecError:
            self._ignore(text)

    # Each tells the hub of one event, and returns whether that can be true.

    def _launched(self, worker: str, event: Launched) -> bool:
        call = self._call(worker, event.call)
        if call is None or self._hub.lane(event.attempt) is not None or event.attempt in call.lanes:
            return True
        if len(call.lanes) >= MOST_ATTEMPTS:
            return False
        self._hub.launched(event)
        return True

    def _first(self, worker: str, event: First) -> bool:
        if self._runs(worker, event.attempt, event.call):
            self._hub.first(event)
        return True

    def _counted(self, worker: str, event: Tokens) -> bool:
        self._hub.counted(each for each in event.v if self._runs(worker, each[0]))
        return True

    def _ended(self, worker: str, event: Ended) -> bool:
        if self._runs(worker, event.attempt, event.call):
            self._hub.ended(event)
        return True

    def _done(self, worker: str, event: Done) -> bool:
        if self._call(worker, event.id) is not None:
            self._hub.done(event)
        return True

    def _missed(self, worker: str, event: Gap) -> bool:
        self._give_up(worker, event.running)
        if event.dropped:
            for viewer in self._hub.viewers:
                if isinstance(viewer.wanted, OwnWanted):
                    continue  # what is published is of this process alone: replicas would answer each other for ever
                viewer.offer(frame(Gap(dropped=event.dropped, running=tuple(self._hub.running(viewer)))))
        return True

    def _began(self, worker: str, event: Began) -> bool:
        if event.worker != worker or len(self._hub) >= MOST_CALLS:
            return False
        if self._hub.call(event.id) is None:
            self._hub.began(event)
        return True

    def _found(self, worker: str, found: RunningCall) -> bool:
        """Add a call that had begun before this process began to look, with all that is known of it."""
        if self._hub.call(found.id) is not None:
            return True
        began = Began(**{name: getattr(found, name) for name in Began.__struct_fields__})
        if len(found.attempts) > MOST_ATTEMPTS or not self._began(worker, began):
            return False
        for each in found.attempts:
            if each.call != found.id or self._hub.lane(each.attempt) is not None:
                continue
            self._hub.launched(Launched(**{name: getattr(each, name) for name in Launched.__struct_fields__}))
            if each.ttft_ms is not None:
                self._hub.first(First(call=each.call, attempt=each.attempt, ttft_ms=each.ttft_ms))
            if each.outcome is not None:
                self._hub.ended(
                    Ended(
                        call=each.call,
                        attempt=each.attempt,
                        outcome=each.outcome,
                        ms=each.ms,
                        tokens=each.tokens,
                        error=each.error,
                    )
                )
            elif each.tokens is not None:
                self._hub.counted([(each.attempt, each.tokens)])
        return True

    def _runs(self, worker: str, attempt_id: str, call_id: str | None = None) -> bool:
        """Whether an attempt runs at ``worker``, for this call."""
        lane = self._hub.lane(attempt_id)
        began = None if lane is None else lane.call.began
        return began is not None and began.worker == worker and call_id in {None, began.id}

    def _call(self, worker: str, call_id: str) -> WatchedCall | None:
        """Return a call of ``worker``; None if it is not known, or somebody else's."""
        call = self._hub.call(call_id)
        return call if call is not None and call.began.worker == worker else None

    def _give_up(self, worker: str, running: Iterable[str]) -> None:
        """Give up the calls of a process that do not run any more, of whose end nothing was heard."""
        still = frozenset(running)
        for call in self._hub.calls_of(worker):
            if call.began.id not in still:
                self._hub.lost(call)

    def _ignore(self, what: str) -> None:
        self.ignored += 1
        if self.ignored == 1:
            structlog.get_logger().warning(
                "live.redis_garbage",
                ignored=what[:100],
                hint="another program publishes to holeshot:live there; invalid events are ignored and counted",
            )
