"""The calls known while there are viewers, and the viewers that each call is shown to."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from gateway.live.events import (
    Began,
    CallDone,
    Ended,
    First,
    Launched,
    RunningAttempt,
    RunningCall,
    Tokens,
    Viewer,
    frame,
)

MOST_SHOWN = 1_000  # running calls at the beginning of a stream, the newest; the others are never shown there


class Lane:
    """One attempt of a call."""

    __slots__ = ("call", "ended", "launched", "tokens", "ttft_ms")

    def __init__(self, call: "WatchedCall", launched: Launched) -> None:
        self.call = call
        self.launched = launched
        self.ttft_ms: float | None = None
        self.tokens: int | None = None
        self.ended: Ended | None = None

    def running(self) -> RunningAttempt:
        """Return the present state for ``hello``."""
        ended = self.ended
        return RunningAttempt(
            **msgspec.structs.asdict(self.launched),
            ttft_ms=self.ttft_ms,
            tokens=self.tokens if ended is None else ended.tokens,
            outcome=None if ended is None else ended.outcome,
            ms=None if ended is None else ended.ms,
            error=None if ended is None else ended.error,
        )

    def events(self) -> Iterator[Launched | First | Tokens | Ended]:
        """Yield the events that lead to its state."""
        launched = self.launched
        yield launched
        if self.ttft_ms is not None:
            yield First(call=launched.call, attempt=launched.attempt, ttft_ms=self.ttft_ms)
        if self.ended is not None:
            yield self.ended
        elif self.tokens is not None:
            yield Tokens(v=((launched.attempt, self.tokens),))


class WatchedCall:
    """A call, its lanes, and the viewers it is shown to."""

    __slots__ = ("began", "is_done", "lanes", "viewers")

    def __init__(self, began: Began) -> None:
        self.began = began
        self.lanes: dict[str, Lane] = {}
        self.viewers: list[Viewer] = []
        self.is_done = False  # whether the call has ended; an audited loser of it may still run

    @property
    def deployments(self) -> Sequence[str]:
        """The deployments of all its attempts."""
        return [lane.launched.deployment for lane in self.lanes.values()]

    def running(self) -> RunningCall:
        """Return the call's present state, for ``hello``."""
        began = msgspec.structs.asdict(self.began)
        return RunningCall(**began, attempts=tuple(lane.running() for lane in self.lanes.values()))


