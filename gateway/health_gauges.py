"""What the metrics read of deployments, of limits in dollars, and of the stores, each time they are rendered."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gateway.fleet.fleet import Fleet
from gateway.ledger.writer import Ledger
from gateway.limits.limits import Limits
from gateway.steering.health import Condition, State
from gateway.steering.spending import Spending
from gateway.steering.steering import Steering
from gateway.watching.metrics import Metrics, Readings
from gateway.watching.series import Family

if TYPE_CHECKING:
    from gateway.steering.redis_board import RedisBoard

STATE = Family(
    "holeshot_deployment_state",
    "Workers that see a deployment in this state: ok, cooling (rate-limited), open (breaker), half-open (one probe at "
    "a time), out (it rejects the key or the model).",
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


def add_health(
    metrics: Metrics,
    *,
    steering: Steering,
    ledger: Ledger,
    board: "RedisBoard | None",
    clock: Callable[[], float],
) -> None:
    """Add the health of deployments and stores to ``metrics``."""

    def conditions() -> Mapping[str, Condition]:
        now_s = clock()
        return {name: health.condition(now_s) for name, health in steering.healths().items()}

    metrics.read_series(STATE, lambda: _states(conditions()))
    metrics.read_series(BREAKER, lambda: {(name,): float(each.tripped) for name, each in steering.healths().items()})
    metrics.read_series(COOLING, lambda: {(name,): each.cooling_s for name, each in conditions().items()})
    metrics.read_series(HEADROOM, lambda: {(name,): each.headroom for name, each in conditions().items()})
    metrics.read_series(OLDEST, lambda: {(): ledger.oldest_pending_s or 0.0})
    metrics.read_series(ANSWERED, lambda: _if_known(ledger.answered_s_ago))
    metrics.read_series(UNSPOOLED, lambda: {(): float(ledger.unspooled)})
    metrics.on_render(ledger.watch)
    if board is not None:
        metrics.read_series(REDIS_AWAY, lambda: {(): float(not board.connected)})


def add_budgets(
    metrics: Metrics, *, steering: Steering, spending: Spending, limits: Limits, fleet: Callable[[], Fleet]
) -> None:
    """Add what models and clients may still spend to ``metrics``."""
    metrics.read_series(EXTRA_LEFT, lambda: {(name,): steering.extra_attempts_left(name) for name in fleet().models})
    metrics.read_series(
        EXTRA_USD,
        lambda: {
            (name,): max(0.0, model.race.usd_per_day - spending.today_usd(model.payer or name))
            for name, model in fleet().models.items()
            if model.race.usd_per_day is not None
        },
    )
    metrics.read_series(
        MODEL_LIMIT,
        lambda: {(name,): model.usd_per_day for name, model in fleet().models.items() if model.usd_per_day is not None},
    )
    metrics.read_series(
        MODEL_USD,
        lambda: {(name,): left for name, left in limits.model_dollars().items() if name in fleet().models},
    )
    metrics.read_series(CLIENT_LIMITS, lambda: _bands(limits))


def _states(conditions: Mapping[str, Condition]) -> Readings:
    return {(name, str(state)): float(each.state is state) for name, each in conditions.items() for state in State}


def _bands(limits: Limits) -> Readings:
    found = Counter((_band(left), limit) for limit, left in limits.client_dollars())
    return {(band, limit): float(found[band, limit]) for band in _BANDS for limit in {limit for _, limit in found}}


def _band(left: float) -> str:
    return next((band for band, at_most in _BANDS.items() if left <= at_most), "more")


def _if_known(number: float | None) -> Readings:
    return {} if number is None else {(): number}


_BANDS: Mapping[str, float] = {"none": 0.0, "under_10_percent": 0.1, "under_25_percent": 0.25, "more": 1.0}
