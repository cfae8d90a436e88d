"""Leases of all processes from Redis, renewed in the background.

Every half second (two seconds with a thousand processes), and at once when a call finds a lease used up, this process
reports its usage of each quota in use, and the lease that it needs. Running calls are part of the lease, so that a dead
process's holds expire with the lease.

While Redis does not answer, each process uses its share of what was left. If Redis has lost its data, or processes went
on without Redis, every process reports again, and until all have done so none exceeds such a share.

Each shard is separate: in a Redis Cluster each master has some of the quotas and its own list of processes. A master
that does not answer, or has lost its data, affects its own quotas only.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf

import msgspec
import structlog
from redis.exceptions import RedisError

from gateway.core.log import OutageCauses
from gateway.core.tasks import end_if_cancelled, pause
from gateway.limits.lease_scripts import CLOCK, GREET, LEASE, Grant, key_of, keys_of, processes_key
from gateway.limits.quota import ROUNDING, SHARE_AT_LEAST, LeasedSlots, Quota
from gateway.limits.windows import EXPIRY_S, MINUTE_S, REMEMBERED
from gateway.topology import REDIRECTED, Command, Nodes, raised, round_s, why


class LeaseTimes(msgspec.Struct, frozen=True):
    """How long a process's reports are valid, and other times, in seconds."""

    lease_s: float = 5.0  # after which a dead process's lease has expired
    process_s: float = 15.0  # a process without a report for so long is not counted
    silent_s: float = 60.0  # then a silent process's usage is added to the base, which others can restore
    restoring_s: float = 2.0  # after a loss of data, or a time without Redis: by then every process has reported again
    round_s: float = 0.5  # between two reports on all quotas in use, with ten processes; for more see ``round_s``
    repeat_s: float = 20.0  # between two reports on quotas not in use; less than ``silent_s``
    timeout_s: float = 1.0  # of a round; only calls that need ``max_parallel`` wait for all of it
    first_s: float = 0.25  # a call's wait for the first report on a new window, as others may have leased all of it


USUAL = LeaseTimes()

_log = structlog.get_logger(__name__)

AHEAD_ROUNDS = 2.0  # of ``LeaseTimes.round_s``: leases cover the expected usage until so long after the next report
EXHAUSTED_S = 0.2  # between requests after the reply that nothing is left; longer with longer rounds
TURNS = 5  # parts of a wait for a round; a part that ends late does not count, as the event loop was blocked
CLOCK_INTERVAL_S = 10.0  # between two readings of Redis' clock
AT_ONCE = 500  # quotas in one round trip: some milliseconds of Redis
_ERRORS = (RedisError, OSError, TimeoutError, ValueError, TypeError)  # the last two: the reply is not from our script


class _Link(msgspec.Struct):
    """The state of a shard: does not answer; has just lost its data; knows this process."""

    is_away: bool = False
    is_restoring: bool = False
    has_greeted: bool = False


