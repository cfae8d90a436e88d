"""The metrics read from the parts of a gateway each time they are rendered."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any

from gateway.access import WrongKeyCounter
from gateway.app.engine import Peers
from gateway.core.targets import Standing, duration
from gateway.core.tasks import LongestTurns
from gateway.fleet import Fleet
from gateway.keys import Keys
from gateway.ledger import Ledger
from gateway.limits import Leases, Limits
from gateway.live import Live
from gateway.overload import Bodies, Intake
from gateway.racing import Seats
from gateway.steering import Condition, HealthState, Spending, Steering
from gateway.tracing import Tracing
from gateway.watching import (
    TARGET_BAD,
    TARGET_BUDGET,
    TARGET_BURN,
    TARGET_CALLS,
    CallLog,
    Family,
    ManyReadings,
    Metrics,
    Readings,
)

if TYPE_CHECKING:
    from gateway.admin import Stores
    from gateway.live import Sharing
    from gateway.steering import RedisBoard


def add_gauges(
    metrics: Metrics,
    *,
    ledger: Ledger,
    board: "RedisBoard | None",
    log: CallLog,
    seats: Seats,
    wrong_keys: WrongKeyCounter,
    leases: Leases,
    keys: Keys[Any],
    intake: Intake,
    bodies: Bodies,
    live: Live,
    live_sharing: "Sharing | None",
    tracing: Tracing,
    turns: LongestTurns,
    names_away: Callable[[], int],
) -> None:
    """Add the gauges of these parts to ``metrics``, and counters kept by the parts."""
    _add_ledger(metrics, ledger)
    _add_intake(metrics, intake)
    _add_bodies(metrics, bodies)
    _add_turns(metrics, intake, turns)
    metrics.gauge("holeshot_live_viewers", "Open live streams (/api/live).", lambda: live.viewers)
    if board is not None:
        metrics.counter(
            "holeshot_redis_ignored_total",
            "Values in Redis that no gateway can have written.",
            lambda: board.ignored + (0 if live_sharing is None else live_sharing.foreign.ignored),
        )
        metrics.read_series(ROUND, lambda: {("limits",): leases.took_s, ("standings",): board.nodes.took_s})
        metrics.read_series(PERIOD, lambda: {("limits",): leases.round_s, ("standings",): board.round_s})
    metrics.counter(
        "holeshot_log_lines_dropped_total",
        "Log lines that were dropped because no process read them in time.",
        lambda: log.dropped,
    )
    metrics.counter(
        "holeshot_spans_dropped_total",
        "Spans that were not exported: the collector was away or too slow, or refused them.",
        lambda: tracing.dropped,
    )
    metrics.gauge(
        "holeshot_names_away",
        "Names of providers that the resolver does not tell: new connections go to the last good addresses.",
        names_away,
    )
    metrics.gauge(
        "holeshot_limits_away",
        "Workers that cannot reach Redis for the limits of clients and models: each allows its own share.",
        lambda: not leases.connected,
    )
    metrics.gauge(
        "holeshot_keys_stale_s",
        "Seconds since the database last told which keys there are: 0 up to five; of all workers together.",
        lambda: keys.stale_s,
    )
    metrics.gauge("holeshot_waiting_calls", "Calls that wait under max_in_flight.", lambda: seats.waiting)
    metrics.read_series(SLOTS, lambda: _slots(seats))
    metrics.gauge("holeshot_tasks", "Tasks of the event loop.", lambda: len(asyncio.all_tasks()))
    _add_wrong_keys(metrics, wrong_keys)


def _add_ledger(metrics: Metrics, ledger: Ledger) -> None:
    metrics.gauge("holeshot_ledger_pending", "Calls not yet in SQL.", lambda: ledger.pending)
    metrics.gauge(
        "holeshot_ledger_lost", "Calls that could be written neither to disk nor to SQL.", lambda: ledger.lost
    )
    metrics.gauge(
        "holeshot_ledger_expired",
        "Rows that were older than the retention when they arrived.",
        lambda: ledger.expired,
    )
    metrics.gauge(
        "holeshot_clock_off",
        "Workers whose clock is more than two seconds off the database's.",
        lambda: ledger.clock.is_off,
    )
    metrics.gauge("holeshot_ledger_rejected", "Calls that the database refused.", lambda: ledger.rejected)
    metrics.gauge(
        "holeshot_ledger_away",
        "Workers whose database does not answer; rows wait in their spools.",
        lambda: not ledger.connected,
    )
    metrics.gauge(
        "holeshot_ledger_spool_failing",
        "Workers whose spool is deleted or full: rows not yet in SQL would be lost with them.",
        lambda: ledger.spool_problem is not None,
    )
    metrics.gauge(
        "holeshot_ledger_unrecorded",
        "Workers whose rows neither the database nor the disk takes: they are in memory only, or calls are refused.",
        lambda: ledger.is_unrecorded,
    )


def _add_wrong_keys(metrics: Metrics, wrong_keys: WrongKeyCounter) -> None:
    metrics.gauge(
        "holeshot_guessing_addresses",
        "Addresses with so many wrong keys that answers to more of them are delayed.",
        lambda: wrong_keys.guessing(asyncio.get_running_loop().time()),
    )
    metrics.gauge("holeshot_waiting_refusals", "Answers to wrong keys that wait now.", lambda: wrong_keys.waiting)
    metrics.counter(
        "holeshot_delayed_refusals_total", "Answers to wrong keys that have waited.", lambda: wrong_keys.delayed
    )
    metrics.counter(
        "holeshot_undelayed_refusals_total",
        "Answers to wrong keys that should have waited, and were sent at once because too many did.",
        lambda: wrong_keys.at_once,
    )


LONGEST_TURN = Family(
    "holeshot_loop_longest_turn_seconds",
    "The longest turn of the event loop in the last one to two minutes, by what ran in it: a slice of a body or a "
    "page, the fields of a long request, or anything (any; of the last ten to twenty seconds). The longest of all "
    "workers.",
    "gauge",
    ("work",),
    merge="max",
)


def _add_turns(metrics: Metrics, intake: Intake, turns: LongestTurns) -> None:
    def read() -> Readings:
        return {("any",): intake.delay.peak_s(), **{(work,): seconds for work, seconds in turns.longest_s().items()}}

    metrics.read_series(LONGEST_TURN, read)


def _add_bodies(metrics: Metrics, bodies: Bodies) -> None:
    metrics.gauge("holeshot_body_bytes", "Bytes of long request bodies in memory, unpacked.", lambda: bodies.size)
    metrics.gauge(
        "holeshot_body_bytes_limit", "Bytes of long request bodies there is memory for.", lambda: bodies.most_bytes
    )
    metrics.gauge("holeshot_unfinished_bodies", "Request bodies that are still arriving.", lambda: bodies.unfinished)
    metrics.counter(
        "holeshot_cut_bodies_total",
        "Unfinished request bodies that were cancelled to make room for those of others.",
        lambda: bodies.cut,
    )


def _add_intake(metrics: Metrics, intake: Intake) -> None:
    delay = intake.delay
    metrics.gauge("holeshot_calls_in_flight", "Calls with a seat.", lambda: intake.in_flight)
    metrics.gauge("holeshot_calls_queued", "Calls that wait for a seat.", lambda: intake.waiting)
    metrics.gauge("holeshot_calls_limit", "Calls that may be in flight now.", lambda: intake.limit.now)
    metrics.gauge(
        "holeshot_token_batch_seconds",
        "How long answers under way rest between two reads, so that tokens come in batches; of all workers together.",
        lambda: intake.batches.rest_s,
    )
    metrics.gauge(
        "holeshot_loop_delay_seconds",
        "How late the event loop is, smoothed over 0.2 seconds; of all workers together.",
        lambda: delay.smoothed_s,
    )
    metrics.gauge(
        "holeshot_loop_delay_peak_seconds",
        "The longest delay of the event loop in the last ten to twenty seconds; of all workers together.",
        delay.peak_s,
    )
    metrics.counter(
        "holeshot_loop_delay_seconds_total", "The sum of all delays of the event loop.", lambda: delay.total_s
    )


# The metrics of deployments, of limits in dollars, and of the stores.

STATE = Family(
    "holeshot_deployment_state",
    "Workers that see a deployment in this state: ok, failing (asked, though it only failed), cooling "
    "(rate-limited), open (breaker), half-open (one probe at a time), out (it rejects the key or the model).",
    "gauge",
    ("deployment", "state"),
)
BREAKER = Family(
    "holeshot_breaker_open",
    "Workers whose breaker for a deployment is not closed: open or half-open.",
    "gauge",
    ("deployment",),
)
COOLING = Family(
    "holeshot_cooling_seconds",
    "Seconds until the cool-down after a rate limit ends; the longest of all workers.",
    "gauge",
    ("deployment",),
    merge="max",
)
HEADROOM = Family(
    "holeshot_headroom_ratio",
    "The expected unused part of the provider's rate limit, 0 to 1; the least of all workers. 1 if it reports none.",
    "gauge",
    ("deployment",),
    merge="min",
)
SLOTS = Family(
    "holeshot_fleet_slots",
    "Slots of a deployment's max_in_flight_fleet: leased (by a worker; with attempts that still hold one) and used.",
    "gauge",
    ("deployment", "state"),
)
EXTRA_LEFT = Family(
    "holeshot_extra_attempts_left",
    "Extra attempts that race.budget permits now; below 0 it is overdrawn.",
    "gauge",
    ("model",),
)
EXTRA_USD = Family(
    "holeshot_extra_left_usd",
    "US dollars left today for extra attempts, of race.usd_per_day; the least that a worker knows of.",
    "gauge",
    ("model",),
    merge="min",
)
MODEL_USD = Family(
    "holeshot_model_left_usd",
    "US dollars left today of a model's usd_per_day, from its first call on; the least that a worker knows of.",
    "gauge",
    ("model",),
    merge="min",
)
MODEL_LIMIT = Family(
    "holeshot_model_limit_usd", "US dollars: a model's usd_per_day, if set.", "gauge", ("model",), merge="max"
)
CLIENT_LIMITS = Family(
    "holeshot_client_limits",
    "Clients that have called since the start, by how much is left of their limit in dollars: none, "
    "under_10_percent, under_25_percent, more; the most that a worker sees.",
    "gauge",
    ("left", "limit"),
    merge="max",
)
REDIS_AWAY = Family("holeshot_redis_away", "Workers that cannot reach Redis; each steers by what it knows.", "gauge")
ROUND = Family(
    "holeshot_redis_round_seconds",
    "Seconds that the last round with Redis took, of limits and of standings; the longest of all workers.",
    "gauge",
    ("of",),
    merge="max",
)
PERIOD = Family(
    "holeshot_redis_period_seconds",
    "Seconds from one round with Redis to the next: the more processes share it, the longer; the longest of all "
    "workers.",
    "gauge",
    ("of",),
    merge="max",
)
OLDEST = Family(
    "holeshot_ledger_oldest_pending_seconds",
    "The age of the oldest entry that is not yet in SQL; 0 without any. The oldest of all workers.",
    "gauge",
    merge="max",
)
ANSWERED = Family(
    "holeshot_ledger_answered_seconds",
    "Seconds since the database last did what it was asked, from its first answer on; the longest of all workers.",
    "gauge",
    merge="max",
)
UNSPOOLED = Family(
    "holeshot_ledger_unspooled", "Entries that the disk refused: they wait for SQL in memory only.", "gauge"
)


STOPPED = Family(
    "holeshot_workers_stopped",
    "Workers whose event loop has stood still for two seconds: others accept for them, and their calls hang.",
    "gauge",
    merge="max",
)
CLICKHOUSE_AWAY = Family(
    "holeshot_clickhouse_away",
    "Workers that ClickHouse does not answer, or refuses; rows for it wait on disk.",
    "gauge",
)
CLICKHOUSE_WAITING = Family(
    "holeshot_clickhouse_waiting_bytes", "Rows on disk that wait for ClickHouse, of all workers.", "gauge", merge="max"
)
CLICKHOUSE_OLDEST = Family(
    "holeshot_clickhouse_oldest_pending_seconds",
    "Seconds since the oldest rows that wait for ClickHouse were written; 0 without any. Up to 60 is usual.",
    "gauge",
    merge="max",
)
CLICKHOUSE_LOST = Family(
    "holeshot_clickhouse_lost",
    "Calls not sent to ClickHouse: more waited than max_spool_gb, or it refused them.",
    "gauge",
)


def add_health(
    metrics: Metrics,
    *,
    peers: Peers | None,
    steering: Steering,
    ledger: Ledger,
    board: "RedisBoard | None",
    clock: Callable[[], float],
) -> None:
    """Add the health of deployments and stores to ``metrics``."""

    def conditions() -> Iterator[tuple[str, Condition]]:
        now_s = clock()
        return ((name, health.condition(now_s)) for name, health in steering.healths().items())

    metrics.read_many(STATE, lambda: _states(conditions()))
    metrics.read_many(BREAKER, lambda: (((name,), float(each.tripped)) for name, each in steering.healths().items()))
    metrics.read_many(COOLING, lambda: (((name,), each.cooling_s) for name, each in conditions()))
    metrics.read_many(HEADROOM, lambda: (((name,), each.headroom) for name, each in conditions()))
    metrics.read_series(OLDEST, lambda: {(): ledger.oldest_pending_s or 0.0})
    metrics.read_series(ANSWERED, lambda: _if_known(ledger.answered_s_ago))
    metrics.read_series(UNSPOOLED, lambda: {(): float(ledger.unspooled)})
    metrics.read_series(STOPPED, lambda: {(): 0.0 if peers is None else float(len(peers.stopped))})
    metrics.on_render(ledger.watch)
    if (clickhouse := ledger.clickhouse) is not None:
        metrics.read_series(CLICKHOUSE_AWAY, lambda: {(): float(clickhouse.away)})
        metrics.read_series(CLICKHOUSE_WAITING, lambda: {(): float(clickhouse.queue.waiting_bytes)})
        metrics.read_series(CLICKHOUSE_OLDEST, lambda: {(): clickhouse.oldest_s})
        metrics.read_series(CLICKHOUSE_LOST, lambda: {(): float(clickhouse.queue.lost + clickhouse.rejected)})
    if board is not None:
        metrics.read_series(REDIS_AWAY, lambda: {(): float(not board.connected)})


def add_budgets(
    metrics: Metrics, *, steering: Steering, spending: Spending, limits: Limits, fleet: Callable[[], Fleet]
) -> None:
    """Add the remaining budgets of models and clients to ``metrics``."""
    metrics.read_many(
        EXTRA_LEFT, lambda: (((name,), steering.extra_attempts_left(name)) for name in list(fleet().configured))
    )
    metrics.read_series(
        EXTRA_USD,
        lambda: {
            (name,): max(0.0, model.race.usd_per_day - spending.today_usd(model.payer or name))
            for name, model in fleet().configured.items()
            if model.race.usd_per_day is not None
        },
    )
    metrics.read_series(
        MODEL_LIMIT,
        lambda: {
            (name,): limit
            for name, model in fleet().configured.items()
            if (limit := model.use_limits.get("usd_per_day")) is not None
        },
    )
    metrics.read_series(
        MODEL_USD,
        lambda: {(name,): left for name, left in limits.model_dollars().items() if name in fleet().configured},
    )
    metrics.read_series(CLIENT_LIMITS, lambda: _bands(limits))
    metrics.counter(
        "holeshot_end_users_sharing_total",
        "Calls of end users that shared the limits of others, as too many were about.",
        lambda: limits.sharing,
    )


def _states(conditions: Iterable[tuple[str, Condition]]) -> ManyReadings:
    return (((name, str(state)), float(each.told is state)) for name, each in conditions for state in HealthState)


def _slots(seats: Seats) -> Readings:
    slots_by_use: dict[tuple[str, ...], float] = {}
    for name, slots in seats.leased.items():
        slots_by_use[name, "leased"] = float(max(slots.most, slots.taken))
        slots_by_use[name, "used"] = float(slots.taken)
    return slots_by_use


def _bands(limits: Limits) -> Readings:
    counts = Counter((_band(left), limit) for limit, left in limits.client_dollars())
    return {(band, limit): float(counts[band, limit]) for band in _BANDS for limit in {limit for _, limit in counts}}


def _band(left: float) -> str:
    return next((band for band, at_most in _BANDS.items() if left <= at_most), "more")


def _if_known(number: float | None) -> Readings:
    return {} if number is None else {(): number}


_BANDS: Mapping[str, float] = {"none": 0.0, "under_10_percent": 0.1, "under_25_percent": 0.25, "more": 1.0}


# The body of /health/ready: the state of the gateway's stores.


def readiness(
    ledger: Ledger,
    redis_board: "RedisBoard | None",
    keys: Keys[Any],
    peers: Peers | None,
    *,
    models: int,
    remembered: int | None,
    other_ledger: bool = False,
) -> "Stores":
    """Return the state of each store. For a while from now on, the database's state is checked in the background.

    ``remembered``: the number of attempts before the start that steering uses; None while they are not read.
    ``other_ledger``: whether Redis is also used by gateways with another ledger.
    """
    from gateway.admin import ClockState, HistoryState, RedisState, SpoolState, Stores, StoreState, WorkersState  # noqa: PLC0415 - memory: with what operators use

    ledger.watch()
    return Stores(
        database=StoreState(
            connected=ledger.connected,
            answered_s_ago=_tenths(ledger.answered_s_ago),
            pending=ledger.pending,
            oldest_pending_s=_tenths(ledger.oldest_pending_s),
            sums_stand_still_s=_tenths(ledger.sums_stand_still_s),
        ),
        clock=ClockState(_tenths(ledger.clock.ahead_s), ledger.clock.is_off),
        spool=SpoolState(ledger.spool_problem, ledger.lost),
        redis=None if redis_board is None else RedisState(redis_board.connected, redis_board.topology, other_ledger),
        workers=None if peers is None else WorkersState(peers.stopped),
        keys=keys.readiness(),
        models=models,
        history=HistoryState(remembered is not None, remembered or 0),
    )


def _tenths(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


# The standings of targets.

Reading = tuple[tuple[str, ...], float | None]  # the values of labels, and a figure if known


class TargetFigures:
    """The remaining budget of each target, and the speed of its spending, as metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._standings: Sequence[Standing] = ()
        for family, read in _SHOWN:
            metrics.read_series(family, partial(self._readings, read))

    def show(self, standings: Sequence[Standing]) -> None:
        """Replace the published standings."""
        self._standings = standings

    def _readings(self, read: Callable[[Standing], Iterator[Reading]]) -> Readings:
        return {values: nan if number is None else number for each in self._standings for values, number in read(each)}


def _calls(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), float(each.counts.calls)


def _bad(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), float(each.counts.bad)


def _budget(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), each.budget_left


def _burns(each: Standing) -> Iterator[Reading]:
    for burn in each.burns:
        yield (each.target.name, duration(burn.window_s)), burn.burn_rate


_SHOWN: Sequence[tuple[Family, Callable[[Standing], Iterator[Reading]]]] = (
    (TARGET_CALLS, _calls),
    (TARGET_BAD, _bad),
    (TARGET_BUDGET, _budget),
    (TARGET_BURN, _burns),
)