class Hub:
    """The calls of this process, and of other processes that share theirs. Every event updates its call.

    Viewers of the call are shown the event. Events of unknown calls and attempts are ignored: such a call began before
    there was a viewer, or exceeded a limit.
    """

    def __init__(self) -> None:
        self._calls: dict[str, WatchedCall] = {}  # in the order in which they began
        self._lanes: dict[str, Lane] = {}  # by attempt
        self._viewers: list[Viewer] = []

    def __len__(self) -> int:
        """Return the number of known calls."""
        return len(self._calls)

    @property
    def viewers(self) -> Collection[Viewer]:
        """All viewers."""
        return self._viewers

    def call(self, call_id: str) -> WatchedCall | None:
        """Return a known call."""
        return self._calls.get(call_id)

    def lane(self, attempt_id: str) -> Lane | None:
        """Return a known attempt."""
        return self._lanes.get(attempt_id)

    def calls_of(self, worker: str) -> list[WatchedCall]:
        """Return the calls of a process."""
        return [call for call in self._calls.values() if call.began.worker == worker]

    def add(self, viewer: Viewer) -> tuple[tuple[RunningCall, ...], int]:
        """Show calls to ``viewer`` from now on; return running ones, the newest last, and how many were left out."""
        self._viewers.append(viewer)
        wanted = [
            call
            for call in self._calls.values()
            if not call.is_done and viewer.wanted.admits(call.began, call.deployments)
        ]
        shown = wanted[-MOST_SHOWN:]
        for call in shown:
            call.viewers.append(viewer)
        return tuple(call.running() for call in shown), len(wanted) - len(shown)

    def remove(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        self._viewers.remove(viewer)
        for call in self._calls.values():
            if viewer in call.viewers:
                call.viewers.remove(viewer)

    def clear(self) -> None:
        """Forget all calls: there is no viewer."""
        for call in self._calls.values():
            call.lanes.clear()
        self._calls.clear()
        self._lanes.clear()

    def shown_to(self, viewer: Viewer) -> list[WatchedCall]:
        """Return the running calls that ``viewer`` sees."""
        return [call for call in self._calls.values() if viewer in call.viewers and not call.is_done]

    def running(self, viewer: Viewer) -> list[str]:
        """Return the ids of the running calls that ``viewer`` sees."""
        return [call.began.id for call in self.shown_to(viewer)]

    def began(self, event: Began) -> WatchedCall:
        """Add a call."""
        call = self._calls[event.id] = WatchedCall(event)
        shown = None
        for viewer in self._viewers:
            if viewer.wanted.admits(event, ()):
                shown = shown or frame(event)
                call.viewers.append(viewer)
                viewer.offer(shown)
        return call

    def launched(self, event: Launched) -> None:
        """Add an attempt."""
        call = self._calls.get(event.call)
        if call is None:
            return
        lane = Lane(call, event)
        self._lanes[event.attempt] = call.lanes[event.attempt] = lane
        self._show(call, event)
        for viewer in self._viewers:
            if viewer.wanted.deployment == event.deployment and viewer not in call.viewers and not call.is_done:
                self._show_late(call, viewer)

    def first(self, event: First) -> None:
        """Note a first token."""
        lane = self._lanes.get(event.attempt)
        if lane is not None:
            lane.ttft_ms = event.ttft_ms
            self._show(lane.call, event)

    def counted(self, counts: Iterable[tuple[str, int]]) -> None:
        """Note how many tokens attempts have."""
        changed: list[tuple[Lane, int]] = []
        for attempt_id, number in counts:
            lane = self._lanes.get(attempt_id)
            if lane is not None and lane.tokens != number and lane.ended is None:
                lane.tokens = number
                changed.append((lane, number))
        if not changed:
            return
        for viewer in self._viewers:
            seen = tuple((lane.launched.attempt, number) for lane, number in changed if viewer in lane.call.viewers)
            if seen:
                viewer.offer(frame(Tokens(v=seen)))

    def ended(self, event: Ended) -> None:
        """Note the end of an attempt."""
        lane = self._lanes.pop(event.attempt, None)
        if lane is not None:
            lane.ended = event
            self._show(lane.call, event)
            self._forget_if_over(lane.call)

    def done(self, event: CallDone) -> None:
        """Note the end of a call."""
        call = self._calls.get(event.id)
        if call is not None:
            call.is_done = True
            self._show(call, event)
            self._forget_if_over(call)

    def lost(self, call: WatchedCall) -> None:
        """Forget a call, and show viewers that it has ended with an unknown result."""
        if not call.is_done:
            self._show(call, CallDone(id=call.began.id))
        for attempt_id in call.lanes:
            self._lanes.pop(attempt_id, None)
        self._forget(call)

    def _show(self, call: WatchedCall, event: Launched | First | Ended | CallDone) -> None:
        if call.viewers:
            shown = frame(event)
            for viewer in call.viewers:
                viewer.offer(shown)

    def _show_late(self, call: WatchedCall, viewer: Viewer) -> None:
        """Show a call that ``viewer`` wants to see only now, with all that has happened."""
        if not viewer.wanted.admits(call.began, call.deployments):
            return
        call.viewers.append(viewer)
        viewer.offer(frame(call.began))
        for lane in call.lanes.values():
            for event in lane.events():
                viewer.offer(frame(event))

    def _forget_if_over(self, call: WatchedCall) -> None:
        if call.is_done and all(lane.ended is not None for lane in call.lanes.values()):
            self._forget(call)

    def _forget(self, call: WatchedCall) -> None:
        del self._calls[call.began.id]
        call.lanes.clear()  # breaks the cycle of a call and its lanes: only the garbage collector would free it
