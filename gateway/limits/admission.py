"""Whether a call may begin: all amounts are held at once, or none, after a wait for leases or in a line."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf

from gateway.core.calls import Level
from gateway.core.tasks import pause
from gateway.limits.accounts import Account
from gateway.limits.quota import LEAST_USD, Leases, Quota
from gateway.limits.refusals import LimitHeld, LimitReached, limit_reached, longest
from gateway.limits.windows import DOLLARS

LINE_S = 30.0  # the longest wait in line: proxies wait longer than this for the head of an answer
PATIENCE_S = 0.05  # a call's wait for a larger lease, when the lease is used up
MOST_WAITING = 64  # calls in one line; more are refused at once
ASKS_AGAIN_S = 0.2  # after which the first in line tries again: other processes do not say when their calls end
MOST_WAITS = 4  # of a call, each for all leases that are too small at the time

# The quotas to hold in an account, and the account's level. The amounts, by what a quota counts, are the same at each
# level: one request, and the tokens and dollars of one call.
Wanted = tuple[Account, Sequence[Quota], Level]


class Admission:
    """Admits the calls of a process. ``beyond_usd``: as in ``Use``."""

    def __init__(self, leases: Leases, *, clock: Callable[[], float], unix_clock: Callable[[], float]) -> None:
        self.lines = Lines()
        self._leases = leases
        self._clock = clock
        self._unix_clock = unix_clock

    async def in_line(
        self,
        wanted: Sequence[Wanted],
        amounts: Mapping[str, float],
        *,
        beyond_usd: float,
        of_model: bool = False,
        line_s: float = 0.0,
    ) -> None:
        """As ``at_once``, but wait up to ``line_s``, behind calls that wait, for dollars that running calls hold.

        Raises:
            LimitReached: one of the quotas has too little left.

        """
        ahead = None
        if self.lines and beyond_usd:
            ahead = self.lines.first(quota for _, quotas, _ in wanted for quota in quotas)
        if ahead is None:
            try:
                await self.at_once(wanted, amounts, beyond_usd=beyond_usd, of_model=of_model)
            except LimitHeld as error:
                if not line_s or not beyond_usd or error.limit not in DOLLARS:
                    raise
                ahead = error.quota
            else:
                return
        until_s = asyncio.get_running_loop().time() + line_s
        while ahead is not None:
            ahead = await self._behind(ahead, until_s, wanted, amounts, beyond_usd=beyond_usd, of_model=of_model)

    async def _behind(
        self,
        ahead: Quota,
        until_s: float,
        wanted: Sequence[Wanted],
        amounts: Mapping[str, float],
        *,
        beyond_usd: float,
        of_model: bool,
    ) -> Quota | None:
        """Hold all in turn, behind the line for ``ahead``; return another quota if the call has to wait for that."""
        whose = next(level.whose for _, quotas, level in wanted if ahead in quotas)
        refusal = LimitHeld(ahead, whose, self._unix_clock(), of_model=of_model)
        if self.lines.is_full(ahead):
            raise refusal
        with self.lines.joined(ahead) as place:
            while await place.comes(until_s):
                try:
                    await self.at_once(wanted, amounts, beyond_usd=beyond_usd, of_model=of_model)
                except LimitHeld as error:
                    if error.quota is not ahead and error.limit in DOLLARS:
                        return error.quota
                    refusal = error
                else:
                    return None
        raise refusal

    async def at_once(
        self,
        wanted: Sequence[Wanted],
        amounts: Mapping[str, float],
        *,
        beyond_usd: float = 0.0,
        of_model: bool = False,
    ) -> None:
        """Hold all or nothing; when leases are too small, wait for larger ones.

        During the wait other calls may use up another lease; then there is another wait for that one. A lease is not
        asked for again after less was granted than requested.

        Raises:
            LimitReached: one of the quotas has too little left.

        """
        requested: set[Quota] = set()
        now_s = self._clock()
        for turn in range(MOST_WAITS + 1):
            if _held(wanted, amounts, now_s):
                return
            short = list(_short(wanted, amounts, now_s))
            refusing = [each for each in short if each[0] in requested and _is_denied(each[0], now_s)]
            if refusing or turn == MOST_WAITS:
                if beyond_usd and _held(wanted, amounts, now_s, beyond_usd):
                    return
                unix_s, refusals = self._unix_clock(), dict[LimitReached, Account]()
                for quota, amount, account, level in refusing or short[:1]:
                    least = amount - quota.beyond_of(amount, beyond_usd)
                    refusals[
                        limit_reached(quota, level.whose, unix_s, of_model=of_model, amount=least, most=amount)
                    ] = account
                error = longest(refusals, unix_s)
                if not isinstance(error, LimitHeld):
                    refusals[error].refused_by = error.quota
                raise error
            requested.update(quota for quota, *_ in short)
            await self._leases.enlarge([(quota, amount) for quota, amount, *_ in short], PATIENCE_S, beyond_usd)
            now_s = self._clock()


def hold(wanted: Sequence[Wanted], amounts: Mapping[str, float]) -> None:
    """Hold the amounts, even beyond what is left."""
    for _, quotas, _ in wanted:
        for quota in quotas:
            quota.latest = amount = amounts[quota.counts]
            quota.held += amount


def settle(held: Sequence[Wanted], amounts: Mapping[str, float], used: Mapping[str, float]) -> None:
    """Replace held amounts by used amounts; both by what a quota counts."""
    for _, quotas, _ in held:
        for quota in quotas:
            counts = quota.counts
            quota.held -= amounts[counts]
            quota.used += used[counts]


def is_left_beside(wanted: Sequence[Wanted], held_usd: float) -> bool:
    """Whether anything is left of each quota of dollars beside the holds of others; the call holds ``held_usd``."""
    for _, quotas, _ in wanted:
        for quota in quotas:
            others = quota.used + quota.held - held_usd
            if not quota.lease.is_share:
                others += quota.elsewhere.used + quota.elsewhere.leased
            if others + LEAST_USD > (quota.top if quota.lease.is_share else quota.limit):
                return False
    return True


def without_dollars(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Return ``wanted`` without limits in dollars."""
    return [
        (account, tuple(quota for quota in quotas if quota.name not in DOLLARS), level)
        for account, quotas, level in wanted
    ]


