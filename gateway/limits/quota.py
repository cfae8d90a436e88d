"""A quota: this process's part of one limit in one window."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Protocol

import msgspec

from gateway.limits.windows import COUNTS, DOLLARS, ESTIMATED, LimitWindow, always

# Of the unspent part of a limit in dollars. Calls that may cost more lease nothing in advance, and return what they
# have not used when they end. Otherwise few such calls would keep other processes from dollars that nobody uses.
LARGE = 0.02

# A part of a limit in dollars: while more is left, no call is refused because it will probably cost more than what is
# left. So at the end of a day at most this part is unused.
UNUSED = 0.05
ROUNDING = 1e-9  # errors of sums of many small dollars
LEAST_USD = 3 * ROUNDING  # the least that counts as "left"; lease_scripts.py has the same number

# The minimum share of a divided limit, as half a call is useless.
SHARE_AT_LEAST = dict.fromkeys(("rpm", "max_parallel", "max_in_flight_fleet"), 1.0)


class Elsewhere(msgspec.Struct, gc=False):
    """Usage by other processes, as last read from Redis. ``base``: usage of processes that report no more."""

    used: float = 0.0
    leased: float = 0.0
    base: float = 0.0


class Lease(msgspec.Struct, gc=False):
    """A granted lease: the ``amount`` beyond the usage reported then, and the ``spare`` part that no call needed.

    ``is_share``: there is no lease, and ``Quota.top`` is a share of the limit.
    """

    amount: float = 0.0
    spare: float = 0.0
    is_share: bool = False


class UsageReport(msgspec.Struct, frozen=True, gc=False):
    """The last report of this process's usage to the others, and its time in monotonic seconds."""

    used: float = 0.0
    at_s: float = -inf


