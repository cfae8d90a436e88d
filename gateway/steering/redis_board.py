"""The board shared by replicas: counts are sent to Redis in batches and read back, always in the background.

Two hashes per model and slot, ``holeshot:{model}:<slot number>:sums`` and ``…:parts``, which has the last part of each
replica; the hash tag keeps all keys of a model on one node of a cluster. A reader gets the sums, if they have changed,
and no other replica's part. While Redis is away this replica uses the counts that it has, and sends its own counts
later. To a Redis that has lost its data every replica sends all counts again. In a cluster this is per shard.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count, islice
from math import ceil
from sys import intern
from typing import Any
from uuid import uuid4

import msgspec
import structlog
from redis.exceptions import RedisError, ResponseError

from gateway.core.log import OutageCauses
from gateway.core.tasks import end_if_cancelled
from gateway.steering.board import NEVER_S, Contributions, SlotPart, arguments, key_of, slot_keys, slot_of
from gateway.steering.budget import Spending
from gateway.steering.constants import (
    FLUSH_S,
    KEY_EXPIRY_S,
    LATE_MERGE_S,
    REDIS_TIMEOUT_S,
    REPORT_KEPT_S,
    SLOT_S,
    SLOTS_KEPT,
)
from gateway.steering.counts import Counts
from gateway.steering.outages import OutageReport, Strikes
from gateway.topology import Command, Nodes, round_s, why

# Validates the data read from Redis: values that cannot be our counts are ignored, counted, and logged once.

MOST_FIELDS = 20_000  # of one hash: a slot with thirty busy deployments has ten thousand
MOST_BYTES = 4 * 2**20  # of one hash, names and values
MOST_COUNT = 1e13  # in one slot, half a minute; larger ones would make all others in a sum meaningless
MOST_USD = 1e9  # of one replica per day
USD_SUMMED_S = 1.0  # then a day's dollars are summed again
LONGEST_FIELD = 512  # characters
MARK = "@"  # the prefix of a replica's own field, and of other fields that are not counts

# A Lua function: the fields of a hash, or its number of fields or bytes if that is too large.
_BOUNDED = """
local function light(all, most_bytes)
  local bytes = 0
  for at = 1, #all do bytes = bytes + #all[at] end
  if bytes > tonumber(most_bytes) then return bytes end
  return all
end
local function whole(key, most_fields, most_bytes)
  local fields = redis.call('HLEN', key)
  if fields > tonumber(most_fields) then return fields end
  return light(redis.call('HGETALL', key), most_bytes)
end
"""

# Returns the fields and values of a slot's sums KEYS[1], then its version and this replica's part in KEYS[2] ('' if
# there is none). If the reader knows that version already, only these two; nothing if either hash is missing.
READ_SLOT = f"""{_BOUNDED}
local since = redis.pcall('HGET', KEYS[1], '@since')
if type(since) == 'table' then return since end
if not since or since ~= redis.pcall('HGET', KEYS[2], '@since') then return {{}} end
local version = since .. '/' .. (redis.call('HGET', KEYS[1], '@version') or '')
local mine = redis.call('HGET', KEYS[2], ARGV[4]) or ''
if version == ARGV[3] then return {{version, mine}} end
local all = whole(KEYS[1], ARGV[1], ARGV[2])
if type(all) == 'number' then return all end
all[#all + 1] = version
all[#all + 1] = mine
return all
"""

# Stores this replica's report ARGV[2] in KEYS[1], and whether it has strikes (ARGV[3]) in KEYS[2]; returns the reports
# if any replica has strikes, or if all are requested (ARGV[4]). Of very many it returns a random sample: the question
# is whether more replicas see a provider fail than answer, and an outage is seen by most.
REPORT = f"""{_BOUNDED}
local stored = redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2])
if type(stored) == 'table' then return stored end
if ARGV[3] == '1' then
  stored = redis.pcall('HSET', KEYS[2], ARGV[1], '1')
else
  stored = redis.pcall('HDEL', KEYS[2], ARGV[1])
end
if type(stored) == 'table' then return stored end
redis.call('EXPIRE', KEYS[1], ARGV[5])
redis.call('EXPIRE', KEYS[2], ARGV[5])
if ARGV[4] == '0' then
  if redis.call('HLEN', KEYS[2]) == 0 then return {{}} end
  if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[8]) then
    return light(redis.call('HRANDFIELD', KEYS[1], ARGV[8], 'WITHVALUES'), ARGV[7])
  end
