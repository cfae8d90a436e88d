"""A model with a fallback that is asked beside it when its answer is late: how long calls wait, and what that costs.

``python -m benchmarks.steering.beside``: one line a world, all seeds together. *Lost*: the share of calls in which the
fallback was first. *In vain*: in which it was launched, and the late model was first after all.
"""

from collections.abc import Callable
from random import Random
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.report import Grid, quantile
from benchmarks.steering.figures import FAILED_S
from benchmarks.steering.fleet import Fleet
from benchmarks.steering.gateway_policy import GatewayPolicy
from benchmarks.steering.race import Race, Result
from benchmarks.steering.simulation import be_quiet, keep_fresh, setting
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request
from benchmarks.steering.worlds import BESIDE, World
from gateway.core.attempts import Role
from gateway.core.calls import Mode, Objective
from gateway.settings import RaceSettings
from gateway.steering import Launch, MemoryBoard

_RACE = RaceSettings(mode=Mode.SINGLE, budget=0.1)


class Outcome(Struct):
    """One call: the time to its first token in seconds, and what its fallback did."""

    index: int
    ttft_s: float = FAILED_S
    beside: bool = False  # the fallback was launched
    lost: bool = False  # and was first


class Side:
    """One model: its providers, and the policy that steers it."""

    def __init__(self, world: World, calls: int, seed: int, timeline: Timeline) -> None:
        where = setting(world, calls, seed)
        self.world, self.requests = world, where.requests
        self._fleet = Fleet(world, where.weather, where.run_s, seed)
        self.policy = GatewayPolicy(
            MemoryBoard(), timeline, Random(seed), race=_RACE, objective=Objective.FIRST_TOKEN, world=world
        )
        self._timeline = timeline
        keep_fresh(self.policy, timeline, where.run_s)

    def race(self, request: Request, *, late: bool, won: Callable[[], None], done: Callable[[Result], None]) -> Race:
        """Return the race of a call here; ``late``: it runs beside that of a late model."""
        names = self._fleet.names(self._timeline.now_s)
        self.plan = self.policy.plan(request, names, beside="late" if late else None)
        return Race(
            request,
            self.plan,
            self.policy,
            self._fleet,
            self._timeline,
            objective=Objective.FIRST_TOKEN,
            done=done,
            won=won,
        )


def run(world: World, calls: int, seed: int) -> list[Outcome]:
    """Run the calls of a world; return their outcomes in the order of arrival."""
    timeline = Timeline()
    mine = Side(world, calls, seed, timeline)
    other = Side(
        replace(world, name=f"{world.name} fallback", providers=world.fallback, spells=()), calls, seed, timeline
    )
    outcomes: list[Outcome] = []

    def arrive(number: int) -> None:
        outcome = Outcome(number)
        outcomes.append(outcome)
        request, began_s = mine.requests[number], timeline.now_s

        def first_won() -> None:
            outcome.ttft_s = min(outcome.ttft_s, timeline.now_s - began_s)
            if outcome.beside and not second.is_decided:
                second.give_way(runs_on=False)

        def second_won() -> None:
            outcome.ttft_s, outcome.lost = timeline.now_s - began_s, True
            if not first.is_decided:
                first.give_way(runs_on=mine.policy.runs_on(plan, first.attempts))

        def late() -> None:
            launch = Launch(other.world.providers[0].name, 0.0, Role.FALLBACK)
            if not first.is_decided and mine.policy.permit(launch):
                outcome.beside = True
                second.start()

        first = mine.race(request, late=False, won=first_won, done=lambda _: None)
        plan = mine.plan
        second = other.race(other.requests[number], late=True, won=second_won, done=lambda _: None)
        is_broken = mine.policy.is_broken(world.providers[0].name)
        first.start()
        timeline.after(0.0 if is_broken else plan.late_s, late)

    for number, request in enumerate(mine.requests):
        timeline.at(request.at_s, lambda number=number: arrive(number))  # type: ignore[misc] # binds the loop's
    timeline.run()
    return outcomes


def row(world: World, calls: int, seeds: list[int]) -> list[str]:
    every = [run(world, calls, seed) for seed in seeds]
    calls_of = [each for outcomes in every for each in outcomes]
    p50, p99, p999 = (quantile([each.ttft_s for each in calls_of], q) for q in (0.5, 0.99, 0.999))
    vain, lost = (fmean(each.beside and each.lost is is_lost for each in calls_of) for is_lost in (False, True))
    most = max(sum(each.lost for each in outcomes) for outcomes in every)
    figures = (f"{p50:.2f}", f"{p99:.1f}", f"{p999:.1f}", f"{vain + lost:.3f}", f"{vain:.1%}", f"{lost:.1%}", f"{most}")
    return [world.name, *figures]


def measured(asked: Run) -> Told:
    be_quiet()
    with asked.counting(len(BESIDE), "worlds") as tick:
        rows = []
        for world in BESIDE:
            rows.append(row(world, asked.options.calls, asked.options.seeds))
            tick()
    columns = ("world", "TTFT p50 s", "p99", "p99.9", "extras a call", "in vain", "lost", "most lost, one seed")
    return Told(facts=rows, grids=[Grid("A fallback beside a late model", columns, rows)])


def main() -> None:
    parser = command("steering.beside", __doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    carry_out(parser, measured)


if __name__ == "__main__":
    main()
