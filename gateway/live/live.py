"""Who looks at races as they happen: the viewers of one process, and what runs only while there is one."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.errors import ShuttingDown, TooManyViewers
from gateway.live.events import PROCESS, Hello, Scope, frame
from gateway.live.hub import Hub
from gateway.live.own_calls import OwnCalls
from gateway.live.viewer import Viewer, Wanted
from gateway.racing.attempt import Attempt
from gateway.racing.open_call import OpenCall
from gateway.racing.tasks import AttemptTasks

MOST_VIEWERS = 50  # in one process
MOST_OF_ONE = 10  # of one client: the others may look too
SAMPLE_S = 0.2  # between two looks at how many tokens running attempts have
RETRY_AFTER_S = 10


class Live:
    """The live view of a process. ``own`` is what recorders tell of calls: None as long as nobody looks.

    ``on_viewers`` is called when the first viewer comes and when the last one has gone, ``catch_up`` before running
    calls are looked at: it reports what has happened.
    """

    def __init__(
        self,
        tasks: AttemptTasks[Attempt, OpenCall],
        *,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        replica: str,
        worker: str,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        self.own: OwnCalls | None = None
        self.hub = Hub()  # empty while nobody looks
        self.replica = replica
        self.worker = worker
        self.scope = PROCESS
        self.on_viewers: Callable[[], None] = lambda: None
        self._tasks = tasks
        self._catch_up = catch_up
        self._clock = clock
        self._unix_clock = unix_clock
        self._viewers: set[Viewer] = set()  # of clients
        self._clients: Counter[str | None] = Counter()  # how many viewers each has
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    @property
    def viewers(self) -> int:
        """The number of clients that look."""
        return len(self._viewers)

    @contextmanager
    def watch(self, wanted: Wanted, client: str | None = None) -> Iterator[Viewer]:
        """Yield a viewer of ``client``; its first event tells which calls run.

        Raises:
            TooManyViewers: there are as many as may be, in all or of this client.
            ShuttingDown: the gateway is stopping.

        """
        if self._is_over:
            raise ShuttingDown("the gateway is stopping; retry")
        if len(self._viewers) >= MOST_VIEWERS:
            raise TooManyViewers(
                f"{MOST_VIEWERS} live streams are open at this worker; close one, or retry later",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        if self._clients[client] >= MOST_OF_ONE:
            raise TooManyViewers(
                f"you have {MOST_OF_ONE} live streams open at this worker; close one",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        viewer = Viewer(wanted, self.hub.running, loop=asyncio.get_running_loop())
        viewer.greet(self.add(viewer))
        self._viewers.add(viewer)
        self._clients[client] += 1
        if len(self._viewers) == 1:
            self.on_viewers()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            self.remove(viewer)
            if not self._viewers:
                self.on_viewers()

    def add(self, viewer: Viewer) -> bytes:
        """Show calls to ``viewer`` from now on; return its first event, with those that run."""
        if self.own is None:
            self._catch_up()
            self.own = OwnCalls(self.hub, self._tasks, clock=self._clock, replica=self.replica, worker=self.worker)
            self._timer = asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)
        running, left_out = self.hub.add(viewer)
        now_ms = int(self._unix_clock() * 1000)
        hello = Hello(
            scope=self.scope,
            replica=self.replica,
            worker=self.worker,
            now_ms=now_ms,
            running=running,
            left_out=left_out,
        )
        return frame(hello)

    def remove(self, viewer: Viewer) -> None:
        """Forget a viewer, and with the last one all calls."""
        viewer.forget()
        self.hub.remove(viewer)
        if not self.hub.viewers:
            self.own = None
            self.hub.clear()
            if self._timer is not None:
                self._timer.cancel()

    def set_scope(self, scope: str, reason: str | None) -> None:
        """Tell viewers whose races they see from now on, if that changes."""
        if scope != self.scope:
            self.scope = scope
            for viewer in self._viewers:
                viewer.offer(frame(Scope(scope=scope, reason=reason)))

    def end(self) -> None:
        """End all streams: the gateway is stopping. No new ones begin."""
        self._is_over = True
        for viewer in list(self._viewers):
            viewer.end()

    def _sample(self) -> None:
        if self.own is not None:
            self._timer = asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)
            self._catch_up()
            self.own.sample()
