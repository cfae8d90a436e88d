"""Shares live events with other workers and replicas through Redis, only while one of them has a viewer.

A process with a viewer has a member in a sorted set that expires, and subscribes to a channel. All others look for such
members once a second, and while there are any, publish the events of their calls a few times a second. This is done in
the background: no call waits for it, and events that Redis does not accept in time are dropped.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import structlog
from redis.exceptions import RedisError

from gateway.core.log import OutageCauses
from gateway.core.tasks import end_if_cancelled, pause
from gateway.live.events import (
    INSTALLATION,
    PROCESS,
    Began,
    CallDone,
    Ended,
    First,
    Gap,
    Launched,
    ProcessFilter,
    RunningCall,
    Tokens,
    Viewer,
    frame,
)
from gateway.live.hub import Hub, WatchedCall
from gateway.live.live import Live
from gateway.topology import Command, Nodes, raised, why

# The calls that other processes publish: validated, and turned into events of the hub. Other programs may write to the
# same Redis, and messages may be lost: impossible events are ignored and counted, and a process can only report its own
# calls. A call without further messages is shown as ended, with an unknown result.

MOST_CALLS = 20_000  # known at a time, with those of this process
MOST_ATTEMPTS = 64  # of one call
MOST_FOREIGN_PROCESSES = 1_000
MOST_CHARS = 2_000_000  # of one message; ours have a tenth of it
LONGEST_WORKER = 64  # characters
SILENT_S = 10.0  # a process that is silent for so long has ended, or cannot reach Redis


class ForeignCalls:
    """Receives events of other processes' calls. ``clock``: monotonic seconds. ``ignored`` counts invalid ones."""

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
                (CallDone, self._done),
                (Gap, self._missed),
            )
        }

    def take(self, message: str) -> None:
        """Read a message: its first line is the sending process; the rest are events in a viewer's format."""
        worker, _, events = message.partition("\n")
        if worker == self._worker:
            return
        is_new = worker not in self._heard_at
        if (
            not 0 < len(worker) <= LONGEST_WORKER
            or len(message) > MOST_CHARS
            or (is_new and len(self._heard_at) >= MOST_FOREIGN_PROCESSES)
        ):
            self._ignore(message)
            return
        self._heard_at[worker] = self._clock()
        for event in events.split("\n\n"):
            if event:
                self._read(worker, event)

    def forget_silent(self) -> None:
        """Drop the calls of processes that are silent."""
        now = self._clock()
        for worker in [worker for worker, at in self._heard_at.items() if now - at > SILENT_S]:
            del self._heard_at[worker]
            self._drop(worker, ())

    def clear(self) -> None:
        """Drop the calls of all other processes, whose events are not received any more."""
        for worker in self._heard_at:
            self._drop(worker, ())
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

    # Each passes one event to the hub, and returns whether it is valid.

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

    def _done(self, worker: str, event: CallDone) -> bool:
        if self._call(worker, event.id) is not None:
            self._hub.done(event)
        return True

    def _missed(self, worker: str, event: Gap) -> bool:
        self._drop(worker, event.running)
        if event.dropped:
            for viewer in self._hub.viewers:
                if isinstance(viewer.wanted, ProcessFilter):
                    continue  # else replicas would answer each other's gaps forever
                viewer.offer(frame(Gap(dropped=event.dropped, running=tuple(self._hub.running(viewer)))))
        return True

    def _began(self, worker: str, event: Began) -> bool:
        if event.worker != worker or len(self._hub) >= MOST_CALLS:
            return False
        if self._hub.call(event.id) is None:
            self._hub.began(event)
        return True

    def _found(self, worker: str, found: RunningCall) -> bool:
        """Add a call that began before this process had a viewer, with its state."""
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
        """Return a call of ``worker``; None if it is unknown, or another worker's."""
        call = self._hub.call(call_id)
        return call if call is not None and call.began.worker == worker else None

    def _drop(self, worker: str, running: Iterable[str]) -> None:
        """Drop the calls of a process that are not among ``running``: the events of their ends were lost."""
        still = frozenset(running)
        for call in self._hub.calls_of(worker):
            if call.began.id not in still:
                self._hub.lost(call)

    def _ignore(self, what: str) -> None:
        self.ignored += 1
        if self.ignored == 1:
            # Event live.redis_garbage: Another program publishes to the channel `holeshot:live:…` in Redis. It is
            # ignored.
            # Do: Give the gateway a Redis or an ACL of its own.
            structlog.get_logger().warning(
                "live.redis_garbage",
                ignored=what[:100],
                hint="another program publishes to holeshot:live there; invalid events are ignored and counted",
            )