class Quota:
    """One limit in one window: the amounts used by this process, held by running calls, and the maximum of both.

    ``top`` is the maximum of ``used + held`` until ``valid_until_s`` (monotonic clock): the usage that was reported
    with the request for the lease, plus the lease. Amounts are requests, tokens, calls or US dollars.
    """

    __slots__ = (
        "beyond",
        "counts",
        "demand",
        "elsewhere",
        "exhausted_until_s",
        "held",
        "key",
        "latest",
        "lease",
        "limit",
        "name",
        "reported",
        "top",
        "used",
        "valid_until_s",
        "waiting",
        "window",
    )

    def __init__(self, owner: str, name: str, limit: float, window: LimitWindow) -> None:
        self.key = f"{owner}:{name}:{window.name}"
        self.name = name
        self.counts = COUNTS[name]  # the key in amounts: "rpm", "max_parallel", "tokens" or "usd"
        self.limit = limit
        self.window = window
        self.used = 0.0
        self.held = 0.0
        self.top = 0.0
        self.valid_until_s = -inf
        self.exhausted_until_s = -inf  # until then nothing is assumed to be left in any process
        self.waiting = 0.0  # the amount that calls wait for
        self.beyond = 0.0  # how much may be leased beyond the limit: see ``Use.beyond_usd``
        self.reported: UsageReport | None = None  # None: not reported yet
        self.latest = 0.0  # the amount held last
        self.lease = Lease()
        self.elsewhere = Elsewhere()
        self.demand = UseRate()

    def has(self, amount: float, now_s: float) -> bool:
        """Whether ``amount`` may be held."""
        return self.used + self.held + amount <= self.top + ROUNDING and now_s < self.valid_until_s

    def is_exhausted(self, now_s: float) -> bool:
        """Whether nothing is left in any process, as far as known. Running calls may return some of what they hold."""
        least = SHARE_AT_LEAST.get(self.name, _LEAST)
        if self.name in ESTIMATED and self.unspent >= least:
            return False  # the call that was refused was larger
        return (self.lease.is_share or now_s < self.exhausted_until_s) and not self.has(least, now_s)

    def set_limit(self, limit: float) -> None:
        """Apply another limit; a new lease or share is needed then."""
        self.limit = limit
        self.valid_until_s = self.exhausted_until_s = -inf
        self.lease.is_share = False

    def hand_over(self) -> float:
        """Return the usage of all processes, as far as known; from now on count only further usage.

        The holds of running calls stay.
        """
        used, self.used = self.elsewhere.used + self.used, 0.0
        if self.reported is not None:
            self.reported = UsageReport(0.0, self.reported.at_s)
        self.set_limit(self.limit)
        return used

    @property
    def left(self) -> float:
        """What is left of the limit in all processes, as far as this process knows."""
        return max(0.0, self.limit - self.elsewhere.used - self.used - self.held)

    @property
    def expected_left(self) -> float:
        """What is left in all processes; where there are shares, assume that all have used as much of theirs."""
        if not self.lease.is_share or self.top <= 0:
            return self.left
        return max(0.0, (self.limit - self.elsewhere.used) * (1 - (self.used + self.held) / self.top))

    @property
    def unspent(self) -> float:
        """The unspent part of the limit or share, as far as known here; running calls may hold some of it."""
        return (self.top if self.lease.is_share else self.limit - self.elsewhere.used) - self.used

    @property
    def taken(self) -> float | None:
        """The used and held amount in all processes, as far as known here; None before the first lease or share."""
        return None if self.valid_until_s == -inf else self.elsewhere.used + self.used + self.held

    def share(self, processes: int, now_s: float, *, leased_since: float = 0.0) -> None:
        """Without a new lease, allow the last lease plus this process's share of the unleased rest.

        ``leased_since``: the amount that other processes may have leased since their usage was read. Repeated shares do
        not add up: each starts from the reported usage.
        """
        if now_s >= self.valid_until_s:
            self.lease.amount = 0.0
        reported = 0.0 if self.reported is None else self.reported.used
        others = self.elsewhere.used + self.elsewhere.leased + leased_since
        free = max(0.0, self.limit - others - reported - self.lease.amount)
        at_least = min(SHARE_AT_LEAST.get(self.name, 0.0), self.lease.amount + free)
        self.top = reported + max(self.lease.amount + free / processes, at_least)
        self.valid_until_s = inf
        self.lease.is_share = True

    def preference(self, now_s: float, ahead_s: float) -> tuple[float, float]:
        """Return the amount that calls need, and the amount to lease in advance for the next ``ahead_s``."""
        reached = self.used + self.held
        ahead = self.demand.expected(reached, self.latest, now_s, ahead_s)
        if self.name in DOLLARS and self.is_large(self.latest):
            ahead = 0.0
        return self.held + self.waiting, ahead

    def is_large(self, usd: float) -> bool:
        """Whether so many dollars are a large part of the limit's unspent dollars."""
        return usd > LARGE * max(0.0, self.limit - self.elsewhere.used - self.used)

    def least_of(self, usd: float) -> float:
        """Return the dollars that must be left of the limit for a call that will probably cost ``usd``.

        A call that will probably cost more than the limit has room in no window.
        """
        return usd if usd > self.limit else max(LEAST_USD, min(usd, UNUSED * self.limit))

    def beyond_of(self, amount: float, beyond_usd: float) -> float:
        """Return the part of ``amount`` that may lie beyond a limit in dollars: ``beyond_usd``, more near the end."""
        if not beyond_usd or self.name not in DOLLARS:
            return 0.0
        return max(0.0, amount - self.least_of(amount - beyond_usd))

    def drop_beyond(self) -> None:
        """Lower ``top`` to what the limit has left, when the call that had a lease beyond the limit has ended."""
        if not self.lease.is_share:
            self.top = min(
                self.top, max(self.used + self.held, self.limit - self.elsewhere.used - self.elsewhere.leased)
            )

    def reach(self, now_s: float) -> float:
        """Return the further usage that this process may have without another lease."""
        return max(0.0, self.top - self.used) if now_s < self.valid_until_s else 0.0

    def give_back(self, ahead: float) -> None:
        """Reduce the lease to what calls need, plus ``ahead``."""
        if not self.lease.is_share:
            self.top = min(self.top, self.used + self.held + self.waiting + min(ahead, self.lease.spare))
            reported = 0.0 if self.reported is None else self.reported.used
            self.lease.amount = min(self.lease.amount, max(0.0, self.top - reported))

    def note_report(self, at_s: float) -> None:
        """Record the time of a report; the reported amount does not count for shares yet."""
        if self.reported is not None:
            self.reported = UsageReport(self.reported.used, at_s)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is held or waited for, and all usage is reported."""
        is_reported = self.reported is not None and self.reported.used == self.used
        return is_reported and self.held < ROUNDING and self.waiting < ROUNDING

    @property
    def is_idle(self) -> bool:
        """Whether the quota is settled and nothing is leased."""
        return self.is_settled and not self.lease.is_share and self.top <= self.used + ROUNDING

    def leased(self, lease: float, *, reported: float, at_s: float, until_s: float) -> None:
        """Apply a lease, granted at ``at_s`` in reply to a report of the usage ``reported``."""
        self.reported = UsageReport(reported, at_s)
        self.lease.amount = lease
        self.top = reported + lease
        self.valid_until_s = until_s
        self.lease.is_share = False


class UseRate:
    """The rate at which a quota is used, which decides how much is leased in advance."""

    __slots__ = ("_at_s", "_rate", "_reached")

    def __init__(self) -> None:
        self._rate = 0.0  # a second
        self._reached = 0.0
        self._at_s = -inf

    def expected(self, reached: float, latest: float, now_s: float, ahead_s: float) -> float:
        """Return the expected usage in ``ahead_s``, at least that of the ``latest`` call if the quota is in use.

        ``reached``: the used and held amount now. The rate of an unused quota falls to a quarter at each call of this
        method, so that the lease is returned.
        """
        passed_s, taken = now_s - self._at_s, max(0.0, reached - self._reached)
        self._at_s, self._reached = now_s, reached
        rate = taken / passed_s if passed_s > 0 else self._rate
        self._rate = max(rate, (self._rate + rate) / 2) if taken else self._rate / 4
        return max(latest if taken else 0.0, self._rate * ahead_s)


class LeasedSlots(Quota):
    """This process's leased slots of one deployment's ``max_in_flight_fleet``, and its attempts in flight there.

    An attempt finds a free slot, or none: attempts never wait for a lease. A process that lacks slots reports the lack
    in the next round. Then the other processes return their idle slots and, above a fair part, those that become free.
    With fewer slots than processes, they take turns of ``TURN_S``.
    """

    __slots__ = (
        "_changed",
        "_clock",
        "_waiting_calls",
        "ask",
        "fair",
        "is_wanted",
        "running",
        "turn_until_s",
        "turned_away",
    )

    def __init__(
        self,
        deployment: str,
        limit: int,
        *,
        clock: Callable[[], float],
        waiting_calls: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        """Start without a lease. ``changed``: called when the number of free slots may have changed."""
        super().__init__(f"deployment:{deployment}", "max_in_flight_fleet", limit, always(0.0))
        self.ask: Callable[[], None] = _do_nothing  # starts an early round, to request or return slots
        self.turned_away = 0  # calls that found no slot since the last report
        self.running = 0.0  # attempts of the other processes
        self.is_wanted = False  # whether other processes lack slots
        self.fair = 0.0  # the slots that this process may keep while others lack slots
        self.turn_until_s = -inf  # until then this process may use its grant, though others lack slots
        self._clock = clock
        self._waiting_calls = waiting_calls
        self._changed = changed

    @property
    def most(self) -> int:
        """The maximum of attempts in flight of this process, now."""
        return int(self.top + ROUNDING) if self._clock() < self.valid_until_s else 0

    def hold(self, taken: int) -> None:
        """Set the number of attempts in flight; report at once if a slot that others lack is free now."""
        self.held = float(taken)
        if self.is_wanted and self.is_too_many:
            self.ask()

    def turn_away(self) -> None:
        """Count a call that found no slot, and ask for more."""
        self.turned_away += 1
        self.ask()

    def share(self, processes: int, now_s: float, *, leased_since: float = 0.0) -> None:
        """See ``Quota``. Without Redis it is unknown whether others lack slots."""
        self.is_wanted = False
        super().share(processes, now_s, leased_since=leased_since)
        self._changed()

    def set_limit(self, limit: float) -> None:
        """Apply another limit. If it is lower, nothing is launched until the next reply from Redis."""
        if limit < self.limit:
            self.valid_until_s = -inf
            self.top = min(self.top, limit)
        self.limit = limit
        self.lease.is_share = False

    @property
    def is_idle(self) -> bool:
        """False: slots are part of each round, so that the next attempt finds a free slot, and the load is known."""
        return False

    @property
    def lacks(self) -> bool:
        """Whether calls wait for a slot."""
        return self._waiting_calls() > 0

    @property
    def is_too_many(self) -> bool:
        """Whether this process has leased slots that it does not use and others lack."""
        return self._is_due() and self.lease.amount >= self.held + 1.0

    def preference(self, now_s: float, ahead_s: float) -> tuple[float, float]:
        """See ``Quota``. The amount in advance is as much as the script grants, and 0 while others lack slots."""
        del now_s, ahead_s
        self.waiting, self.turned_away = float(max(self._waiting_calls(), self.turned_away)), 0
        if not self._is_due():
            return self.held + self.waiting, self.limit
        self.top = min(self.top, self.fair)
        return self.held + self.waiting, 0.0

    def reach(self, now_s: float) -> float:
        """See ``Quota``; at least the attempts in flight."""
        return max(self.held, super().reach(now_s))

    def give_back(self, ahead: float) -> None:
        """See ``Quota``; slots in use stay leased."""
        before = self.lease.amount
        super().give_back(ahead)
        self.lease.amount = min(before, max(self.lease.amount, self.held))

    def update_others(self, running: float, fair: float, *, is_wanted: bool) -> None:
        """Set the others' attempts in flight, the fair part of each process, and whether others lack slots."""
        self.running, self.fair, self.is_wanted = running, fair, is_wanted

    def leased(self, lease: float, *, reported: float, at_s: float, until_s: float) -> None:
        """See ``Quota``; a larger lease while others lack slots begins a turn."""
        if self.is_wanted and lease > self.lease.amount:
            self.turn_until_s = at_s + TURN_S
        super().leased(lease, reported=reported, at_s=at_s, until_s=until_s)
        if self._is_due():
            self.top = min(self.top, max(self.fair, 0.0))
        self._changed()

    def _is_due(self) -> bool:
        return self.is_wanted and self._clock() >= self.turn_until_s


