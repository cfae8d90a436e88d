"""Shares what runs with the other workers and replicas, through Redis, only while somebody looks at one of them.

A process at which somebody looks has a member in a sorted set that expires, and subscribes to a channel. All others
look for such members once a second, and publish what happens to their calls while there are any, a few times a second.
All of that is done in the background: no call waits for it, and what Redis does not take in time is dropped.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.live.events import INSTALLATION, PROCESS, Gap, frame
from gateway.live.foreign_calls import ForeignCalls
from gateway.live.live import Live
from gateway.live.viewer import OwnWanted, Viewer

POLL_S = 1.0  # between two looks for viewers elsewhere
FLUSH_S = 0.15  # between two messages, while there are any
TIMEOUT_S = 1.0
VIEWER_EXPIRY_S = 10  # of a process at which somebody looks, unless it says again that somebody does
BEAT_S = 3.0  # a process that publishes says at least so often that it is there
MOST_WAITING = 4_096  # events to be published
EVENTS_AT_ONCE = 256  # in one message: a millisecond or two of its readers' time
CALLS_AT_ONCE = 50  # running ones, in one message
MOST_PROCESSES = 256  # at which somebody looks
VIEWERS_KEY = "holeshot:live:viewers"
CHANNEL = "holeshot:live"
NEVER_S = float("-inf")
_AWAY = (RedisError, OSError, TimeoutError, ValueError, TypeError)  # the last two: invalid replies


class Sharing:
    """Publishes to others and listens to them, as long as somebody looks. ``start`` and ``close`` own its tasks.

    ``unix_clock`` must be roughly the same in all processes; ``clock`` is monotonic. Both in seconds.
    """

    def __init__(
        self, redis: Redis, live: Live, *, clock: Callable[[], float], unix_clock: Callable[[], float]
    ) -> None:
        self.foreign = ForeignCalls(live.hub, worker=live.worker, clock=clock)
        self._redis = redis
        self._live = live
        self._clock = clock
        self._unix_clock = unix_clock
        # Channels are common to all databases of a Redis, but another database is another installation.
        self._channel = f"{CHANNEL}:{redis.connection_pool.connection_kwargs.get('db') or 0}"
        self._publisher = _Publisher(live)
        self._listener = _Listener(redis, self._channel, self.foreign, on_change=self._hurry)
        self._polled_at = self._published_at = NEVER_S
        self._problem: str | None = "Redis has not answered yet"
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_open = True

    @property
    def publishes(self) -> bool:
        """Whether somebody looks elsewhere."""
        return self._publisher.is_on

    async def start(self) -> None:
        """Start to look for viewers elsewhere."""
        self._live.on_viewers = self._viewers_changed
        self._task = asyncio.create_task(self._keep_in_step(), name="live.sharing")

    async def close(self) -> None:
        """Stop, and have others forget at once that somebody looks here."""
        self._is_open = False
        self._news.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._listener.stop()
        self._publisher.stop()
        with suppress(*_AWAY):
            async with asyncio.timeout(TIMEOUT_S):
                await self._redis.zrem(VIEWERS_KEY, self._member)
        with suppress(*_AWAY):
            await self._redis.aclose()

    @property
    def _member(self) -> str:
        """The name under which this process looks: another one for each subscription, so that others see it is new."""
        return f"{self._live.worker}:{self._listener.subscriptions}"

    def _hurry(self) -> None:
        self._polled_at = NEVER_S
        self._news.set()

    def _viewers_changed(self) -> None:
        if not self._live.viewers:
            self._listener.is_stale = True  # the calls that it has told of were forgotten
        self._hurry()

    async def _keep_in_step(self) -> None:
        while self._is_open:  # redis-py can lose a cancellation before Python 3.12
            self._news.clear()
            try:
                await self._listener.tend(wanted=self._live.viewers > 0)
                if self._clock() - self._polled_at >= POLL_S:
                    await self._poll()
                await self._publish()
                self._succeeded()
            except _AWAY as error:
                self._failed(error)
            except Exception:  # noqa: BLE001 - a defect here must not end for good what others see
                structlog.get_logger().exception("live.sharing_failed")
                self._publisher.stop()
            problem = self._problem or self._listener.problem
            self._live.set_scope(INSTALLATION if problem is None else PROCESS, problem)
            self.foreign.forget_silent()
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S if self._publisher.is_on else POLL_S):
                    await self._news.wait()

    async def _poll(self) -> None:
        """Say that somebody looks here, if that is so, and learn who looks elsewhere."""
        unix_s = self._unix_clock()
        pipeline = self._redis.pipeline(transaction=False)
        if self._listener.is_subscribed:
            pipeline.zadd(VIEWERS_KEY, {self._member: unix_s + VIEWER_EXPIRY_S})
            pipeline.expire(VIEWERS_KEY, VIEWER_EXPIRY_S)
        pipeline.zremrangebyscore(VIEWERS_KEY, "-inf", unix_s)
        pipeline.zrangebyscore(VIEWERS_KEY, unix_s, unix_s + 2 * VIEWER_EXPIRY_S, start=0, num=MOST_PROCESSES)
        self._polled_at = self._clock()
        async with asyncio.timeout(2 * TIMEOUT_S):
            *_, looking = await pipeline.execute()
        self._publisher.learn(frozenset(each for each in looking if not each.startswith(f"{self._live.worker}:")))

    async def _publish(self) -> None:
        """Publish what has happened since the last time, if somebody looks elsewhere."""
        if not self._publisher.is_on:
            return
        messages, now = self._publisher.take(), self._clock()
        if not messages and now - self._published_at < BEAT_S:
            return
        pipeline = self._redis.pipeline(transaction=False)
        sender = f"{self._live.worker}\n".encode()
        for message in messages or [b""]:
            pipeline.publish(self._channel, sender + message)
        async with asyncio.timeout(2 * TIMEOUT_S):
            await pipeline.execute()
        self._published_at = now

    def _succeeded(self) -> None:
        if self._problem is not None and self._polled_at > NEVER_S:
            self._problem = None

    def _failed(self, error: BaseException) -> None:
        """Keep nothing for a Redis that is away: when it is back, others are told again what runs."""
        if self._problem is None:
            structlog.get_logger().warning(
                "live.redis_away", error=type(error).__name__, effect="live streams have the calls of one process"
            )
        self._problem = f"Redis does not answer ({type(error).__name__})"
        self._polled_at = NEVER_S
        self._publisher.stop()


class _Publisher:
    """The events of this process that are to be published, as long as somebody looks elsewhere."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._viewer: Viewer | None = None
        self._looking: frozenset[str] = frozenset()  # elsewhere
        self._is_new = False  # somebody there does not know yet what runs

    @property
    def is_on(self) -> bool:
        return self._viewer is not None

    def learn(self, looking: frozenset[str]) -> None:
        """Learn who looks elsewhere."""
        if not looking:
            self.stop()
            return
        if self._viewer is None:
            wanted = OwnWanted(worker=self._live.worker)
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
        """Return the messages to be published."""
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
    """The subscription to what others publish. ``on_change`` is called when it begins, and when it has failed."""

    def __init__(self, redis: Redis, channel: str, foreign: ForeignCalls, *, on_change: Callable[[], None]) -> None:
        self.subscriptions = 0
        self.is_subscribed = False
        self.is_stale = False  # what it has told of was forgotten: it must begin again
        self.problem: str | None = None  # since it was last tried
        self._redis = redis
        self._channel = channel
        self._foreign = foreign
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None

    async def tend(self, *, wanted: bool) -> None:
        """Subscribe if that is wanted and not so, or end the subscription."""
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
        me = self._task
        try:
            async with self._redis.pubsub() as pubsub:
                await pubsub.subscribe(self._channel)
                while self._task is me:  # redis-py can lose a cancellation before Python 3.12
                    message = await pubsub.get_message(timeout=POLL_S)
                    if message is None:
                        continue
                    if message["type"] == "subscribe":
                        self.is_subscribed, self.problem = True, None
                        self.subscriptions += 1
                        self._on_change()
                    elif message["type"] == "message":
                        self._foreign.take(message["data"])
                        await asyncio.sleep(0)  # others first: there may be many messages
        except _AWAY as error:
            self.problem = f"Redis does not answer ({type(error).__name__})"
        finally:
            self.is_subscribed = False


def _joined(events: Sequence[bytes], at_once: int) -> list[bytes]:
    return [b"".join(events[at : at + at_once]) for at in range(0, len(events), at_once)]