def _held(
    wanted: Sequence[Wanted], amounts: Mapping[str, float], now_s: float, beyond_usd: float | None = None
) -> bool:
    """Hold all or nothing; return whether all is held.

    ``beyond_usd``: a share of dollars may be exceeded by so much; a lease includes it.
    """
    for _, quotas, _ in wanted:
        for quota in quotas:
            if not quota.has(amount := amounts[quota.counts], now_s):
                if beyond_usd is None or not quota.lease.is_share:
                    return False
                if not quota.has(amount - quota.beyond_of(amount, beyond_usd), now_s):
                    return False
    hold(wanted, amounts)
    return True


def _short(
    wanted: Sequence[Wanted], amounts: Mapping[str, float], now_s: float
) -> Iterator[tuple[Quota, float, Account, Level]]:
    """Yield the quotas with too little left, each with the amount, the account and the level."""
    for account, quotas, level in wanted:
        for quota in quotas:
            if not quota.has(amounts[quota.counts], now_s):
                yield quota, amounts[quota.counts], account, level


def _is_denied(quota: Quota, now_s: float) -> bool:
    """Whether the requested lease is as large as it gets."""
    return quota.lease.is_share or now_s < quota.exhausted_until_s


# Lines of calls that wait for dollars that running calls hold, one line for each quota.


class Lines:
    """The lines of a process. The first in line tries again whenever a call that holds some of the quota ends."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[Quota, deque[asyncio.Event]] = {}

    def __bool__(self) -> bool:
        """Whether any call waits."""
        return bool(self._lines)

    def first(self, quotas: Iterable[Quota]) -> Quota | None:
        """Return the first of ``quotas`` that has a line; None if there is none."""
        return next((quota for quota in quotas if quota in self._lines), None)

    def is_full(self, quota: Quota) -> bool:
        """Whether no other call may join the line for ``quota``."""
        return len(self._lines.get(quota, ())) >= MOST_WAITING

    def freed(self, quotas: Iterable[Quota]) -> None:
        """Let the first in each line try again, as some of the quota may be free."""
        for quota in quotas:
            if (line := self._lines.get(quota)) is not None:
                quota.exhausted_until_s = -inf
                line[0].set()

    @contextmanager
    def joined(self, quota: Quota) -> Iterator["LinePlace"]:
        """Join the end of the line for ``quota``; when this call leaves, the next is the first."""
        line = self._lines.setdefault(quota, deque())
        line.append(turn := asyncio.Event())
        if line[0] is turn:
            turn.set()
        try:
            yield LinePlace(line, turn)
        finally:
            line.remove(turn)
            if line:
                line[0].set()
            else:
                del self._lines[quota]


class LinePlace:
    """A call's place in a line."""

    __slots__ = ("_line", "_own")

    def __init__(self, line: deque[asyncio.Event], own: asyncio.Event) -> None:
        self._line = line
        self._own = own

    async def comes(self, until_s: float) -> bool:
        """Wait until another try is worth it; False: the event loop's clock has reached ``until_s``."""
        now_s = asyncio.get_running_loop().time
        while not self._own.is_set():
            left_s = until_s - now_s()
            if left_s <= 0.0:
                return False
            is_first = self._line[0] is self._own
            await pause(min(left_s, ASKS_AGAIN_S) if is_first else left_s, self._own)
            if is_first:
                break
        self._own.clear()
        return now_s() < until_s