POLL_S = 1.0  # between two looks for viewers of other processes
FLUSH_S = 0.15  # between two messages, while another process has viewers
TIMEOUT_S = 1.0
VIEWER_EXPIRY_S = 10  # until a process counts as without viewers, unless it renews its member
BEAT_S = 3.0  # the longest interval between two messages of a process that publishes
MOST_WAITING = 4_096  # events to be published
EVENTS_AT_ONCE = 256  # in one message: a millisecond or two of its readers' time
CALLS_AT_ONCE = 50  # running calls in one message
MOST_PROCESSES = 256  # processes with viewers
VIEWERS_KEY = "holeshot:live:viewers"
CHANNEL = "holeshot:live"
NEVER_S = float("-inf")
_AWAY = (RedisError, OSError, TimeoutError, ValueError, TypeError)  # the last two: invalid replies


class Sharing:
    """Publishes events to other processes and receives theirs, while there are viewers.

    ``start`` and ``close`` own the tasks. ``unix_clock`` must be roughly the same in all processes; ``clock`` is
    monotonic. Both are in seconds.
    """

    def __init__(
        self, nodes: Nodes, live: Live, *, clock: Callable[[], float], unix_clock: Callable[[], float]
    ) -> None:
        self.foreign = ForeignCalls(live.hub, worker=live.worker, clock=clock)
        self._nodes = nodes
        self._live = live
        self._clock = clock
        self._unix_clock = unix_clock
        # Channels are common to all databases of a Redis, but another database is another installation.
        self._channel = f"{CHANNEL}:{nodes.database}"
        self._publisher = _Publisher(live)
        self._listener = _Listener(nodes, self._channel, self.foreign, on_change=self._hurry)
        self._polled_at = self._published_at = NEVER_S
        self._problem: str | None = "Redis has not answered yet"
        self._causes = OutageCauses()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def publishes(self) -> bool:
        """Whether another process has viewers."""
        return self._publisher.is_on

    async def start(self) -> None:
        """Start to look for viewers of other processes."""
        self._live.on_viewers = self._viewers_changed
        self._task = asyncio.create_task(self._keep_in_step(), name="live.sharing")

    async def close(self) -> None:
        """Stop, and remove this process's member, so that others stop publishing at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._listener.stop()
        self._publisher.stop()
        with suppress(*_AWAY):
            async with asyncio.timeout(TIMEOUT_S):
                await self._run([("ZREM", VIEWERS_KEY, self._member)])
        await self._nodes.aclose()

    @property
    def _member(self) -> str:
        """This process's member in the set of viewers: new for each subscription, so that other processes notice it."""
        return f"{self._live.worker}:{self._listener.subscriptions}"

    def _hurry(self) -> None:
        self._polled_at = NEVER_S
        self._news.set()

    def _viewers_changed(self) -> None:
        if not self._live.viewers:
            self._listener.is_stale = True  # without viewers the hub has dropped the calls that the listener received
        self._hurry()

    async def _keep_in_step(self) -> None:
        while True:
            self._news.clear()
            try:
                await self._listener.tend(wanted=self._live.viewers > 0)
                if self._clock() - self._polled_at >= POLL_S:
                    await self._poll()
                await self._publish()
                self._succeeded()
            except _AWAY as error:
                self._failed(error)
            except Exception:  # noqa: BLE001 - a defect here must not end the sharing for good
                # Event live.sharing_failed: One exchange of live events failed. The next one follows.
                # Do: It is a bug: report it with the trace.
                structlog.get_logger().exception("live.sharing_failed")
                self._publisher.stop()
            problem = self._problem or self._listener.problem
            self._live.set_scope(INSTALLATION if problem is None else PROCESS, problem)
            self.foreign.forget_silent()
            end_if_cancelled()
            await pause(FLUSH_S if self._publisher.is_on else POLL_S, self._news)

    async def _poll(self) -> None:
        """Announce this process if it has viewers, and read which others have."""
        unix_s = self._unix_clock()
        commands: list[Command] = []
        if self._listener.is_subscribed:
            commands.append(("ZADD", VIEWERS_KEY, unix_s + VIEWER_EXPIRY_S, self._member))
            commands.append(("EXPIRE", VIEWERS_KEY, VIEWER_EXPIRY_S))
        commands.append(("ZREMRANGEBYSCORE", VIEWERS_KEY, "-inf", unix_s))
        until_s = unix_s + 2 * VIEWER_EXPIRY_S
        commands.append(("ZRANGEBYSCORE", VIEWERS_KEY, unix_s, until_s, "LIMIT", 0, MOST_PROCESSES))
        self._polled_at = self._clock()
        *_, looking = await self._run(commands)
        self._publisher.learn(frozenset(each for each in looking if not each.startswith(f"{self._live.worker}:")))

    async def _publish(self) -> None:
        """Publish the events since the last time, if another process has viewers."""
        if not self._publisher.is_on:
            return
        messages, now = self._publisher.take(), self._clock()
        if not messages and now - self._published_at < BEAT_S:
            return
        sender = f"{self._live.worker}\n".encode()
        await self._run([("PUBLISH", self._channel, sender + message) for message in messages or [b""]])
        self._published_at = now

    async def _run(self, commands: Sequence[Command]) -> Sequence[Any]:
        """Run commands on the shard of the viewers' set; in a Cluster, any node forwards a published message to all."""
        async with asyncio.timeout(2 * TIMEOUT_S):
            await self._nodes.find()
            return raised(await self._nodes.run(self._nodes.shard_of(VIEWERS_KEY), commands))

    def _succeeded(self) -> None:
        if self._problem is not None and self._polled_at > NEVER_S:
            self._problem = None
            self._causes.end()

    def _failed(self, error: BaseException) -> None:
        """Drop the waiting events: when Redis is back, others get the running calls again."""
        if self._causes.is_new(why(error)):
            # Event live.redis_away: Live streams show one process's calls only, as Redis does not answer.
            # Do: Make Redis reachable. Calls go on.
            structlog.get_logger().warning(
                "live.redis_away", error=why(error), effect="live streams have the calls of one process"
            )
        self._problem = f"Redis does not answer ({type(error).__name__})"
        self._polled_at = NEVER_S
        self._publisher.stop()
        self._listener.is_stale = True  # another node may have replaced the one that it is subscribed at


