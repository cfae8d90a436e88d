"""The budget for extra attempts: a token bucket per model, filled by calls and emptied by extra attempts."""

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import exp, inf

from gateway.core.attempts import Narrowed, Role
from gateway.core.calls import HourlySum, Mode, Spent
from gateway.core.shares import Shares
from gateway.settings import RaceSettings
from gateway.steering.constants import (
    BURST_CALLS,
    BURST_TOKENS,
    HEDGE_MIN_S,
    HEDGE_SHARE,
    LIMIT_GROWS,
    LIMIT_USED,
    PACE_EVERY_S,
    PACE_FAIR,
    PACE_GAIN,
    PACE_LEAST,
    PACE_MEMORY,
    PACE_MEMORY_S,
    PACE_MOST,
    PACE_PRIOR,
    PACE_STEP_MAX,
    RESCUED_OF,
    RESCUED_SHARE,
    WARY_FROM,
)
from gateway.steering.health import Health
from gateway.steering.load import Launches

FREE = frozenset({Role.PRIMARY, Role.PROBE})  # roles that a call needs anyway, or does not wait for


class Budget:
    """The extra attempts that may still start for one model.

    Every call adds ``ratio`` tokens, up to 20. An extra attempt takes a token when it starts, not when it is planned:
    most hedges never start. Exploration may overdraw by one burst. So any number of calls uses at most ``ratio`` tokens
    per call and two bursts. A fallback beside a late model may overdraw as well: after it there are fewer races. For
    example, with a ``ratio`` of 0.1 ten calls pay for one extra attempt.

    Rescues start beside an attempt that hangs. In a share of the latest calls a rescue takes no token. Beyond that
    share rescues are extra attempts like any other: the budget pays for a rescue, or the rescue waits. An exploring
    attempt of ``single`` counts as a rescue.

    If ``extra_usd_per_call`` is set, dollars are counted as well. They start at 0, so any number of calls spends at
    most that amount per call, plus the last attempt.

    Clients share all of this: a client that races each call uses up what its own calls add, and what others leave.
    """

    __slots__ = ("_calls", "_rescued", "_shares", "_shares_of_rescues", "_shares_of_usd", "tokens", "usd")

    def __init__(self) -> None:
        self.tokens = BURST_TOKENS
        self.usd = 0.0  # saved so far
        self._calls = 0
        self._rescued: deque[int] = deque()  # the number of the call at each of the latest rescues
        self._shares = Shares(BURST_TOKENS)
        self._shares_of_rescues = Shares(_FREE_RESCUES)
        self._shares_of_usd = Shares(BURST_CALLS)  # in units of what one call saves

    @property
    def rescues(self) -> int:
        """The rescues of the latest calls."""
        while self._rescued and self._rescued[0] <= self._calls - RESCUED_OF:
            self._rescued.popleft()
        return len(self._rescued)

    def rescue(self, ratio: float, client: str | None = None) -> bool:
        """Whether a rescue may start beside a hanging attempt; if so, count the rescue, and charge it after many."""
        free = _FREE_RESCUES - self.rescues
        if free <= 0 or not self._shares_of_rescues.takes(client, free):
            if ratio <= 0 or self.tokens < 1.0 or not self._shares.takes(client, self.tokens):
                return False
            self.tokens -= 1.0
        self._rescued.append(self._calls)
        return True

    def accrue(self, ratio: float, client: str | None = None, now_s: float = 0.0) -> None:
        """Count one call, of ``client``."""
        self._calls += 1
        if (tokens := self.tokens + ratio) > BURST_TOKENS:  # ``min`` is a call, here of each call
            tokens = BURST_TOKENS
        self.tokens = tokens
        shares, of_rescues = self._shares, self._shares_of_rescues  # the three know the same clients
        own = shares.known.get(client)
        if own is None or own.due_s <= now_s:
            shares.earn(client, ratio, now_s)
            of_rescues.earn(client, RESCUED_SHARE, now_s)
            return
        if own.left < shares.half:  # as ``Shares`` would do, without the call of a function
            own.left = left if (left := own.left + ratio) < shares.half else shares.half
        if of_rescues.is_used:
            own = of_rescues.known[client]
            own.left = min(of_rescues.half, own.left + RESCUED_SHARE)

    def draw(self, role: Role, ratio: float, *, alone: bool = False, client: str | None = None) -> bool:
        """Whether an attempt in this role may start now; if so, charge it. ``alone``: the call has one attempt."""
        if role in FREE:
            return True
        if role is Role.FAILOVER or (alone and role is Role.EXPLORE):
            return self.rescue(ratio, client)
        if role in _OVERDRAW:
            may = (
                self.rescue(ratio, client) if role is Role.FALLBACK else ratio > 0 and self.tokens >= 1.0 - BURST_TOKENS
            )
        else:
            may = ratio > 0 and self.tokens >= 1.0 and self._shares.takes(client, self.tokens)
        if may:
            self.tokens = max(-BURST_TOKENS, self.tokens - 1.0)
            if role in _OVERDRAW:
                self._shares.overdraw(client)
        return may

    def earn(self, usd_per_call: float, client: str | None = None, now_s: float = 0.0) -> None:
        """Save the dollars of one call, up to those of 20 calls."""
        self.usd = min(BURST_CALLS * usd_per_call, self.usd + usd_per_call)
        self._shares_of_usd.earn(client, 1.0, now_s)

    def affords(self, cost_usd: float, usd_per_call: float, client: str | None = None) -> bool:
        """Whether an attempt of this maximum cost can be paid.

        An attempt that costs more than the maximum savings starts when the savings are full; later calls pay off the
        debt.
        """
        if cost_usd <= 0:
            return True
        if usd_per_call <= 0 or self.usd < min(cost_usd, BURST_CALLS * usd_per_call) * _ROUNDING:
            return False
        return self._shares_of_usd.permits(client, *self._in_calls(cost_usd, usd_per_call))

    def pay(self, cost_usd: float, usd_per_call: float = 0.0, client: str | None = None) -> None:
        """Charge the dollars of an extra attempt that starts now."""
        if usd_per_call > 0:
            self._shares_of_usd.takes(client, *self._in_calls(cost_usd, usd_per_call))
        self.usd -= cost_usd

    def _in_calls(self, cost_usd: float, usd_per_call: float) -> tuple[float, float]:
        """Return the savings and an attempt's cost, each in units of what one call saves."""
        return self.usd / usd_per_call, cost_usd / usd_per_call * _ROUNDING