TURN_S = 0.5  # the length of a round: in shorter turns slots would be passed on more often than requested


def _do_nothing() -> None:
    pass


_LEAST = 1e-6  # of tokens or dollars


# Leases: the part of a quota that this process may use. Without Redis, its share of the limit.


class Leases(Protocol):
    """Decides how much of each quota this process may use; amounts are in the limit's unit."""

    @property
    def connected(self) -> bool:
        """Whether leases are available; True where none are needed."""

    @property
    def sees_all(self) -> bool:
        """Whether no other process uses the same limits, so that this process knows all usage."""

    @property
    def round_s(self) -> float:
        """Seconds between two rounds with other processes; 0 without other processes."""

    @property
    def took_s(self) -> float:
        """Seconds that the last round took."""

    @property
    def shared_clock(self) -> Callable[[], float] | None:
        """The clock by which all processes count minutes and days, in Unix seconds; None: each process has its own."""

    async def enlarge(self, short: Sequence[tuple[Quota, float]], patience_s: float, beyond_usd: float = 0.0) -> None:
        """Try to let each quota hold the amount beside it; wait at most ``patience_s``.

        ``beyond_usd``: by how much a lease of dollars may exceed the limit, in one process at a time.
        """

    def keep(self, quota: Quota) -> None:
        """Tell the other processes about ``quota`` until its window ends; ``enlarge`` includes this."""

    def forget(self, quota: Quota) -> None:
        """Stop telling about ``quota``: nothing is held, and nothing was used in a window that still lasts."""

    def give_back(self, quota: Quota) -> None:
        """Return soon what ``quota`` does not need."""

    def lend(self, slots: LeasedSlots) -> None:
        """Lease ``slots`` from now on, in each round, and when ``slots.ask`` is called."""

    def end(self, slots: LeasedSlots) -> None:
        """Stop leasing ``slots``: the limit was removed."""

    def recollect(self, spent: Mapping[str, float]) -> None:
        """Set the usage before the start, in US dollars or tokens by the key of the quota."""

    def recollected(self, key: str) -> float:
        """Return the usage before the start, by the key of the quota."""

    async def start(self) -> None:
        """Start the background tasks."""

    async def close(self) -> None:
        """Stop the rounds, and return all leases."""


