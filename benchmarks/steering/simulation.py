"""One run: a world, a seed, a policy on every replica; results call by call."""

import logging
from collections.abc import Callable
from random import Random

import structlog
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.steering.baselines import BASELINES
from benchmarks.steering.fleet import Fleet
from benchmarks.steering.gateway_policy import UNIX_S, GatewayPolicy, Lengths
from benchmarks.steering.hindsight import AlwaysBest, best_first
from benchmarks.steering.oracle import TARGET_TOK_S, Oracle
from benchmarks.steering.policy import Policy
from benchmarks.steering.race import Race, Result
from benchmarks.steering.shared_board import SharedBoard, Store
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request, requests
from benchmarks.steering.weather import Weather
from benchmarks.steering.worlds import World
from gateway.core.calls import Mode, Objective
from gateway.settings import RaceSettings
from gateway.steering import MemoryBoard, Strikes
from gateway.steering.board import Board

AFTER_S = 300  # the weather goes on so long after the last arrival
ALWAYS_BEST = "always the best"
ALWAYS_CHEAPEST, ALWAYS_DEAREST = "always the cheapest", "always the dearest"
REFRESHED_EVERY_S = 1.0
WARM_UP_S = 60.0  # of a run; short runs leave out a tenth
WARM_UP_SHARE = 0.1


class Contender(Struct, frozen=True):
    """Who runs: a baseline, the oracle, or the gateway's policy under a budget."""

    name: str
    objective: Objective
    budget: float | None = None  # None: not the gateway's policy
    mode: Mode = Mode.AUTO
    lengths: Lengths = Lengths.BY_KIND
    deadline: bool = False  # calls ask for their first token within the world's goal; under cost they always do
    holds: bool = False  # first tokens may be held, as where the model's objective is written

    @property
    def label(self) -> str:
        """What it is called in tables; the first token is what all are after unless they say otherwise."""
        name = self.name if self.budget is None else f"{self.name} {self.budget:g}"
        if self.mode is not Mode.AUTO:
            name = f"{name}, {self.mode}"
        name = name if self.objective is Objective.FIRST_TOKEN else f"{name}, {self.objective}"
        name = f"{name}, deadline" if self.deadline else name
        name = f"{name}, held" if self.holds else name
        return name if self.lengths is Lengths.BY_KIND else f"{name}, lengths {self.lengths.value}"


class Setting(Struct, frozen=True):
    """What all contenders of one world and seed share: requests, draws and weather."""

    world: World
    seed: int
    requests: tuple[Request, ...]
    weather: Weather
    run_s: float


def be_quiet() -> None:
    """Let the gateway's own log say nothing below a critical event: a simulated outage is no news."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def setting(world: World, calls: int, seed: int) -> Setting:
    """Make a world's requests and weather."""
    arriving = requests(world, max(1, round(calls * world.calls_share)), seed)
    run_s = arriving[-1].at_s
    return Setting(world, seed, tuple(arriving), Weather(world, int(run_s) + AFTER_S, seed), run_s)


def simulate(where: Setting, contender: Contender) -> list[Result]:
    """Run one contender; return the results by call."""
    timeline = Timeline()
    fleet = Fleet(where.world, where.weather, where.run_s, where.seed)
    policies = _policies(where, contender, timeline, fleet)
    results: list[Result] = []

    def arrive(request: Request) -> Callable[[], None]:
        def begin() -> None:
            policy = policies[request.replica]
            plan = policy.plan(request, fleet.names(timeline.now_s))
            race = Race(
                request,
                plan,
                policy,
                fleet,
                timeline,
                done=results.append,
                objective=contender.objective,
                deadline_s=_deadline_s(where, contender),
                again=lambda: policy.plan(request, fleet.names(timeline.now_s)),
            )
            race.start()

        return begin

    for request in where.requests:
        timeline.at(request.at_s, arrive(request))
    for policy in policies:
        if isinstance(policy, GatewayPolicy):
            keep_fresh(policy, timeline, where.run_s)
    timeline.run()
    results.sort(key=lambda result: result.index)
    return results


