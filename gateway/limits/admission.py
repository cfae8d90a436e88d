"""Whether a call may begin: all of its amounts are held at once, or none, after a wait for leases or in a line."""

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

LINE_S = 30.0  # a call waits so long in line at most: less than proxies wait for the head of an answer
PATIENCE_S = 0.05  # a call with an empty lease waits for a larger one
MOST_WAITING = 64  # calls in one line; further ones are refused at once
ASKS_AGAIN_S = 0.2  # after which the first in line asks again: calls of other processes end without a word to this one
MOST_WAITS = 4  # of a call, each for all leases that are too small then

# The quotas of an account to be held, and their level. The amounts, by what a quota counts, are the same at each level:
# one request, and the tokens and dollars of one call.
Wanted = tuple[Account, Sequence[Quota], Level]


class Admission:
    """Admits the calls of a process. ``beyond_usd`` is everywhere that of ``Use``."""

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
        """As ``at_once``; wait at most ``line_s`` for dollars that running calls hold, behind the calls that do so.

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
        """Hold all in turn, behind those in the line for ``ahead``; return another quota to be waited for instead."""
        whose = next(level.whose for _, quotas, level in wanted if ahead in quotas)
        held = LimitHeld(ahead, whose, self._unix_clock(), of_model=of_model)
        if self.lines.is_full(ahead):
            raise held
        with self.lines.joined(ahead) as place:
            while await place.comes(until_s):
                try:
                    await self.at_once(wanted, amounts, beyond_usd=beyond_usd, of_model=of_model)
                except LimitHeld as error:
                    if error.quota is not ahead and error.limit in DOLLARS:
                        return error.quota
                    held = error
                else:
                    return None
        raise held

    async def at_once(
        self,
        wanted: Sequence[Wanted],
        amounts: Mapping[str, float],
        *,
        beyond_usd: float = 0.0,
        of_model: bool = False,
    ) -> None:
        """Hold all or nothing; when leases are too small, wait for larger ones.

        While one is waited for, other calls may use up another: it is then waited for likewise. It is not asked for
        again where less was granted than asked for.

        Raises:
            LimitReached: one of the quotas has too little left.

        """
        asked: set[Quota] = set()
        now_s = self._clock()
        for turn in range(MOST_WAITS + 1):
            if _held(wanted, amounts, now_s):
                return
            short = list(_short(wanted, amounts, now_s))
            refusing = [each for each in short if each[0] in asked and _is_denied(each[0], now_s)]
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
            asked.update(quota for quota, *_ in short)
            await self._leases.enlarge([(quota, amount) for quota, amount, *_ in short], PATIENCE_S, beyond_usd)
            now_s = self._clock()


def hold(wanted: Sequence[Wanted], amounts: Mapping[str, float]) -> None:
    """Hold the amounts, whatever is left."""
    for _, quotas, _ in wanted:
        for quota in quotas:
            quota.latest = amount = amounts[quota.counts]
            quota.held += amount


def settle(held: Sequence[Wanted], amounts: Mapping[str, float], used: Mapping[str, float]) -> None:
    """Replace held amounts by used ones, both by what a quota counts."""
    for _, quotas, _ in held:
        for quota in quotas:
            counts = quota.counts
            quota.held -= amounts[counts]
            quota.used += used[counts]


def is_left_beside(wanted: Sequence[Wanted], held_usd: float) -> bool:
    """Whether anything is left of each quota of dollars beside a call that holds ``held_usd`` of it."""
    for _, quotas, _ in wanted:
        for quota in quotas:
            others = quota.used + quota.held - held_usd
            if not quota.lease.is_share:
                others += quota.elsewhere.used + quota.elsewhere.leased
            if others + LEAST_USD > (quota.top if quota.lease.is_share else quota.limit):
                return False
    return True


def without_dollars(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Return these limits without those in dollars."""
    return [
        (account, tuple(quota for quota in quotas if quota.name not in DOLLARS), level)
        for account, quotas, level in wanted
    ]


def _held(
    wanted: Sequence[Wanted], amounts: Mapping[str, float], now_s: float, beyond_usd: float | None = None
) -> bool:
    """Hold all or nothing; return whether it succeeded.

    ``beyond_usd``: shares of dollars may be exceeded; leases have it in them.
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
    """Yield the quotas with less than the amount left, with the amount, the account and the level."""
    for account, quotas, level in wanted:
        for quota in quotas:
            if not quota.has(amounts[quota.counts], now_s):
                yield quota, amounts[quota.counts], account, level


def _is_denied(quota: Quota, now_s: float) -> bool:
    """Whether a lease that was asked for is as large as it gets."""
    return quota.lease.is_share or now_s < quota.exhausted_until_s


# Calls that wait in line for dollars that running calls hold, one line for each quota.


class Lines:
    """The lines of a process. The first in line tries again whenever a call that holds of its quota ends."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[Quota, deque[asyncio.Event]] = {}

    def __bool__(self) -> bool:
        """Whether any call waits."""
        return bool(self._lines)

    def first(self, quotas: Iterable[Quota]) -> Quota | None:
        """Return the first of ``quotas`` that calls wait for already; None if there is none."""
        return next((quota for quota in quotas if quota in self._lines), None)

    def is_full(self, quota: Quota) -> bool:
        """Whether so many wait for ``quota`` that no other may."""
        return len(self._lines.get(quota, ())) >= MOST_WAITING

    def freed(self, quotas: Iterable[Quota]) -> None:
        """Let the first in each line try again, as something of its quota may be free."""
        for quota in quotas:
            if (line := self._lines.get(quota)) is not None:
                quota.exhausted_until_s = -inf
                line[0].set()

    @contextmanager
    def joined(self, quota: Quota) -> Iterator["LinePlace"]:
        """Join the end of the line for ``quota``; the next is first when this one leaves."""
        line = self._lines.setdefault(quota, deque())
        line.append(own := asyncio.Event())
        if line[0] is own:
            own.set()
        try:
            yield LinePlace(line, own)
        finally:
            line.remove(own)
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
        """Wait until it is worth trying; False if it is not by ``until_s``, of the event loop's clock."""
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