end
return whole(KEYS[1], ARGV[6], ARGV[7])
"""


# Stores this replica's spending in the hash KEYS[1], and returns that of the others, and how many values were invalid;
# or the hash's number of fields or bytes, if it is too large. The sum of all is in KEYS[2], so that the cost does not
# grow with the number of replicas. It is recomputed from all fields each second, as older gateways do not maintain it,
# and when this replica has no field: Redis may have lost the hash.
SPEND = f"""{_BOUNDED}
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local function usd(text)
  local amount = tonumber(text)
  if amount and amount >= 0 and amount <= tonumber(ARGV[4]) then return amount end
end
local mine = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(mine) == 'table' then return mine end
local known = redis.pcall('GET', KEYS[2])
local sum, at = string.match(type(known) == 'string' and known or '', '^(%S+) (%S+)$')
sum, at = tonumber(sum), tonumber(at)
local ignored = 0
if not (mine and sum and at and sum < 1e300 and at <= now and now - at <= tonumber(ARGV[5])) then
  local all = whole(KEYS[1], ARGV[6], ARGV[7])
  if type(all) == 'number' then return all end
  sum, at = 0, now
  for place = 2, #all, 2 do
    local amount = usd(all[place])
    if amount then sum = sum + amount elseif all[place - 1] ~= ARGV[1] then ignored = ignored + 1 end
  end
end
local others = math.max(0, sum - (mine and usd(mine) or 0))
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SET', KEYS[2], string.format('%.17g %.6f', others + tonumber(ARGV[2]), at), 'EX', ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {{string.format('%.17g', others), ignored}}
"""


class Values:
    """Reads replies. ``ignored`` counts invalid values."""

    def __init__(self) -> None:
        self.ignored = 0
        self._said = False

    def hash(self, reply: Any, model: str) -> Mapping[str, str]:
        """Return the fields of a hash from a script; none if it is too large or not a hash.

        Raises:
            RedisError: any other error reply.

        """
        if isinstance(reply, list):
            return dict(zip(islice(reply, 0, None, 2), islice(reply, 1, None, 2), strict=True))
        if isinstance(reply, Exception) and not is_of_another_type(reply):
            raise reply
        self._ignore(model, f"a hash of {reply} fields or bytes" if isinstance(reply, int) else "no hash")
        return {}

    def slot(self, reply: Any, model: str) -> tuple[Mapping[str, str], str, str]:
        """Return the fields of ``READ_SLOT``, their version and this replica's part; all empty if there are none.

        Raises:
            RedisError: any error reply but that of another type.

        """
        if not isinstance(reply, list) or not reply:
            return self.hash(reply, model), "", ""
        *found, version, mine = reply
        return self.hash(found, model), version, mine

    def counts(self, fields: Mapping[str, str], model: str) -> Counts:
        """Return the counts among ``fields``, without the fields that describe the hash itself."""
        counts: Counts = {}
        for field, text in fields.items():
            if field.startswith(MARK):
                continue
            amount = _number(text)
            if 0.0 <= amount <= MOST_COUNT and len(field) <= LONGEST_FIELD:
                counts[intern(field)] = amount
            else:
                self._ignore(model, f"{field[:100]!r} = {text[:100]!r}")
        return counts

    def usd(self, reply: Any, model: str) -> float:
        """Return the other replicas' spending in US dollars, from a reply to ``SPEND``; 0 if the reply has none.

        Raises:
            RedisError: any error reply but that of another type.

        """
        if not isinstance(reply, list):
            self.hash(reply, model)
            return 0.0
        usd, ignored = reply
        for _ in range(int(ignored)):
            self._ignore(model, "what is no sum of dollars")
        return float(usd)

    def reports(self, fields: Mapping[str, str], *, mine: str) -> dict[str, OutageReport]:
        """Return the other replicas' reports of strikes, by field."""
        reports = {}
        for field, text in fields.items():
            if field == mine:
                continue
            try:
                reports[field] = msgspec.json.decode(text, type=OutageReport)
            except msgspec.MsgspecError:
                self._ignore("strikes", f"{field[:100]!r} = {text[:100]!r}")
        return reports

    def _ignore(self, model: str, what: str) -> None:
        self.ignored += 1
        if not self._said:
            self._said = True
            hint = "another program writes to holeshot:* there; invalid values are ignored and counted"
            # Event steering.redis_garbage: Another program writes to keys `holeshot:…` in Redis. It is ignored.
            # Do: Give the gateway a Redis, a database or an ACL of its own.
            _log.warning("steering.redis_garbage", model=model, ignored=what, hint=hint)