def _deadline_s(where: Setting, contender: Contender) -> float | None:
    """Return when calls of the gateway's policy want their first token; None at no certain time."""
    wants = contender.budget is not None and (contender.deadline or contender.objective is Objective.COST)
    return where.world.ttft_goal_s if wants else None


def keep_fresh(policy: GatewayPolicy, timeline: Timeline, until_s: float) -> None:
    """Refresh a policy's standings, as the gateway does in the background, though not as often."""
    policy.refresh()
    if timeline.now_s < until_s:
        timeline.after(REFRESHED_EVERY_S, lambda: keep_fresh(policy, timeline, until_s))


def warm(where: Setting, results: list[Result]) -> list[Result]:
    """Leave out the first minute, or the first tenth of a short run."""
    since_s = min(WARM_UP_S, WARM_UP_SHARE * where.run_s)
    return [result for result in results if result.at_s >= since_s]


def _policies(where: Setting, contender: Contender, timeline: Timeline, fleet: Fleet) -> list[Policy]:
    drawn = replace(contender, holds=False).label  # the same with and without
    dice = [Random(f"{where.seed}:{drawn}:{replica}") for replica in range(where.world.replicas)]
    if contender.budget is not None:
        race = RaceSettings(mode=contender.mode, budget=contender.budget, objective=contender.objective)
        if (deadline_s := _deadline_s(where, contender)) is not None:
            race = race.model_copy(update={"ttft_ms": 1000 * deadline_s})
        if contender.objective is Objective.COST:
            race = race.model_copy(update={"min_tok_s": TARGET_TOK_S})
        return [
            GatewayPolicy(
                board,
                timeline,
                random,
                race=race,
                objective=contender.objective,
                world=where.world,
                lengths=contender.lengths,
                holds=contender.holds,
                strikes=strikes,
            )
            for (board, strikes), random in zip(
                boards_in_step(where.world.replicas, timeline, where.run_s), dice, strict=True
            )
        ]
    if contender.name == ALWAYS_BEST:
        names = [provider.name for provider in where.world.providers]
        order = best_first(names, where.requests, where.weather, contender.objective)
        return [AlwaysBest(timeline, random, contender.objective, order) for random in dice]
    if contender.name in {ALWAYS_CHEAPEST, ALWAYS_DEAREST}:
        by_price = sorted(where.world.providers, key=lambda provider: provider.usd_per_mtok)
        names = [provider.name for provider in by_price]
        order = tuple(names if contender.name == ALWAYS_CHEAPEST else reversed(names))
        return [AlwaysBest(timeline, random, contender.objective, order) for random in dice]
    if contender.name in BASELINES:
        shared: dict[str, float] = {}
        return [BASELINES[contender.name](timeline, random, contender.objective, shared) for random in dice]
    return [Oracle(fleet, timeline, contender.objective) for _ in dice]


def boards_in_step(replicas: int, timeline: Timeline, run_s: float) -> list[tuple[Board, Strikes | None]]:
    """Return each replica's board, and the strikes that it shares.

    One replica keeps its board in memory; several share one that is a second behind, each at its own phase.
    """
    if replicas == 1:
        return [(MemoryBoard(), None)]
    store = Store()
    strikes = [Strikes(lambda: UNIX_S + timeline.now_s) for _ in range(replicas)]
    boards = [SharedBoard(store, own) for own in strikes]

    def keep_in_step(board: SharedBoard) -> None:
        board.sync(UNIX_S + timeline.now_s)
        if timeline.now_s < run_s:
            timeline.after(board.period_s, lambda: keep_in_step(board))

    for number, board in enumerate(boards):
        timeline.at(number / replicas, lambda board=board: keep_in_step(board))  # type: ignore[misc] # binds the loop's
    return list(zip(boards, strikes, strict=True))