_FEW_KEPT = 256


class OwnShare:
    """Leases without Redis: each of ``processes`` has a fixed share of each limit."""

    def __init__(self, processes: int, *, clock: Callable[[], float], unix_clock: Callable[[], float]) -> None:
        self._processes = processes
        self._clock = clock
        self._unix_clock = unix_clock
        self._spent: Mapping[str, float] = {}
        self._kept: dict[str, Quota] = {}
        self._looked_through_at = _FEW_KEPT

    connected = True
    round_s = took_s = 0.0
    shared_clock = None

    @property
    def sees_all(self) -> bool:
        """Whether this is the only process."""
        return self._processes == 1

    async def enlarge(
        self,
        short: Sequence[tuple[Quota, float]],
        patience_s: float,  # noqa: ARG002 - no wait
        beyond_usd: float = 0.0,  # noqa: ARG002 - a share has no more
    ) -> None:
        """Give each quota its share, which stays the same within a window."""
        for quota, _ in short:
            if quota.key not in self._kept:
                self._forget_old()
                self._kept[quota.key] = quota
                quota.elsewhere.used = self._spent.get(quota.key, 0.0)
            quota.share(self._processes, self._clock())

    def keep(self, quota: Quota) -> None:
        """Do nothing: no other process has to know."""

    def forget(self, quota: Quota) -> None:
        """Forget the quota."""
        self._kept.pop(quota.key, None)

    def give_back(self, quota: Quota) -> None:
        """Do nothing: shares stay the same."""

    def lend(self, slots: LeasedSlots) -> None:
        """Give ``slots`` their share, also after a change of the limit."""
        slots.ask = lambda: None if slots.lease.is_share else slots.share(self._processes, self._clock())
        slots.ask()

    def end(self, slots: LeasedSlots) -> None:
        """Do nothing: no other process has to know."""

    def recollect(self, spent: Mapping[str, float]) -> None:
        """Set the usage before the start, by the key of the quota."""
        self._spent = spent
        for quota in self._kept.values():
            quota.elsewhere.used = spent.get(quota.key, 0.0)
            quota.set_limit(quota.limit)

    def recollected(self, key: str) -> float:
        """Return the usage before the start."""
        return self._spent.get(key, 0.0)

    async def start(self) -> None:
        """Do nothing: no other process is asked."""

    async def close(self) -> None:
        """Do nothing: nothing was leased."""

    def _forget_old(self) -> None:
        """Forget quotas of ended windows, when there are twice as many quotas as were left the last time."""
        if len(self._kept) < self._looked_through_at:
            return
        unix_s = self._unix_clock()
        self._kept = {key: quota for key, quota in self._kept.items() if quota.window.ends_s > unix_s}
        self._looked_through_at = max(_FEW_KEPT, 2 * len(self._kept))