def is_of_another_type(reply: Exception) -> bool:
    """Whether Redis rejected a command because of the key's type."""
    return isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE")


def _number(text: str) -> float:
    """Return the number; a negative one if the text is no valid number."""
    try:
        return float(text)
    except ValueError:
        return -1.0


# The commands sent to Redis: the script that adds a replica's parts.

# Adds one replica's parts to slots, each once. KEYS: for each slot its sums and the numbers of its parts. ARGV: the
# replica's own field, the expiry, and for each slot the number of the previous part, the number of this one, and its
# counts as one JSON object: single arguments would cost the client five times as much. Both hashes of a slot have the
# same creation mark, so that one without the other counts as lost: a repeated part finds its number there, and a part
# without its predecessor is not added. Returns each slot's number.
# HINCRBYFLOAT adds whole numbers exactly, and unlike HINCRBY never fails halfway at a fraction; a double has no more
# than 17 digits. Foreign values, of another type or not a number, are overwritten: an error halfway would leave a part
# that is sent, and counted, again each second.
APPLY = """
local found = {}
for slot = 1, #KEYS / 2 do
  local sums, parts = KEYS[2 * slot - 1], KEYS[2 * slot]
  local before, number, counts = ARGV[3 * slot], ARGV[3 * slot + 1], ARGV[3 * slot + 2]
  local since, others = redis.pcall('HGET', sums, '@since'), redis.pcall('HGET', parts, '@since')
  if type(since) ~= 'string' or since ~= others then
    since = ARGV[1] .. number
    redis.call('DEL', sums, parts)
    redis.call('HSET', sums, '@since', since)
    redis.call('HSET', parts, '@since', since)
  end
  local last = redis.call('HGET', parts, ARGV[1])
  if not last or #last > 15 or not string.match(last, '^%d+$') then last = '0' end
  found[slot] = last
  if last == before then
    for field, amount in pairs(cjson.decode(counts)) do
      local text = string.format('%.17g', amount)
      local sum = redis.pcall('HINCRBYFLOAT', sums, field, text)
      if type(sum) == 'table' then redis.call('HSET', sums, field, text) end
    end
    redis.call('HSET', sums, '@version', ARGV[1] .. number)
    redis.call('HSET', parts, ARGV[1], number)
    found[slot] = number
  end
  redis.call('EXPIRE', sums, ARGV[2])
  redis.call('EXPIRE', parts, ARGV[2])
end
return found
"""


def answer(replies: Iterator[Any]) -> Any:
    """Return the next reply; raises it if it is an error."""
    reply = next(replies)
    if isinstance(reply, Exception):
        raise reply
    return reply


_log = structlog.get_logger(__name__)

FLUSH_FIELDS = 20_000  # about as many in one round: 20 ms of Redis' time, and of ours, after minutes of absence
RESTORING_S = 2.0  # after a loss all slots are read in each round for this time and a round: all replicas send again
# A hash with each replica's report of failing deployments, and one with the replicas that have strikes to report.
STRIKES_KEY, STRIKING_KEY = "holeshot:{strikes}", "holeshot:{strikes}:any"
REPORTS_READ = 128  # of more replicas, a random sample of this size
REPORTS_ALL_S = 300.0  # between two reads of all reports, to find those of replicas that are gone
_ERRORS = (RedisError, OSError, TimeoutError, ValueError, TypeError)  # the last two: invalid replies
DAY_EXPIRY_S = 2 * 86_400  # of a day's dollars: kept until no replica's clock can be in that day


