"""The workers of one port, as they and their parent see each other: whose event loop stands still, and who accepts."""

import asyncio
import mmap
import os
import socket
from collections.abc import Callable, Sequence

import structlog

from gateway.connections.listener import Acceptor

BEAT_S = 0.5  # between two beats of a worker
STOPPED_S = 2.0  # without a beat: others accept its connections
REPLACED_S = 10.0  # without a beat: its parent kills it, and starts another one
LATELY_S = (
    60.0  # for so long it is said that a worker has stopped: alerts are looked for less often than it is replaced
)

_BYTES = 8


class Beats:
    """A counter and a process id for each worker, in memory that the parent shares with all of them.

    A count of 0 means that the worker does not accept connections yet.
    """

    def __init__(self, number: int) -> None:
        """Make them for ``number`` workers, before the first is forked."""
        self._cells = memoryview(mmap.mmap(-1, 2 * _BYTES * number)).cast("Q")

    def __len__(self) -> int:
        """Return the number of workers."""
        return len(self._cells) // 2

    def count(self, place: int) -> int:
        """Return how often the worker at ``place`` has beaten."""
        return self._cells[2 * place]

    def pid(self, place: int) -> int:
        """Return the worker's process id."""
        return self._cells[2 * place + 1]

    def clear(self, place: int) -> None:
        """Note that no worker is at ``place``."""
        self._cells[2 * place] = 0

    def beat(self, place: int) -> None:
        """Count a beat of this process, the worker at ``place``."""
        self._cells[2 * place + 1] = os.getpid()
        self._cells[2 * place] += 1


class Silence:
    """For how long each worker has not beaten, in seconds, as seen by one process that looks now and then.

    A process that was stopped itself must not blame the others, so the time between two looks counts as ``most_s``
    at most.
    """

    def __init__(self, beats: Beats, *, most_s: float) -> None:
        self._beats = beats
        self._most_s = most_s
        self._looked_at_s: float | None = None
        self._counts = [0] * len(beats)
        self.silent_s = [0.0] * len(beats)

    def look(self, now_s: float) -> None:
        """Look at all beats; ``now_s`` is the monotonic clock. A worker that has not begun to beat is not silent."""
        passed_s = 0.0 if self._looked_at_s is None else min(self._most_s, now_s - self._looked_at_s)
        self._looked_at_s = now_s
        for place, known in enumerate(self._counts):
            count = self._counts[place] = self._beats.count(place)
            self.silent_s[place] = self.silent_s[place] + passed_s if count and count == known else 0.0


class Peers:
    """A worker's view of the others: it beats, and accepts connections at the sockets of those that do not.

    So connections that wait for a worker that was stopped, hangs or has died are served by another one. When the worker
    is back, it accepts by itself again.
    """

    def __init__(
        self, beats: Beats, place: int, sockets: Sequence[socket.socket], *, clock: Callable[[], float]
    ) -> None:
        """``sockets`` are those of all places; one alone is shared by all workers. ``place`` is our own."""
        self._beats = beats
        self._place = place
        self._sockets = sockets
        self._clock = clock
        self._silence = Silence(beats, most_s=2 * BEAT_S)
        self._acceptors: dict[int, Acceptor] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stopped_at_s: dict[int, float] = {}  # by process id

    @property
    def stopped(self) -> list[int]:
        """The process ids of the other workers whose event loop stands still now."""
        silent_s = self._silence.silent_s
        return [self._beats.pid(place) for place in range(len(self._beats)) if silent_s[place] >= STOPPED_S]

    @property
    def stopped_lately(self) -> list[int]:
        """The process ids of those that stood still within the last minute."""
        now_s = self._clock()
        return [pid for pid, at_s in self._stopped_at_s.items() if now_s - at_s < LATELY_S]

    def start(self, take: Callable[[socket.socket, str], None], on_exhausted: Callable[[], None]) -> None:
        """Begin to beat, and to accept for others; ``take`` and ``on_exhausted`` are those of ``Acceptor``."""
        if len(self._sockets) > 1:
            self._acceptors = {
                place: Acceptor(sock, take, on_exhausted=on_exhausted)
                for place, sock in enumerate(self._sockets)
                if place != self._place
            }
        self._look()

    def stop_accepting(self) -> None:
        """Accept what waits at every socket, then close them. Beats go on until ``close``."""
        acceptors, self._acceptors = self._acceptors, {}
        for acceptor in acceptors.values():
            acceptor.stop()

    def close(self) -> None:
        """Stop beating."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._beats.beat(self._place)
        now_s = self._clock()
        self._silence.look(now_s)
        for place, acceptor in self._acceptors.items():
            if self._beats.count(place) and self._silence.silent_s[place] < STOPPED_S:
                acceptor.rest()
            else:
                acceptor.start()
        for pid in self.stopped:
            if pid not in self._stopped_at_s:
                # Event worker.stopped: The event loop of another worker (`stopped`) stands still: it has not run for
                # two seconds. This one accepts new connections in its place; the calls that it has are held up. After
                # ten seconds its parent replaces it.
                # Do: Find out what stops it: a debugger, a signal, a machine without CPU or memory. If it was none of
                # these it is a bug: report it with what the gateway was asked.
                structlog.get_logger().error("worker.stopped", stopped=pid)
            self._stopped_at_s[pid] = now_s
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._look)