class _Publisher:
    """The events that this process has to publish, while another process has viewers."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._viewer: Viewer | None = None
        self._looking: frozenset[str] = frozenset()  # members of other processes with viewers
        self._is_new = False  # whether one of these members does not have the running calls yet

    @property
    def is_on(self) -> bool:
        return self._viewer is not None

    def learn(self, looking: frozenset[str]) -> None:
        """Set the members of other processes with viewers."""
        if not looking:
            self.stop()
            return
        if self._viewer is None:
            wanted = ProcessFilter(worker=self._live.worker)
            loop = asyncio.get_running_loop()
            self._viewer = Viewer(wanted, self._live.hub.running, loop=loop, most=MOST_WAITING)
            self._live.add(self._viewer)
        self._is_new |= not looking <= self._looking
        self._looking = looking

    def stop(self) -> None:
        if self._viewer is not None:
            self._live.remove(self._viewer)
        self._viewer, self._looking, self._is_new = None, frozenset(), False

    def take(self) -> list[bytes]:
        """Return the messages to publish."""
        if self._viewer is None:
            return []
        messages = _joined(self._viewer.take_events(), EVENTS_AT_ONCE)
        if self._is_new:
            self._is_new = False
            calls = self._live.hub.shown_to(self._viewer)
            messages.append(frame(Gap(dropped=0, running=tuple(call.began.id for call in calls))))
            messages += _joined([frame(call.running()) for call in calls], CALLS_AT_ONCE)
        return messages


class _Listener:
    """The subscription to other processes' events. ``on_change`` is called when a subscription begins."""

    def __init__(self, nodes: Nodes, channel: str, foreign: ForeignCalls, *, on_change: Callable[[], None]) -> None:
        self.subscriptions = 0
        self.is_subscribed = False
        self.is_stale = False  # whether received calls were dropped, and the process must subscribe again
        self.problem: str | None = None  # why the last try failed
        self._nodes = nodes
        self._channel = channel
        self._foreign = foreign
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None

    async def tend(self, *, wanted: bool) -> None:
        """Subscribe if that is ``wanted`` and not done yet; end the subscription if it is not wanted, or stale."""
        is_over = self._task is not None and self._task.done()
        if self._task is not None and (is_over or self.is_stale or not wanted):
            await self.stop()
        self.is_stale = False
        if wanted and self._task is None:
            self._task = asyncio.create_task(self._listen(), name="live.listener")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        self.is_subscribed = False
        self._foreign.clear()

    async def _listen(self) -> None:
        try:
            await self._nodes.find()
            async with self._nodes.pubsub(VIEWERS_KEY) as pubsub:
                await pubsub.subscribe(self._nodes.named(self._channel))
                while True:
                    message = await pubsub.get_message(timeout=POLL_S)
                    end_if_cancelled()
                    if message is None:
                        continue
                    if message["type"] == "subscribe":
                        self.is_subscribed, self.problem = True, None
                        self.subscriptions += 1
                        self._on_change()
                    elif message["type"] == "message":
                        self._foreign.take(message["data"])
                        await asyncio.sleep(0)  # other tasks first: there may be many messages
        except _AWAY as error:
            self.problem = f"Redis does not answer ({type(error).__name__})"
        finally:
            self.is_subscribed = False


def _joined(events: Sequence[bytes], at_once: int) -> list[bytes]:
    return [b"".join(events[at : at + at_once]) for at in range(0, len(events), at_once)]