class SharedLeases:
    """This process's leases. ``start`` and ``close`` own the background tasks, one task for each shard of Redis.

    ``processes``: the number to assume until Redis has answered once. ``new_id``: returns a unique id.
    """

    def __init__(
        self,
        nodes: Nodes,
        *,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        new_id: Callable[[], str],
        processes: int = 1,
        times: LeaseTimes = USUAL,
    ) -> None:
        self.nodes = nodes
        self.id = new_id()
        self.times = times
        self.clock = clock
        self._own_unix_clock = unix_clock
        self._zero_s: float | None = None  # Redis' Unix time when our clock showed 0
        self._read_at_s = -inf
        self._assumed = processes
        self._spent: Mapping[str, float] = {}
        self._shards: dict[str, ShardLeases] = {}
        self._over: list[ShardLeases] = []  # shards that no longer exist, whose tasks still run
        self._version = nodes.version
        self._is_open = False
        self._settle()

    @property
    def sees_all(self) -> bool:
        """False: other processes may have used the same Redis."""
        return False

    @property
    def connected(self) -> bool:
        """Whether all shards of Redis answered last time."""
        return not any(shard.link.is_away for shard in self._shards.values())

    def unix_clock(self) -> float:
        """Return Unix seconds by Redis' clock, for the windows that all processes share; until it is read, by ours.

        Between two readings our monotonic clock is added.
        """
        return self._own_unix_clock() if self._zero_s is None else self._zero_s + self.clock()

    @property
    def shared_clock(self) -> Callable[[], float]:
        """Redis' clock."""
        return self.unix_clock

    @property
    def wants_clock(self) -> bool:
        """Whether it is time to read Redis' clock."""
        return self.clock() - self._read_at_s >= CLOCK_INTERVAL_S

    def note_clock(self, seconds: int, micros: int, sent_s: float) -> None:
        """Note Redis' time from a reply; the command was sent at ``sent_s``."""
        now_s = self.clock()
        self._read_at_s = now_s
        self._zero_s = seconds + micros / 1e6 - (sent_s + now_s) / 2

    @property
    def processes(self) -> int:
        """The number of processes that share the limits."""
        return max((shard.processes for shard in self._shards.values()), default=self._assumed)

    @property
    def round_s(self) -> float:
        """Seconds between two rounds, of the shard where this is longest."""
        return max((shard.round_s for shard in self._shards.values()), default=0.0)

    @property
    def took_s(self) -> float:
        """Seconds that the last round took."""
        return self.nodes.took_s

    @property
    def shards(self) -> Mapping[str, "ShardLeases"]:
        """The leases of each shard."""
        return self._shards

    def recollect(self, spent: Mapping[str, float]) -> None:
        """Set the usage before the start, by the quota's key; it counts if Redis knows less, or does not answer."""
        self._spent = spent
        for shard in self._shards.values():
            shard.recollect()

    def recollected(self, key: str) -> float:
        """Return the usage before the start, by the key of the quota."""
        return self._spent.get(key, 0.0)

    def keep(self, quota: Quota) -> None:
        """Include ``quota`` in the rounds until nothing is held or unreported."""
        self._of(quota).keep(quota)

    def forget(self, quota: Quota) -> None:
        """Exclude ``quota`` from the rounds; the lease expires."""
        self._of(quota).drop(quota)

    def give_back(self, quota: Quota) -> None:
        """Report ``quota`` at once, so that others may lease what this process does not need."""
        self._of(quota).report(quota)

    def lend(self, slots: LeasedSlots) -> None:
        """Lease ``slots`` from now on; ``slots.ask`` wakes the round of the shard."""
        slots.ask = lambda: self._of(slots).ask(slots)
        self.keep(slots)
        slots.ask()

    def end(self, slots: LeasedSlots) -> None:
        """Stop leasing ``slots``; the lease expires."""
        for shard in self._shards.values():
            shard.drop(slots)

    async def start(self) -> None:
        """Read Redis' clock, and start the rounds, even if Redis does not answer."""
        self._is_open = True
        with suppress(*_ERRORS):
            async with asyncio.timeout(self.times.timeout_s):
                await self.nodes.find()
                await self._read_clock(next(iter(self.nodes.shards)))
        self.settle()
        for shard in self._shards.values():
            shard.start()

    async def _read_clock(self, shard: str) -> None:
        sent_s = self.clock()
        (time,) = raised(await self.nodes.run(shard, [("EVAL", CLOCK, 1, processes_key(shard))]))
        self.note_clock(int(time[0]), int(time[1]), sent_s)

    async def close(self) -> None:
        """Stop; return all leases if Redis answers."""
        self._is_open = False
        await asyncio.gather(*(shard.cancel() for shard in self._over))
        await asyncio.gather(*(shard.close() for shard in self._shards.values()))
        await self.nodes.aclose()

    async def enlarge(self, short: Sequence[tuple[Quota, float]], patience_s: float, beyond_usd: float = 0.0) -> None:
        """Request larger leases and wait for the reply; after ``patience_s`` use a share of the limit."""
        for quota, _ in short:
            self.keep(quota)
        now_s = self.clock()
        requested = [(quota, amount) for quota, amount in short if now_s >= quota.exhausted_until_s]
        if not requested:
            return
        by_shard: dict[str, tuple[ShardLeases, list[tuple[Quota, float]]]] = {}
        for quota, amount in requested:
            shard = self._of(quota)
            by_shard.setdefault(shard.name, (shard, []))[1].append((quota, amount))
            quota.waiting += amount
            if beyond_usd:
                quota.beyond = max(quota.beyond, quota.beyond_of(amount, beyond_usd))
        try:
            if len(by_shard) == 1:  # the usual case: no task needed
                ((shard, quotas),) = by_shard.values()
                await shard.enlarge(quotas, patience_s)
            else:
                await asyncio.gather(*(shard.enlarge(quotas, patience_s) for shard, quotas in by_shard.values()))
        finally:  # only now, or one shard's grant would be returned before all have replied
            for quota, amount in requested:
                quota.waiting = max(0.0, quota.waiting - amount)
                if quota.waiting < ROUNDING:
                    quota.beyond = 0.0

    def settle(self) -> None:
        """After a change of the topology, move each quota to the shard that serves it now."""
        if self._version != self.nodes.version:
            self._version = self.nodes.version
            self._settle()

    def _settle(self) -> None:
        before, was_connected, processes = self._shards, self.connected, self.processes
        self._shards = {}
        for name in self.nodes.shards:
            shard = before.pop(name, None)
            if shard is None:
                shard = ShardLeases(name, self, processes)
                shard.link.is_away = not was_connected  # so that usage without Redis is reported first
                if self._is_open:
                    shard.start()
            self._shards[name] = shard
        for shard in (*before.values(), *self._shards.values()):
            for quota, is_short in shard.take_foreign():
                self._of(quota).take(quota, is_short=is_short)
        self._over = [shard for shard in (*self._over, *before.values()) if shard.stop()]

    def _of(self, quota: Quota) -> "ShardLeases":
        shard = self._shards.get(self.nodes.shard_of(key_of(quota))) if len(self._shards) > 1 else None
        return shard if shard is not None else next(iter(self._shards.values()))  # no master serves it now