class RedisBoard:
    """A board shared through Redis (or Valkey), which also shares ``spending`` and ``strikes``.

    ``start`` and ``close`` own the background task; ``sync`` is one round of it. ``unix_clock`` must be roughly the
    same on all replicas; ``new_id`` returns this replica's id, which must be unique.
    """

    def __init__(
        self,
        nodes: Nodes,
        *,
        unix_clock: Callable[[], float],
        spending: Spending | None = None,
        new_id: Callable[[], str] = lambda: uuid4().hex,
        strikes: Strikes | None = None,
    ) -> None:
        self.nodes = nodes
        self._unix_clock = unix_clock
        self._spending = spending or Spending(unix_clock)
        self._strikes = strikes
        self._gone: list[str] = []  # fields of replicas that no longer report
        self._reports_read_at_s = NEVER_S  # all of them
        self._field = MARK + new_id()
        self._values = Values()
        self._numbers = count(1)
        self._replicas = 1  # as last read from Redis
        self._models: dict[str, Contributions] = {}
        self._is_shared: Callable[[str], bool] = lambda _: True
        self._expired = 0  # the slot in which those that are too old were dropped last
        self._restoring_until_s: dict[str, float] = {}  # by shard
        self._away = OutageCauses()  # by shard
        self._rounds = asyncio.Lock()  # held by each: two at a time would both count the parts that Redis confirms
        self._task: asyncio.Task[None] | None = None

    def add(self, model: str, counts: Mapping[str, float], unix_s: float) -> None:
        """Add counts: visible here at once, and in all replicas after the next two syncs."""
        contributions = self._of(model)
        contributions.mark_used(unix_s)
        contributions.add(slot_of(unix_s), counts)

    def version(self, model: str, unix_s: float) -> int:
        """Return a number that changes with the counts. Marks the model as one that is read from Redis."""
        contributions = self._of(model)
        contributions.mark_used(unix_s)
        return contributions.version

    def counts(self, model: str, unix_s: float, *, half_life_s: float) -> Counts:
        """Return the weighted sum of all slots, of all replicas."""
        total: Counts = {}
        for slots in self._of(model).parts():
            slots.sum_into(total, slot_of(unix_s), half_life_s)
        return total

    def slots(self, model: str, unix_s: float) -> Mapping[int, Counts]:
        """Return the plain counts of each slot, of all replicas."""
        counts_of: dict[int, Counts] = {}
        for slots in self._of(model).parts():
            slots.add_into(counts_of, slot_of(unix_s))
        return counts_of

    def forget(self, model: str) -> None:
        """Drop the counts of a model in this process; those in Redis expire."""
        self._models.pop(model, None)

    def share(self, is_shared: Callable[[str], bool]) -> None:
        """Write and read only the models for which ``is_shared`` is true; the others' counts wait here."""
        self._is_shared = is_shared

    @property
    def ignored(self) -> int:
        """The number of invalid values that were read."""
        return self._values.ignored

    @property
    def connected(self) -> bool:
        """Whether all of Redis answered last time."""
        return not self._away

    @property
    def topology(self) -> str:
        """A description of Redis' nodes, as far as known."""
        return self.nodes.name

    async def start(self) -> None:
        """Start to synchronise with the other replicas."""
        await self.sync()
        self._task = asyncio.create_task(self._sync_loop(), name="steering.redis_board")

    async def close(self) -> None:
        """Stop, after a last flush if Redis is available."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.sync()
        await self.nodes.aclose()

    async def sync(self) -> bool:
        """Flush and read, in one round trip or two; return whether Redis was available. Its absence is not an error.

        Waits for a round that is under way.
        """
        async with self._rounds:
            unix_s = self._unix_clock()
            self._forget(unix_s)
            for _ in range(2):
                shards = self.nodes.shards
                await asyncio.gather(*(self._sync_shard(shard, unix_s) for shard in shards))
                self._away.keep(shards)
                if shards == self.nodes.shards:  # else the first reply has shown that this is a cluster
                    break
        return not self._away

    async def _sync_shard(self, shard: str, unix_s: float) -> None:
        try:
            async with asyncio.timeout(2 * REDIS_TIMEOUT_S):
                await self.nodes.find()
            if await self._exchange(shard, unix_s):
                await self._exchange(shard, unix_s)
        except _ERRORS as error:
            if self._away.is_new(why(error), shard):
                # Event steering.redis_away: Each replica steers by its own measurements, as Redis (of a Cluster: the
                # master `node`) does not answer.
                # Do: Make Redis reachable. Calls go on.
                _log.warning(
                    "steering.redis_away",
                    error=why(error),
                    node=self.nodes.address(shard),
                    hint="steering by this replica's measurements only",
                )
            return
        if self._away.end(shard):
            # Event steering.redis_back: Replicas share their measurements again.
            # Do: Nothing.
            _log.info("steering.redis_back", node=self.nodes.address(shard))

    async def _sync_loop(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self.round_s, loop.time())  # a slow Redis does not get more requests
            await asyncio.sleep(due - loop.time())
            await self.sync()
            end_if_cancelled()

    @property
    def round_s(self) -> float:
        """Seconds between two rounds: one for a hundred replicas, two for a thousand."""
        return max(FLUSH_S, round_s(FLUSH_S / 2, self._replicas, self._field))

    async def _exchange(self, shard: str, unix_s: float) -> bool:
        """Send unconfirmed counts, then read; return whether there is more to send at once.

        Replies are processed in the order of the commands.
        """
        models = {
            name: contributions
            for name, contributions in self._models.items()
            if self._is_shared(name) and self._serves(shard, name)
        }
        again = any(contributions.resends for contributions in models.values())
        flushed = self._sealed(models)
        due = self._due(shard, models, unix_s)
        day, spent = self._spending.own_usd()
        spenders = tuple(model for model in spent if self._serves(shard, model))
        strikes = self._strikes if self.nodes.shard_of(STRIKES_KEY) == shard else None
        commands = [
            *self._flush_commands(flushed),
            *self._spending_commands(day, {model: spent[model] for model in spenders}),
        ]
        commands += [
            self._read_command(model, contributions, slot) for model, contributions, slots in due for slot in slots
        ]
        if strikes is not None:
            commands += self._report_strikes(strikes, unix_s)
        async with asyncio.timeout(2 * REDIS_TIMEOUT_S):
            replies = iter(await self.nodes.run(shard, commands or [("PING",)]))
        lost = False
        for _, contributions, parts in flushed:
            lost |= contributions.confirm(parts, [int(number) for number in answer(replies)])
        for model in spenders:
            self._spending.learn(day, model, self._values.usd(next(replies), model))
        for model, contributions, slots in due:
            lost |= await self._store(model, contributions, slots, replies)
            contributions.read_at_s = unix_s
            if len(slots) == SLOTS_KEPT:
                contributions.read_all_at_s = unix_s
        if strikes is not None:
            self._learn_strikes(strikes, unix_s, replies)
        if lost:
            # Event steering.redis_lost_data: Redis has lost figures: it was restarted or emptied, or a replica took
            # over. They are written again.
            # Do: If it repeats, Redis' memory is full: give it more.
            _log.warning(
                "steering.redis_lost_data", node=self.nodes.address(shard), hint="this replica writes its counts again"
            )
            self._restoring_until_s[shard] = unix_s + self.round_s + RESTORING_S
        return again or lost

    def _flush_commands(self, flushed: Iterable[tuple[str, Contributions, tuple[SlotPart, ...]]]) -> Iterator[Command]:
        for model, _, parts in flushed:
            keys = [key for part in parts for key in slot_keys(model, part.slot)]
            yield ("EVAL", APPLY, len(keys), *keys, self._field, str(KEY_EXPIRY_S), *arguments(parts))

    def _read_command(self, model: str, contributions: Contributions, slot: int) -> Command:
        limits = MOST_FIELDS, MOST_BYTES
        return ("EVAL", READ_SLOT, 2, *slot_keys(model, slot), *limits, contributions.read_version(slot), self._field)

    def _spending_commands(self, day: str, spent: Mapping[str, float]) -> Iterator[Command]:
        """Yield the commands that write this replica's spending and read that of the others."""
        for model, usd in spent.items():
            key = key_of(model, f"usd:{day}")
            limits = MOST_USD, USD_SUMMED_S, MOST_FIELDS, MOST_BYTES
            yield ("EVAL", SPEND, 2, key, f"{key}:sum", self._field, repr(usd), DAY_EXPIRY_S, *limits)

    def _serves(self, shard: str, model: str) -> bool:
        return self.nodes.shard_of(key_of(model, "")) == shard

    def _sealed(self, models: Mapping[str, Contributions]) -> list[tuple[str, Contributions, tuple[SlotPart, ...]]]:
        """Return the parts to send, of as many models as fit into one round."""
        sealed = []
        left = FLUSH_FIELDS
        for model, contributions in models.items():
            parts = contributions.seal(lambda: next(self._numbers), left)
            if parts:
                sealed.append((model, contributions, parts))
                left -= sum(len(part.counts) for part in parts)
        return sealed

    def _due(
        self, shard: str, models: Mapping[str, Contributions], unix_s: float
    ) -> list[tuple[str, Contributions, range]]:
        """Return the slots to read of each model in use: the open one and the one before; in turn, all of some models.

        All slots of each model are read every half minute, for late flushes, and at once when a model is first used, so
        that a new replica is up to date. More than a hundred replicas read in every other round: reading costs most.
        """
        now_slot = slot_of(unix_s)
        newest = range(now_slot - 1, now_slot + 1)
        everything = range(now_slot - SLOTS_KEPT + 1, now_slot + 1)
        used = {
            model: contributions for model, contributions in models.items() if contributions.used_at_s > unix_s - SLOT_S
        }
        if unix_s < self._restoring_until_s.get(shard, NEVER_S):
            return [(model, contributions, everything) for model, contributions in models.items()]
        aged = [model for model, contributions in used.items() if contributions.read_all_at_s <= unix_s - LATE_MERGE_S]
        aged.sort(key=lambda model: used[model].read_all_at_s)
        turns = ceil(len(used) * self.round_s / LATE_MERGE_S)
        whole = {model for at, model in enumerate(aged) if at < turns or used[model].read_all_at_s == NEVER_S}
        pause_s = 1.5 * self.round_s if self.round_s > FLUSH_S else 0.0
        return [
            (model, contributions, everything if model in whole else newest)
            for model, contributions in used.items()
            if model in whole or not contributions.is_recent(unix_s, pause_s)
        ]

    def _report_strikes(self, strikes: Strikes, unix_s: float) -> Iterator[Command]:
        """Yield the commands that write this replica's report, read and count all, and delete dead replicas'."""
        report = strikes.report()
        is_due = unix_s - self._reports_read_at_s >= REPORTS_ALL_S
        if is_due:
            self._reports_read_at_s = unix_s
        report_arguments = (self._field, msgspec.json.encode(report), int(bool(report.strikes)), int(is_due))
        yield (
            *("EVAL", REPORT, 2, STRIKES_KEY, STRIKING_KEY, *report_arguments),
            *(KEY_EXPIRY_S, MOST_FIELDS, MOST_BYTES, REPORTS_READ),
        )
        yield ("HLEN", STRIKES_KEY)  # the number of replicas
        if self._gone:
            yield ("HDEL", STRIKES_KEY, *self._gone)
            yield ("HDEL", STRIKING_KEY, *self._gone)

    def _learn_strikes(self, strikes: Strikes, unix_s: float, replies: Iterator[Any]) -> None:
        """Process the other replicas' reports; nothing if the key has another type."""
        reports = self._values.reports(self._values.hash(next(replies), "strikes"), mine=self._field)
        strikes.learn(reports.values())
        replicas = next(replies)
        self._replicas = replicas if isinstance(replicas, int) else 1
        self._gone = [field for field, report in reports.items() if report.at_s < unix_s - REPORT_KEPT_S]

    async def _store(self, model: str, contributions: Contributions, slots: range, replies: Iterator[Any]) -> bool:
        """Store slots as Redis has them; return whether it has lost contributions of this replica."""
        lost = False
        for slot in slots:
            fields, version, mine = self._values.slot(next(replies), model)
            if version and contributions.read_version(slot) == version:
                continue
            counts = self._values.counts(fields, model)
            lost |= contributions.store(slot, counts, version, is_mine=bool(mine))
            await asyncio.sleep(0)  # let other tasks run: with many deployments a slot has a thousand fields
        return lost

    def _of(self, model: str) -> Contributions:
        contributions = self._models.get(model)
        if contributions is None:
            contributions = self._models[model] = Contributions()
        return contributions

    def _forget(self, unix_s: float) -> None:
        """Drop slots that are too old, and models that have not been used since."""
        self._restoring_until_s = {  # bounded, in case the clock was set back
            shard: min(until_s, unix_s + self.round_s + RESTORING_S)
            for shard, until_s in self._restoring_until_s.items()
            if until_s > unix_s
        }
        slot, self._expired = self._expired, slot_of(unix_s)
        if slot == self._expired:
            return
        for model, contributions in list(self._models.items()):
            contributions.expire(unix_s)
            if contributions.used_at_s < unix_s - SLOTS_KEPT * SLOT_S:
                del self._models[model]