_OVERDRAW = frozenset({Role.EXPLORE, Role.FALLBACK})
_FREE_RESCUES = RESCUED_SHARE * RESCUED_OF


def within(race: RaceSettings, costs: Mapping[str, float], free: Container[str] | None = None) -> RaceSettings:
    """Return ``race`` with its budget limited to what ``extra_usd_per_call`` pays for at these ``costs`` (US dollars).

    If the money pays for few attempts only, they become hedges for the slowest calls, not races of the first ones.
    ``free`` has the deployments that a client's own key pays for.
    """
    paid = costs.values() if free is None else [usd for name, usd in costs.items() if name not in free]
    mean_usd = sum(paid) / len(costs) if costs else 0.0
    if race.extra_usd_per_call is None or race.extra_usd_per_call >= race.budget * mean_usd:
        return race
    return race.model_copy(update={"budget": race.extra_usd_per_call / mean_usd})


_ROUNDING = 1 - 1e-9  # sums of many small dollars


# Spending: what each model's extra attempts may have cost today, compared with ``race.usd_per_day``.


class Spending:
    """US dollars at list price by model, for the current UTC day: this replica's, and the others' as last reported.

    An attempt is charged when it starts, with its maximum: its prompt and an answer of the usual length. For a loser
    that is cut early this is too much, but running calls can never overdraw. Replicas share their totals through Redis
    every second or two; without Redis, each applies the limit to what it knows. For the time before its start a replica
    takes from the ledger what extra attempts did cost.

    Clients share a day's dollars. Each client that has called within a day may spend an equal part at any time. When a
    client asks for more, the other clients' unspent parts are freed for it evenly from then until midnight. So no
    client uses up another's part at once, and all dollars are used if one client can use them. A client alone may spend
    all.
    For example, of 10 dollars two clients may spend 5 each at any time. A client that asks for more at noon, while the
    other has spent nothing, may have 2.50 dollars of the other's part by 18:00. Replicas tell each other what their
    clients have spent.
    """

    def __init__(self, unix_clock: Callable[[], float]) -> None:
        self._unix_clock = unix_clock
        self._day = ""
        self._own: dict[str, float] = {}
        self._others: dict[str, float] = {}
        self._before = self._day, self._own, self._others
        self._recollected: tuple[str, Mapping[str, float]] = "", {}  # from the ledger: a day, and that day's spending
        self._clients: dict[str, dict[str | None, float]] = {}  # by model; the client that called last is at the end
        self._beyond: dict[str, float] = {}  # client → since when today it asks for more than its part
        self._called_before: dict[str, set[str]] = {}  # clients of today before the start, until their next call

    def unix_s(self) -> float:
        """Return the Unix time that determines the current day."""
        return self._unix_clock()

    def may_spend(self, model: str, usd: float, limit_usd: float, client: str | None = None) -> bool:
        """Whether ``usd`` more is within the day's limit. Marks the model as one whose total is read from Redis."""
        self._start_day()
        self._own.setdefault(model, 0.0)
        spent_usd = self._spent_usd(model)
        if spent_usd + usd > limit_usd:
            return False
        clients = self._clients.get(model, {})
        if len(clients) == (client in clients):  # no other client has called
            return True
        part_usd = limit_usd / (len(clients) + (client not in clients))
        if client is not None and self._spent_usd(_of_client(model, client)) + usd <= part_usd:
            return True
        by_client = self._by_client(model)
        if by_client.pop(client, 0.0) + usd <= part_usd:
            return True
        kept_usd = sum(part_usd - others_usd for others_usd in by_client.values() if others_usd < part_usd)
        now_s = self._unix_clock()
        began_s = self._beyond.setdefault(_of_client(model, client), now_s)
        return limit_usd - spent_usd - usd >= kept_usd * (_left_s(now_s) / _left_s(min(began_s, now_s)))

    def _by_client(self, model: str) -> dict[str | None, float]:
        """Return what each known client has spent today; the rest of the total is that of clients without a name."""
        clients = self._clients[model]
        spent: dict[str | None, float] = {
            each: self._spent_usd(_of_client(model, each)) for each in clients if each is not None
        }
        unnamed_usd = self._spent_usd(model) - sum(spent.values())
        return {each: spent.get(each, unnamed_usd) for each in clients}

    def called(self, model: str, client: str | None) -> None:
        """Note that ``client`` has called: a part of the day's dollars is its own."""
        self._start_day()
        self._own.setdefault(model, 0.0)
        for each in self._called_before.pop(model, ()):
            self.called(model, each)
        clients, now_s = self._clients.setdefault(model, {}), self._unix_clock()
        clients.pop(client, None)
        clients[client] = now_s
        if client is not None:
            self._own.setdefault(_of_client(model, client), 0.0)
        while len(clients) > _MOST_CLIENTS or next(iter(clients.values())) < now_s - _DAY_S:
            oldest = next(iter(clients))
            del clients[oldest]
            for spent in (self._own, self._others, self._beyond):
                spent.pop(_of_client(model, oldest), None)

    def charge(self, model: str, usd: float, client: str | None = None) -> None:
        """Charge an extra attempt that starts now."""
        self._start_day()
        self._own[model] = self._own.get(model, 0.0) + usd
        if client is not None and client in self._clients.get(model, ()):
            name = _of_client(model, client)
            self._own[name] = self._own.get(name, 0.0) + usd

    def today_usd(self, model: str) -> float:
        """Return what all replicas have spent on ``model`` today, as far as this one knows."""
        self._start_day()
        return self._spent_usd(model)

    def _spent_usd(self, model: str) -> float:
        """Return what a model, or one of its clients, has spent on the day that has begun."""
        day, recollected = self._recollected
        before_usd = recollected.get(model, 0.0) if day == self._day else 0.0
        # The other replicas' total has this sum too, unless there is no Redis, or Redis has lost its data.
        return self._own.get(model, 0.0) + max(self._others.get(model, 0.0), before_usd)

    def calls_today(self, model: str) -> float:
        """Count a call of ``model``; return how many all replicas have had today, as far as this one knows."""
        self._start_day()
        key = model + _CALLS
        self._own[key] = self._own.get(key, 0.0) + 1.0
        return self._own[key] + self._others.get(key, 0.0)

    def own_usd(self) -> tuple[str, Mapping[str, float]]:
        """Return the day (2026-03-04) and this replica's own spending by model, for the other replicas.

        Numbers of calls are included, under names with the suffix ``_CALLS``, and what each client has spent.
        """
        self._start_day()
        return self._day, self._own

    def learn(self, day: str, model: str, others_usd: float) -> None:
        """Set what the other replicas have spent on ``model`` on ``day``."""
        self._start_day()
        if day == self._day:
            self._others[model] = others_usd

    def recollect(self, rows: Iterable[Spent], unix_s: float, payer_of: Callable[[str], str] = str) -> None:
        """Set what was spent before the start, on the day of ``unix_s``.

        ``payer_of`` returns the model that pays for the calls of a name, as of a list.
        """
        rows = list(rows)
        spent: dict[str, float] = {}
        for row in rows:
            if row.client is not None and row.day_usd > 0.0:
                payer = payer_of(row.model)
                name = _of_client(payer, row.client)
                spent[name] = spent.get(name, 0.0) + row.extra_usd
                self._called_before.setdefault(payer, set()).add(row.client)
        for model, usd in _by_model_that_ran(rows).items():
            payer = payer_of(model)
            spent[payer] = spent.get(payer, 0.0) + usd
        self._recollected = _day_of(unix_s), spent

    def _start_day(self) -> None:
        """Start new sums on another day; the old ones are kept, in case a wrong clock is set back to their day."""
        day = _day_of(self._unix_clock())
        if day != self._day:
            before, self._before = self._before, (self._day, self._own, self._others)
            self._day, self._own, self._others = before if before[0] == day else (day, {}, {})
            self._beyond = {}


