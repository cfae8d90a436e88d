"""The board that replicas share: counts go to Redis in batches and come back as a snapshot, always in the background.

One hash per model and slot, ``holeshot:{model}:<slot number>``: a single hash tag, so that all keys of a model lie on
one node of a cluster. While Redis is away this replica steers by what it knows, keeps what it counts, and merges it
later.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import uuid4

import msgspec
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.steering.board import Slots, slot_of
from gateway.steering.constants import (
    FLUSH_S,
    KEY_EXPIRY_S,
    LATE_MERGE_S,
    REDIS_TIMEOUT_S,
    SLOT_S,
    SLOTS_KEPT,
)
from gateway.steering.tally import Counts

_log = structlog.get_logger(__name__)

# Applies a batch unless its id is known: KEYS are the id and the slots, ARGV the expiry and, for each slot, the number
# of its fields followed by fields and amounts. HINCRBYFLOAT adds whole numbers exactly, and unlike HINCRBY never stops
# half way because a field holds a fraction.
APPLY = """
if not redis.call('SET', KEYS[1], '1', 'NX', 'EX', ARGV[1]) then
  return 0
end
local at = 2
for slot = 2, #KEYS do
  local fields = tonumber(ARGV[at])
  at = at + 1
  for _ = 1, fields do
    redis.call('HINCRBYFLOAT', KEYS[slot], ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  redis.call('EXPIRE', KEYS[slot], ARGV[1])
end
return 1
"""


class _Batch(msgspec.Struct, frozen=True):
    """Counts on their way. They keep their id until Redis has confirmed them, so a repeated batch counts once."""

    id: str
    slots: Slots


class _Model:
    """One model as this replica knows it: what Redis has, plus what Redis has not confirmed yet."""

    __slots__ = ("asked_at_s", "pending", "read_all_at_s", "sealed", "shared", "version")

    def __init__(self) -> None:
        self.shared = Slots()
        self.pending = Slots()
        self.sealed: _Batch | None = None
        self.asked_at_s = 0.0
        self.read_all_at_s: float | None = None
        self.version = 0


class RedisBoard:
    """A board shared through Redis (or Valkey).

    ``start`` and ``close`` own the task that keeps it in step; ``sync`` is one step of it. ``unix_clock`` must be
    roughly the same on all replicas; ``new_id`` names batches and must never repeat on any of them.
    """

    def __init__(
        self, redis: Redis, *, unix_clock: Callable[[], float], new_id: Callable[[], str] = lambda: uuid4().hex
    ) -> None:
        self._redis = redis
        self._apply = redis.register_script(APPLY)
        self._unix_clock = unix_clock
        self._new_id = new_id
        self._models: dict[str, _Model] = {}
        self._task: asyncio.Task[None] | None = None
        self._away = False

    def add(self, model: str, counts: Mapping[str, float], unix_s: float) -> None:
        """Count what just happened; it is known here at once and everywhere after the next two syncs."""
        known = self._of(model)
        known.asked_at_s = unix_s
        known.pending.add(slot_of(unix_s), counts)
        known.version += 1

    def version(self, model: str, unix_s: float) -> int:
        """Return a number that changes with the counts; models that are asked about are kept up to date."""
        known = self._of(model)
        known.asked_at_s = unix_s
        return known.version

    def counts(self, model: str, unix_s: float, *, half_life_s: float) -> Counts:
        """Return the weighted sum over all slots kept, of all replicas."""
        total: Counts = {}
        for slots in _parts(self._of(model)):
            slots.sum_into(total, slot_of(unix_s), half_life_s)
        return total

    def models(self) -> tuple[str, ...]:
        """Return the models with samples."""
        return tuple(model for model, known in self._models.items() if any(_parts(known)))

    @property
    def connected(self) -> bool:
        """Whether Redis answered last time."""
        return not self._away

    async def start(self) -> None:
        """Begin to keep in step with the other replicas."""
        await self.sync()
        self._task = asyncio.create_task(self._keep_in_step(), name="steering.redis_board")

    async def close(self) -> None:
        """Stop, after a last flush if Redis is there."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.sync()
        await self._redis.aclose()

    async def sync(self) -> bool:
        """Flush and read once, within two seconds; return whether Redis was there. Its absence is no error."""
        unix_s = self._unix_clock()
        self._forget(unix_s)
        try:
            async with asyncio.timeout(2 * REDIS_TIMEOUT_S):
                for model, known in list(self._models.items()):
                    await self._flush(model, known)
                for model, known in list(self._models.items()):
                    await self._read(model, known, unix_s)
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            if not self._away:
                _log.warning("steering.redis_away", error=type(error).__name__, hint="steering on local memory")
            self._away = True
            return False
        if self._away:
            _log.info("steering.redis_back")
        self._away = False
        return True

    async def _keep_in_step(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.sync()

    async def _flush(self, model: str, known: _Model) -> None:
        """Send what is pending. A batch that may have arrived is sent again before a new one is made."""
        for _ in range(2):
            if known.sealed is None:
                if not known.pending:
                    return
                known.sealed, known.pending = _Batch(self._new_id(), known.pending), Slots()
            batch = known.sealed
            slots = batch.slots.items()
            arguments: list[str] = [str(KEY_EXPIRY_S)]
            for _, counts in slots:
                arguments.append(str(len(counts)))
                for field, amount in counts.items():
                    arguments += (field, repr(amount))
            await self._apply(
                keys=[_key(model, f"batch:{batch.id}"), *(_key(model, slot) for slot, _ in slots)], args=arguments
            )
            for slot, counts in slots:
                known.shared.add(slot, counts)  # until the next read brings them back
            known.sealed = None

    async def _read(self, model: str, known: _Model, unix_s: float) -> None:
        """Bring back the open slot and the one before; now and then all, for what was flushed late."""
        now_slot, version = slot_of(unix_s), known.shared.version
        all_due = known.read_all_at_s is None or not 0 <= unix_s - known.read_all_at_s < LATE_MERGE_S
        slots = range(now_slot - (SLOTS_KEPT - 1 if all_due else 1), now_slot + 1)
        pipeline = self._redis.pipeline(transaction=False)
        for slot in slots:
            pipeline.hgetall(_key(model, slot))
        for slot, fields in zip(slots, await pipeline.execute(), strict=True):
            if fields:  # a slot that Redis has lost is not lost here
                known.shared.replace(slot, {_text(field): float(amount) for field, amount in fields.items()})
        known.version += known.shared.version != version
        if all_due:
            known.read_all_at_s = unix_s

    def _of(self, model: str) -> _Model:
        known = self._models.get(model)
        if known is None:
            known = self._models[model] = _Model()
        return known

    def _forget(self, unix_s: float) -> None:
        """Drop slots too old to matter, and models nobody has called or asked about since."""
        now_slot = slot_of(unix_s)
        for model, known in list(self._models.items()):
            for slots in _parts(known):
                slots.expire(now_slot)
            if known.sealed is not None and not known.sealed.slots:
                known.sealed = None
            if known.asked_at_s < unix_s - SLOTS_KEPT * SLOT_S:
                del self._models[model]


def connect(url: str) -> Redis:
    """Return a client that gives up on a silent Redis within a second."""
    return Redis.from_url(
        url,
        socket_timeout=REDIS_TIMEOUT_S,
        socket_connect_timeout=REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),  # the next round is the retry
    )


def _parts(known: _Model) -> tuple[Slots, ...]:
    if known.sealed is None:
        return (known.shared, known.pending)
    return (known.shared, known.pending, known.sealed.slots)


def _key(model: str, suffix: object) -> str:
    tag = model.replace("{", "%7B").replace("}", "%7D")  # braces of its own would move the hash tag
    return f"holeshot:{{{tag}}}:{suffix}"


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