def _is_over(quota: Quota, unix_s: float) -> bool:
    """Whether a quota's window has ended, and no report on the quota is needed any more.

    Without Redis nothing is ever reported, and each minute adds quotas for all clients that call.
    """
    ends_s = quota.window.ends_s
    return ends_s < unix_s and (quota.is_settled or (quota.name not in REMEMBERED and ends_s < unix_s - MINUTE_S))


async def ends_in(awaited: asyncio.Future[None], patience_s: float, clock: Callable[[], float]) -> bool:
    """Return whether ``awaited`` ends within ``patience_s``, without the time in which the event loop was blocked.

    A blocked loop reads no reply. The wait is at most twice as long in parts.
    """
    turn_s, counted = patience_s / TURNS, 0
    for _ in range(2 * TURNS):
        began_s = clock()
        await asyncio.wait((awaited,), timeout=turn_s)
        if awaited.done():
            return True
        if clock() - began_s < 2 * turn_s:
            counted += 1
            if counted == TURNS:
                break
    return False


class ShardLeases:
    """This process's leases from one shard of Redis."""

    def __init__(self, name: str, owner: SharedLeases, processes: int) -> None:
        self.name = name
        self.processes = processes
        self.link = _Link()
        self._owner = owner
        self._nodes, self._id, self._times = owner.nodes, owner.id, owner.times
        self._clock, self._unix_clock = owner.clock, owner.unix_clock
        self._kept: dict[str, Quota] = {}
        self._short: dict[str, Quota] = {}  # quotas that calls wait for
        self._wake = asyncio.Event()
        self._round: asyncio.Future[None] | None = None  # the end of the next round
        self._causes = OutageCauses()
        self._task: asyncio.Task[None] | None = None
        self._is_open = True
        self._is_last = False  # whether the next report is this process's last

    def start(self) -> None:
        """Start the rounds, unless they run already."""
        if self._task is None:
            self._task = asyncio.create_task(self._go_round(), name="limits.leases")

    def stop(self) -> bool:
        """Stop after the current round; return whether this round still runs."""
        self._is_open = False
        self._wake.set()
        return self._task is not None and not self._task.done()

    async def cancel(self) -> None:
        """Stop at once; leases expire."""
        self._is_open = False
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def close(self) -> None:
        """Stop; return all leases if the shard answers."""
        await self.cancel()
        self._is_last = True
        with suppress(*_ERRORS):
            async with asyncio.timeout(self._times.timeout_s):
                await self._exchange(list(self._kept.values()))

    def keep(self, quota: Quota) -> None:
        """Include ``quota`` in the rounds."""
        self._kept[quota.key] = quota

    def drop(self, quota: Quota) -> None:
        """Exclude ``quota`` from the rounds."""
        self._kept.pop(quota.key, None)
        self._short.pop(quota.key, None)

    def recollect(self) -> None:
        """Apply the usage before the start to shares; Redis learns of it in the next reports."""
        for quota in self._kept.values():
            if quota.lease.is_share and self._owner.recollected(quota.key) > quota.elsewhere.used:
                self._share(quota, since_s=self._ahead_s)

    def report(self, quota: Quota) -> None:
        """Request a round for ``quota`` at once."""
        self._short[quota.key] = quota
        self._wake.set()

    def ask(self, slots: LeasedSlots) -> None:
        """Request a round for ``slots``: at once, or soon if none were left a moment ago."""
        self._short[slots.key] = slots
        if slots.is_too_many or self._clock() >= slots.exhausted_until_s:
            self._wake.set()

    def take(self, quota: Quota, *, is_short: bool) -> None:
        """Adopt a quota of another shard; ``is_short``: calls wait for the quota."""
        self._kept[quota.key] = quota
        if is_short:
            self._short[quota.key] = quota
            self._wake.set()

    def take_foreign(self) -> list[tuple[Quota, bool]]:
        """Remove and return the quotas of other shards, each with whether calls wait for the quota."""
        foreign = [quota for quota in self._kept.values() if self._nodes.shard_of(key_of(quota)) != self.name]
        for quota in foreign:
            del self._kept[quota.key]
        return [(quota, self._short.pop(quota.key, None) is not None) for quota in foreign]

    async def enlarge(self, asked: Sequence[tuple[Quota, float]], patience_s: float) -> None:
        """Do as ``SharedLeases.enlarge``, for quotas of this shard."""
        if not self.link.is_away:
            self._short.update((quota.key, quota) for quota, _ in asked)
            if self._round is None:
                self._round = asyncio.get_running_loop().create_future()
            self._wake.set()
            await self._wait(self._round, [quota for quota, _ in asked], patience_s)
        if self.link.is_away:
            for quota, _ in asked:
                self._share(quota)

    async def _wait(self, round_ends: asyncio.Future[None], quotas: Sequence[Quota], patience_s: float) -> None:
        """Wait for the next round to end, up to each quota's time limit; then use shares.

        If a round takes longer, either Redis is slow, and others lease meanwhile; or Redis hangs, as will show in a
        second.
        """
        parallel = [quota for quota in quotas if quota.name == "max_parallel"]
        others = [quota for quota in quotas if quota.name != "max_parallel"]
        reported = [quota for quota in others if quota.reported is not None]
        new = [quota for quota in others if quota.reported is None]  # what others have leased is unknown here
        waited_s = 0.0
        for longest_s, waiting in (
            (patience_s, reported),
            (self._times.first_s, new),
            (self._times.timeout_s, parallel),
        ):
            if waiting:
                if await ends_in(round_ends, longest_s - waited_s, self._clock):
                    return
                waited_s = longest_s
                for quota in waiting:
                    if quota.name != "max_parallel":
                        self._share(quota, since_s=self._ahead_s)

    async def _go_round(self) -> None:
        due_s = self._clock()
        while self._is_open:
            wait_s = max(0.0, due_s - self._clock())
            await pause(min(wait_s, EXHAUSTED_S) if self._short else wait_s, self._wake)
            self._wake.clear()
            self._owner.settle()
            if self.name not in self._owner.shards:  # the shard no longer exists
                self._mark_away()
                return
            ended, self._round = self._round, None
            short, self._short = list(self._short.values()), {}
            is_due = self._clock() >= due_s
            if is_due:
                due_s = self._clock() + self.round_s
            try:
                await self._sync([*self._due(), *short] if is_due else short)
            finally:
                if ended is not None and not ended.done():
                    ended.set_result(None)
            end_if_cancelled()

    def _due(self) -> list[Quota]:
        """Return the quotas to report; drop quotas of ended windows."""
        now_s, unix_s = self._clock(), self._unix_clock()
        for quota in [each for each in self._kept.values() if _is_over(each, unix_s)]:
            del self._kept[quota.key]
        since_s = now_s if self.link.is_restoring else now_s - self._times.repeat_s
        return [
            each
            for each in self._kept.values()
            if not each.is_idle or (each.reported is not None and each.reported.at_s <= since_s)
        ]

    async def _sync(self, quotas: Sequence[Quota]) -> None:
        try:
            async with asyncio.timeout(self._times.timeout_s):
                await self._exchange(list({quota.key: quota for quota in quotas}.values()))
        except _ERRORS as error:
            if not self.link.is_away:
                self._share_again()
            if self._causes.is_new(why(error)):
                # Event limits.redis_away: Redis does not answer. Each of the `processes` allows its share of what was
                # left of limits.
                # Do: Make Redis reachable. Calls go on.
                _log.warning(
                    "limits.redis_away",
                    error=why(error),
                    node=self._nodes.address(self.name),
                    processes=self._owner.processes,
                    hint="each process allows its share of what was left of each limit",
                )
            self._mark_away()
            return
        except Exception:  # noqa: BLE001 - the next round may succeed, and without any, shares are used
            # Event limits.round_failed: One exchange of limits with Redis failed. The next one follows.
            # Do: It is a bug: report it with the trace.
            _log.exception("limits.round_failed")
            self._share_again()
            self._mark_away()
            return
        if self.link.is_away:
            # Event limits.redis_back: Limits are shared through Redis again.
            # Do: Nothing.
            _log.info("limits.redis_back", node=self._nodes.address(self.name))
        self._causes.end()
        self.link.is_away = False

    def _mark_away(self) -> None:
        """Record that the shard is away; calls that wait for the next round use shares."""
        self.link.is_away = True
        for quota in self._kept.values():
            if isinstance(quota, LeasedSlots) and not quota.lease.is_share:  # no call requests its share
                self._share(quota)
        if self._round is not None and not self._round.done():
            self._round.set_result(None)
        self._round = None

    def _share_again(self) -> None:
        """Allow whole shares: the shard does not answer at all, so no other process leases meanwhile."""
        for quota in self._kept.values():
            if quota.lease.is_share:
                self._share(quota)

    @property
    def round_s(self) -> float:
        """Seconds between two rounds: the more processes, the longer."""
        return round_s(self._times.round_s, self.processes, self._id)

    @property
    def restoring_s(self) -> float:
        """``LeaseTimes.restoring_s``, plus the additional length of rounds."""
        return self._times.restoring_s + self.round_s - self._times.round_s

    @property
    def _ahead_s(self) -> float:
        return self.round_s + AHEAD_ROUNDS * self._times.round_s

    def _share(self, quota: Quota, *, since_s: float | None = None) -> None:
        """Use a share; others are assumed to have leased for ``since_s`` since the last round (None: for a round)."""
        quota.elsewhere.used = max(quota.elsewhere.used, self._owner.recollected(quota.key))
        leased_since = quota.elsewhere.leased * (since_s or self.round_s) / self._ahead_s
        quota.share(self._owner.processes, self._clock(), leased_since=leased_since)

    async def _exchange(self, quotas: Sequence[Quota]) -> None:
        for start in range(0, max(1, len(quotas)), AT_ONCE):
            await self._exchange_some(quotas[start : start + AT_ONCE])

    async def _exchange_some(self, quotas: Sequence[Quota]) -> None:
        sent_s, times = self._clock(), self._times
        has_greeted = "1" if self.link.has_greeted else "0"
        returns = "1" if self.link.is_away else "0"
        greeted = (self._id, str(times.process_s), str(self.restoring_s), has_greeted, returns)
        requests = [self._lease_request(quota, sent_s) for quota in quotas]
        commands: list[Command] = [("EVAL", GREET, 1, processes_key(self.name), *greeted)]
        commands += [
            ("EVAL", LEASE, len(keys), *keys, *arguments)
            for keys, (_, _, arguments) in zip(map(keys_of, quotas), requests, strict=True)
        ]
        reads_clock = self._owner.wants_clock
        if reads_clock:
            commands.append(("EVAL", CLOCK, 1, processes_key(self.name)))
        greeting, *replies = await self._nodes.run(self.name, commands)
        (greeting,) = raised([greeting])
        if reads_clock:
            (time,) = raised([replies.pop()])
            self._owner.note_clock(int(time[0]), int(time[1]), sent_s)
        self.link.has_greeted = True
        processes, self.link.is_restoring = int(greeting[0]), bool(greeting[1])
        self.processes = max(self.processes, processes) if self.link.is_restoring else processes
        for quota, (used, need, _), reply in zip(quotas, requests, replies, strict=True):
            if isinstance(reply, REDIRECTED):  # no node serves the slot now, or only some of the slot's keys have moved
                if quota.waiting and not isinstance(quota, LeasedSlots):
                    self._share(quota)
                continue
            self._learn(quota, Grant.of(*raised([reply])), used, need, sent_s)

    def _lease_request(self, quota: Quota, now_s: float) -> tuple[float, float, Sequence[str]]:
        """Return the reported usage, the amount that calls need, and the arguments of ``LEASE``.

        From now on at most the requested amount may be used, and in advance no more than was granted last: idle amounts
        must be free here before Redis grants them to others.
        """
        used = quota.used
        need, ahead = quota.preference(now_s, self._ahead_s)
        if not self._is_open:
            ahead = 0.0
        quota.give_back(ahead)
        is_known, spent = quota.reported is not None, self._owner.recollected(quota.key)
        # In its last reply Redis knew less than the ledger, which may have answered after that; before the first reply
        # Redis may know less, too.
        is_more = spent > (quota.elsewhere.used if is_known else 0.0) + ROUNDING
        base = spent if is_more or not is_known else quota.elsewhere.base
        arguments = (
            self._id,
            repr(used),
            repr(need),
            repr(ahead),
            repr(float(quota.limit)),
            str(self._times.lease_s),
            str(self._times.silent_s),
            str(EXPIRY_S[quota.name]),
            repr(base),
            "2" if is_more else "1" if is_known else "0",
            "1" if quota.name in SHARE_AT_LEAST else "0",
            repr(quota.reach(now_s)),
            repr(quota.held),
            "1" if self._is_last else "0",
            repr(quota.beyond),
        )
        return used, need, arguments

    def _learn(self, quota: Quota, grant: Grant, used: float, need: float, sent_s: float) -> None:
        """Apply a reply."""
        others = quota.elsewhere
        if isinstance(quota, LeasedSlots):
            quota.update_others(grant.running, grant.fair, is_wanted=grant.is_wanted)
        quota.lease.spare = max(0.0, grant.lease - need)
        if self.link.is_restoring:
            others.used, others.leased = max(others.used, grant.used), max(others.leased, grant.leased)
            others.base = max(others.base, grant.base)
            if isinstance(quota, LeasedSlots) and not quota.lease.is_share:  # slots keep the former lease
                quota.valid_until_s = sent_s + self._times.lease_s
            else:
                self._share(quota)
            quota.note_report(sent_s)
        else:
            others.used, others.leased, others.base = grant.used, grant.leased, grant.base
            quota.leased(grant.lease, reported=used, at_s=sent_s, until_s=sent_s + self._times.lease_s)
        if grant.lease < need:
            longer = 1.0 if isinstance(quota, LeasedSlots) else self.round_s / self._times.round_s
            quota.exhausted_until_s = sent_s + longer * EXHAUSTED_S
        if isinstance(quota, LeasedSlots) and (quota.lacks or quota.is_too_many):
            self.ask(quota)