def _by_model_that_ran(rows: Iterable[Spent]) -> dict[str, float]:
    """Return what extra attempts have cost by the model that they ran for, US dollars.

    The ledger's sums have these costs by the model that was asked for, which is another model where a fallback ran.
    Only the cost of losers is known by the model that they ran for, too. Where a model's losers cost more than the
    model's own calls added, the rest was for calls of other models: these are relieved of that rest, each in proportion
    to the cost that its own losers do not explain.
    """
    dollars: dict[str, float] = {}
    lost: dict[str, float] = {}
    for row in rows:
        dollars[row.model] = dollars.get(row.model, 0.0) + row.extra_usd
        lost[row.model] = lost.get(row.model, 0.0) + row.lost_usd
    beyond = {model: dollars[model] - lost[model] for model in dollars}
    unexplained_usd = sum(usd for usd in beyond.values() if usd > 0.0)
    moved_usd = min(unexplained_usd, -sum(usd for usd in beyond.values() if usd < 0.0))
    stays = 1.0 - moved_usd / unexplained_usd if unexplained_usd else 1.0
    return {model: lost[model] + usd * (stays if usd > 0.0 else 0.0) for model, usd in beyond.items()}


_CALLS = "\0calls"  # no model has such a name
_MOST_CLIENTS = 100  # clients of a model whose parts are known: each is a command of Redis in each round


def _left_s(unix_s: float) -> float:
    """Return the seconds until midnight UTC."""
    return _DAY_S - unix_s % _DAY_S


def _of_client(model: str, client: str | None) -> str:
    return f"{model}\0of\0{client or ''}"  # no model has such a name


def _day_of(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).date().isoformat()


# Pacing: the value of a saved second at which a day's dollars last until the day ends.


class Pace:
    """The value of a saved second at which one model's ``race.usd_per_day`` lasts until midnight UTC.

    Dollars save most time if the maximum price of a saved second is the same all day. The right price depends on the
    day's calls, so it is found by feedback: the remaining dollars should be spent in proportion to the calls expected
    in each hour, by the hours of the day before, else evenly. If less was spent, the value rises; if more, the value
    falls. With x = ln(value / mean dollars of an attempt):

        dx = PACE_GAIN x (dollars that should have been spent - dollars spent) / (a mean hour's dollars)

    The step is linear in the dollars, so that a few expensive attempts weigh as much as many cheap ones. Each replica
    computes the step from the spending of all replicas. So that their values converge, each adds PACE_FAIR times the
    same step for its own calls: the dollars in proportion to their share of all calls, minus the dollars spent on them.
    """

    __slots__ = (
        "_at_s",
        "_by_hour",
        "_calls",
        "_calls_today",
        "_fleet_calls",
        "_hour",
        "_hour_from",
        "_knows",
        "_mean_usd",
        "_own",
        "_paid",
        "_seen",
        "_spent_usd",
        "_x",
        "payer",
    )

    def __init__(self, payer: str, by_hour: dict[int, float]) -> None:
        """Pace the dollars of ``payer``; ``by_hour``: its calls on the day before, by hour of the day (UTC)."""
        self.payer = payer
        self._by_hour = by_hour
        self._x = PACE_MOST
        self._mean_usd, self._paid = 0.0, 0  # mean cost of the last attempts, and their number
        self._at_s, self._knows = -inf, False  # the last step; whether the others' spending was known then
        self._spent_usd, self._seen = 0.0, 0.0  # at the last step, of that day: dollars and calls of all replicas
        self._own = 0.0  # dollars of this replica's calls since then
        self._calls = self._fleet_calls = 0.0  # recent, decayed
        self._hour, self._calls_today = -1, 0.0
        self._hour_from: float | None = None  # today's calls when the hour began; None: not observed

    @property
    def value_usd_per_s(self) -> float:
        """US dollars per second; infinite while the dollars suffice for every attempt that the budget allows."""
        return inf if self._x >= PACE_MOST or not self._paid else self._mean_usd * exp(self._x)

    def paid(self, payer: str, usd: float) -> None:
        """Record the maximum cost of an attempt that starts."""
        self.payer = payer
        self._paid = min(PACE_MEMORY, self._paid + 1)
        self._mean_usd += (usd - self._mean_usd) / self._paid
        self._own += usd

    def call(self, now_s: float, spent_usd: float, calls: float, limit_usd: float) -> None:
        """Count a call at the Unix time ``now_s``.

        All replicas have spent ``spent_usd`` of ``limit_usd`` today, on ``calls`` calls, as far as known.
        """
        hour = int(now_s // _HOUR_S)
        if hour != self._hour:
            self._end_hour(hour, calls)
        self._calls_today = calls
        self._calls += 1.0
        is_same_day = now_s // _DAY_S == self._at_s // _DAY_S
        goes_on = is_same_day and now_s >= self._at_s and spent_usd >= self._spent_usd  # else start over
        if goes_on and now_s < self._at_s + PACE_EVERY_S:
            return
        if goes_on and self._knows and 0.0 < limit_usd / _HOURS < inf:
            self._step(now_s, spent_usd, calls, limit_usd)
        self._knows = goes_on
        self._at_s, self._spent_usd, self._seen, self._own = now_s, spent_usd, calls, 0.0

    def _step(self, now_s: float, spent_usd: float, calls: float, limit_usd: float) -> None:
        fade = exp((self._at_s - now_s) / PACE_MEMORY_S)
        self._fleet_calls += max(0.0, calls - self._seen)
        share = min(1.0, self._calls / max(1.0, self._fleet_calls))
        self._calls, self._fleet_calls = self._calls * fade, self._fleet_calls * fade
        wanted_usd = max(0.0, limit_usd - self._spent_usd) * self._expected_share(now_s)
        hour_usd = limit_usd / _HOURS
        error = (wanted_usd - (spent_usd - self._spent_usd)) / hour_usd
        own_error = (wanted_usd * share - self._own) / (hour_usd * share)
        step = PACE_GAIN * error + PACE_FAIR * own_error
        self._x = min(PACE_MOST, max(PACE_LEAST, self._x + min(PACE_STEP_MAX, max(-PACE_STEP_MAX, step))))

    def _end_hour(self, hour: int, calls: float) -> None:
        """Store the count of the hour that has ended, if observed from its start. ``calls``: today's, with this one.

        In the hours skipped since then this replica had no calls. Today's calls of other replicas until now are spread
        over these hours.
        """
        calls_before = self._calls_today if hour // _HOURS == self._hour // _HOURS else 0.0
        skipped = range(max(self._hour + 1, hour - _HOURS), hour)
        today = sum(each // _HOURS == hour // _HOURS for each in skipped)
        others = max(0.0, calls - 1.0 - calls_before) if today else 0.0
        if self._hour_from is not None:
            # The other replicas' known total may have decreased: Redis lost its data, or the payer changed.
            self._by_hour[self._hour % _HOURS] = max(0.0, self._calls_today - self._hour_from)
            for each in skipped:
                self._by_hour[each % _HOURS] = others / today if each // _HOURS == hour // _HOURS else 0.0
        if self._hour >= 0:
            self._hour_from = calls_before + others
        self._hour = hour

    def _expected_share(self, now_s: float) -> float:
        """Return the expected share, by ``now_s``, of the calls between the last step and midnight."""
        usual = sum(self._by_hour.values()) / len(self._by_hour) if self._by_hour else 0.0
        hours = (
            [self._by_hour.get(hour, usual) + PACE_PRIOR * usual for hour in range(_HOURS)] if usual else [1.0] * _HOURS
        )
        begun_h, now_h = (seconds % _DAY_S / _HOUR_S for seconds in (self._at_s, now_s))
        first, last = int(begun_h), int(now_h)
        left = (first + 1 - begun_h) * hours[first] + sum(hours[first + 1 :])
        come = sum(hours[first:last]) + (now_h - last) * hours[last] - (begun_h - first) * hours[first]
        return min(1.0, come / left)


_PACED = "usd_per_day lasts until midnight UTC if a second is worth ${:.2g}"
_DAY_S, _HOUR_S, _HOURS = 86_400.0, 3600.0, 24


# The budgets of all models, and the limits in dollars on extra attempts.


_OF_KEYS = "\0keys"  # no model has such a name


def of_keys(payer: str) -> str:
    """Return the name of the budget for calls of ``payer`` that bring keys, apart from the budget of other calls."""
    return payer + _OF_KEYS


class Budgets:
    """Decides whether extra attempts may start, by their model's budget and by their cost."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._paces: dict[str, Pace] = {}  # by model, where a day's dollars are limited
        self._days: dict[str, dict[int, float]] = {}  # by model: calls of the day before the start, by hour
        self._budgets: dict[str, Budget] = {}
        self._calls: dict[str, Launches] = {}  # by model
        self._extra: dict[str, Launches] = {}

    def of(self, model: str) -> Budget:
        """Return the budget of a model, a new one at its first call."""
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = Budget()
        return budget

    def call(
        self, model: str, race: RaceSettings, now_s: float, payer: str | None = None, client: str | None = None
    ) -> None:
        """Count a call. ``payer`` is the model whose limit in dollars applies; None: the model itself."""
        (self._calls.get(model) or self._calls.setdefault(model, Launches())).add(now_s)
        if race.usd_per_day is not None:
            pace = self._paces.get(model)
            if pace is None:
                # Calls may arrive before the ledger's data about the day before.
                pace = self._paces[model] = Pace(payer or model, self._days.setdefault(model, {}))
            self._spending.called(payer or model, client)
            pace.call(
                self._spending.unix_s(),
                self._spending.today_usd(pace.payer),
                self._spending.calls_today(pace.payer),
                race.usd_per_day,
            )

    def paced(self, model: str, race: RaceSettings) -> tuple[RaceSettings, tuple[str, ...]]:
        """Return ``race`` with the value of a second at which its dollars last all day, and notes for the explanation.

        The value is at most the configured one. ``race`` is returned unchanged if the dollars last anyway, if the
        configured value is 0, or if the mode is not ``auto``.
        """
        pace = self._paces.get(model)
        if pace is None or race.usd_per_day is None or race.value_usd_per_s == 0.0:
            return race, ()
        if race.mode is not Mode.AUTO:
            return race, ()
        value = pace.value_usd_per_s
        if value >= (race.value_usd_per_s or inf):
            return race, ()
        return race.model_copy(update={"value_usd_per_s": value}), (_PACED.format(value),)

    def recollect(self, sums: Iterable[HourlySum]) -> None:
        """Load the calls by hour of the day before the start, for pacing a day's dollars."""
        now_hour = self._spending.unix_s() // _HOUR_S
        for each in sums:
            if each.metric == "n" and each.unix_s // _HOUR_S < now_hour:
                by_hour = self._days.setdefault(each.model, {})
                hour = int(each.unix_s // _HOUR_S) % _HOURS
                by_hour[hour] = by_hour.get(hour, 0.0) + each.n

    def room(self, model: str, healths: Sequence[Health], now_s: float) -> tuple[float, float]:
        """Return how many extra attempts a minute the limits of ``healths`` leave room for, and the calls expected.

        The room is infinite while one deployment has no limit, as that deployment takes what the others cannot. If all
        are limited, the room is what each was seen to take; then a single 429 of each counts. While most are limited,
        or one that took many calls pauses, a deployment without a known limit is assumed to have one, too: as many
        calls as the others take on average, until it has taken clearly more. For example, after 429s of two of three
        deployments at 30 calls a minute, the third is expected to take 30.
        """
        room_of = {health: min(health.limit(now_s), health.taken(now_s)) for health in healths if health.is_in_use}
        limits = [limit for limit in room_of.values() if limit < inf]
        if not limits:
            return inf, 1.0
        usual = sum(limits) / len(limits)
        launched = {health: health.launches.in_minute(now_s) for health in room_of}
        if len(limits) < len(room_of):
            is_wary = 2 * len(limits) > len(room_of) or any(
                WARY_FROM <= limit < inf and health.is_paused_once(now_s) for health, limit in room_of.items()
            )
            most = max(launched[health] for health, limit in room_of.items() if limit == inf)
            if not is_wary or most / 2 > LIMIT_GROWS * usual:  # sixty seconds may have two windows
                return inf, 1.0
        admitted = usual * len(room_of)
        calls = self._calls.setdefault(model, Launches())
        demand = max(1.0, calls.expected(now_s), sum(launched.values()) - self._extra_of(model).in_minute(now_s))
        return max(0.0, LIMIT_USED * admitted - demand), demand

    def _extra_of(self, model: str) -> Launches:
        return self._extra.setdefault(model, Launches())

    def keep(self, models: Container[str]) -> None:
        """Forget all other models."""
        self._calls = {model: calls for model, calls in self._calls.items() if model in models}
        self._extra = {model: extra for model, extra in self._extra.items() if model in models}
        self._budgets = {
            each: budget for each, budget in self._budgets.items() if each.removesuffix(_OF_KEYS) in models
        }
        self._paces = {model: pace for model, pace in self._paces.items() if model in models}
        self._days = {model: by_hour for model, by_hour in self._days.items() if model in models}

    def draw(
        self,
        model: str,
        role: Role,
        race: RaceSettings,
        *,
        cost_usd: float | None,
        payer: str,
        room: float = inf,
        is_needed: bool = False,
        now_s: float,
        budget: str | None = None,
        is_clients: bool = False,
        client: str | None = None,
    ) -> Narrowed | None:
        """Charge an attempt that starts beside another one now; return the limit that refuses the attempt, or None.

        ``room`` is what rate limits leave for extra attempts in a minute: rescues and probes are not refused by it, but
        count there; a fallback runs at another model's deployments. ``is_needed``: the call's first rescue or fallback,
        which no limit in dollars refuses. ``budget``: the model that pays, if not ``payer``. ``is_clients``: the call
        has a key of its client's, and uses none of the model's rate limits. ``client``: the client that makes the call.
        """
        extra = self._extra.get(model) or self._extra_of(model)
        if role in FREE:
            if not is_clients:
                extra.add(now_s)
            return None
        name = budget or payer
        drawn = self._budgets.get(name) or self.of(name)
        costs_nothing = cost_usd is None
        limit = (
            None
            if costs_nothing
            else self.exceeded_limit(race, cost_usd=cost_usd, payer=payer, budget=name, client=client)
        )
        if role in {Role.FAILOVER, Role.FALLBACK}:
            limit = None if is_needed else limit
        elif limit is None and room < inf and extra.in_minute(now_s) >= room:
            limit = Narrowed.RATE_LIMITS
        if limit is not None or not drawn.draw(role, race.budget, alone=race.mode is Mode.SINGLE, client=client):
            return limit or Narrowed.BUDGET
        if role is not Role.FALLBACK and not is_clients:
            extra.add(now_s)
        if cost_usd is not None and race.usd_per_day is not None:
            self._spending.charge(payer, cost_usd, client)
            if (pace := self._paces.get(model)) is not None:
                pace.paid(payer, cost_usd)
        if cost_usd is not None and race.extra_usd_per_call is not None:
            drawn.pay(cost_usd, race.extra_usd_per_call, client)
        return None

    def exceeded_limit(
        self,
        race: RaceSettings,
        *,
        cost_usd: float | None,
        payer: str,
        budget: str | None = None,
        client: str | None = None,
    ) -> Narrowed | None:
        """Return the limit on dollars that an attempt would exceed; None for none, or without a known price."""
        if cost_usd is None:
            return None
        if race.usd_per_day is not None and not self._spending.may_spend(payer, cost_usd, race.usd_per_day, client):
            return Narrowed.USD
        per_call = race.extra_usd_per_call
        if per_call is None or self.of(budget or payer).affords(cost_usd, per_call, client):
            return None
        return Narrowed.USD_PER_CALL


# What a budget for extra attempts buys: hedges first, then races. Shared by the planner and the replay.


def raced_share(budget: float) -> float:
    """Return the chance that a second attempt starts with its call.

    A tenth of an attempt per call pays for hedges; the rest of the budget buys races at t = 0. For example, a budget of
    0.55 races half of the calls from their start, and hedges the others.
    """
    return min(1.0, max(0.0, (budget - HEDGE_SHARE) / (1.0 - HEDGE_SHARE)))


def hedge_quantile(budget: float) -> float:
    """Return the share of the primary's first tokens that come before the hedge: 0.9 for budgets from 0.1 on."""
    return 1.0 - min(budget, HEDGE_SHARE)


def hedged_at_s(quantile_s: float) -> float:
    """Return when a hedge starts that waits for this quantile of the primary, in seconds."""
    return max(HEDGE_MIN_S, quantile_s)
