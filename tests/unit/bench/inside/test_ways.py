"""Ways of one model: their order, what is called sure, and what is not known yet."""

import asyncio
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api import ParsedRequest
from gateway.bench import (
    AT_ONCE,
    Bench,
    BenchPace,
    BenchPlan,
    BenchPurse,
    BenchSample,
    Contender,
    JournalContent,
    Key,
    Measured,
    Moments,
    Report,
    RequestCost,
    Way,
    few_calls,
    new_journal,
    read_ways,
    report,
    request_for,
    saved_up,
)
from gateway.bench.figures import Draws, IntervalEstimate, calls_needed, cells, log_ratio
from gateway.bench.plan import turns
from gateway.bench.verdicts import verdicts
from gateway.bench.ways import _COLOURS, _ON_DARK
from gateway.cli.bench_field import ProgressDisplay, shown_progress
from tests.unit.bench.inside.coverage import WORLDS, World
from tests.unit.bench.inside.samples import plan, sample
from tests.unit.racing.virtual_time import run

NAMES = ("single", "0.1", "1.0")
ROOT = Path(__file__).resolve().parents[4]


def of_ways(**changed: Any) -> BenchPlan:
    return plan(*NAMES, **{"raced": ("a/m", "b/m"), "kinds": ("short", "long_answer"), **changed})


def test_a_way_is_alone_or_a_budget_and_one_that_is_said_twice_counts_once() -> None:
    assert read_ways("single, 0.1,1.0,1") == (Way("single", None), Way("0.1", 0.1), Way("1", 1.0))


def test_a_round_asks_each_way_once_the_same_and_no_way_always_follows_the_same_other() -> None:
    of = of_ways(rounds=60)
    followed: Counter[tuple[str, str]] = Counter()
    for round_ in range(of.rounds):
        keys = [key for turn in turns(of, round_) for key in turn.keys]
        assert {key.deployment for key in keys} == set(NAMES)
        assert {key.kind for key in keys} == {of.kinds[round_ % 2]}
        assert len(keys) == 3
        followed.update((before.deployment, after.deployment) for before, after in itertools.pairwise(keys))
    assert of.requests == 180
    assert len(followed) == 6
    assert min(followed.values()) > 8


def test_own_prompts_take_turns_and_all_ways_of_a_round_get_the_same_behind_another_salt() -> None:
    of, own = of_ways(kinds=("own",)), ("one", "two", "three")
    contender = Contender(name="single", model="m")

    def said(key: Key) -> list[str]:
        [message] = msgspec.json.decode(request_for(of, contender, key, 0, own).fields["messages"])
        return str(message["content"]).splitlines()

    rounds = [[said(Key(round_, 1, name, "own", 0)) for name in NAMES] for round_ in range(4)]
    assert [{lines[1] for lines in each} for each in rounds] == [{"one"}, {"two"}, {"three"}, {"one"}]
    assert len({lines[0] for each in rounds for lines in each}) == 12


def world(name: str) -> World:
    found = next(each for each in WORLDS if each.name == name)
    personas = [msgspec.structs.replace(each, name=way) for each, way in zip(found.personas, NAMES, strict=False)]
    return msgspec.structs.replace(found, personas=tuple(personas), tokens=4)


def shown(of: World, rounds: int, seed: int) -> list[str]:
    planned = msgspec.structs.replace(of.plan(rounds, seed, at_a_time=1), raced=("a/m", "b/m"), goal=None)
    found = verdicts(planned, of.samples(planned, seed), Draws(range(rounds), seed, 300))
    assert all(each.difference.low is not None and each.difference.low > 0 for each in found if each.is_shown)
    return [each.aspect for each in found if each.is_shown]


def test_ways_that_are_alike_are_hardly_ever_called_different() -> None:
    of = world("four equal ones, with moods")
    assert sum(bool(shown(of, 80, seed)) for seed in range(20)) <= 4  # one is expected; more than 4: once in 400 times


def test_ways_that_differ_are_told_apart_also_at_their_slow_end() -> None:
    of = world("three unlike ones")
    seen = Counter(aspect for seed in range(4) for aspect in shown(of, 400, seed))
    assert {"ttft_p50_ms", "ttft_p99_ms", "total_p50_ms", "cost_mean"} <= set(seen)


def test_a_difference_whose_interval_includes_nothing_is_not_sure() -> None:
    a, b = IntervalEstimate(50, 110.0, 90.0, 130.0), IntervalEstimate(50, 100.0, 85.0, 120.0)
    compared = log_ratio((a, [110.0] * 200), (b, [100.0] * 200), 50)
    assert compared is not None
    found, p = compared
    assert found.low is not None
    assert found.low < 0 < (found.high or 0.0)
    assert p == 1.0
    assert log_ratio((a, [110.0] * 200), (IntervalEstimate(50, 100.0), []), 50) is None


def counted(of: BenchPlan, sittings: int = 1) -> Report:
    """Return the report of all its calls, without verdicts: what is told of few calls goes by their number."""
    samples = [sample(key) for round_ in range(of.rounds) for turn in turns(of, round_) for key in turn.keys]
    whole = report(of, [], sittings=sittings, at_most_usd=0.0)
    return msgspec.structs.replace(whole, cells=cells(of, samples, Draws(range(of.rounds), of.seed, 100)))


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        (12, ["no p95 yet: of 12 answers of a way; it needs 72", "no p99 yet: of 12 answers of a way; it needs 368"]),
        (100, ["p99 is a guess without an interval: of 100 answers of a way; it needs 368"]),
        (368, []),
    ],
)
def test_a_quantile_of_too_few_calls_says_so(calls: int, words: list[str]) -> None:
    assert few_calls(counted(of_ways(rounds=calls))) == words
    assert (calls_needed(0.95), calls_needed(0.99)) == (72, 368)


@pytest.mark.parametrize(("calls", "sittings", "more"), [(30, 1, "0.67"), (100, 2, "0.40"), (400, 1, None)])
def test_what_budgets_begin_with_is_told_where_it_is_much_of_the_requests(
    calls: int, sittings: int, more: str | None
) -> None:
    told = saved_up(counted(of_ways(rounds=calls), sittings))
    assert len(told) == (more is not None)
    assert more is None or f"up to {more} a call beyond its budget" in told[0]
    alone = plan("single", "0", raced=("a/m", "b/m"), rounds=calls)
    assert saved_up(counted(alone)) == []


def test_the_picture_has_the_colours_of_the_page() -> None:
    style = (ROOT / "gateway" / "page" / "assets" / "style.css").read_text(encoding="utf-8")
    series = re.findall(r"--series-([0-7]): light-dark\((#\w+), (#\w+)\)", style)
    drawn = (ROOT / "docs" / "pictures" / "ways.svg").read_text(encoding="utf-8")
    assert [(light, dark) for _, light, dark in series] == list(zip(_COLOURS, _ON_DARK, strict=True))
    assert {each for _, *both in series for each in both} <= set(re.findall(r"#[0-9a-f]{6}", drawn))


class Answers:
    """Answers each request after a second, and remembers when it was asked."""

    def __init__(self, retry_after_s: float | None = None) -> None:
        self.asked_at: list[float] = []
        self.retry_after_s = retry_after_s

    async def __call__(
        self, request: ParsedRequest, contender: Contender, key: Key, *, sitting: int, in_flight: int
    ) -> Measured:
        self.asked_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.0)
        return Measured(sample(key, sitting=sitting), None, self.retry_after_s)


def paced(folder: Path, pace: BenchPace, answers: Answers, **changed: Any) -> tuple[Bench, list[BenchSample]]:
    of = of_ways(**{"warm_up": 0, "rounds": 4, **changed})

    async def measured() -> tuple[Bench, list[BenchSample]]:
        clock = asyncio.get_running_loop().time
        costs = {(name, kind): RequestCost(0.0, 0.0) for name in NAMES for kind in of.kinds}
        with new_journal(folder / "bench.jsonl", of) as journal, shown_progress(of, ()) as watcher:
            assert isinstance(watcher, ProgressDisplay)
            purse, moments = BenchPurse(None, costs), Moments(clock, clock)
            bench = Bench(of, answers, journal, JournalContent(of), purse, watcher=watcher, moments=moments, pace=pace)
            return bench, list(await bench.run())

    return run(measured())


def gaps(answers: Answers) -> set[float]:
    times = answers.asked_at
    return {round(after - before, 6) for before, after in itertools.pairwise(times)}


def test_calls_keep_their_distance(tmp_path: Path) -> None:
    answers = Answers()
    paced(tmp_path, BenchPace(every_s=5.0), answers)
    assert (len(answers.asked_at), gaps(answers)) == (12, {5.0})


def test_no_round_begins_when_the_time_is_up_and_the_one_that_runs_is_ended(tmp_path: Path) -> None:
    bench, samples = paced(tmp_path, BenchPace(for_s=4.0), Answers())
    assert (bench.stopped_in_time, len(samples)) == (True, 6)


def test_after_a_rate_limit_the_next_way_waits_too(tmp_path: Path) -> None:
    answers = Answers(retry_after_s=7.0)
    paced(tmp_path, AT_ONCE, answers, rounds=2)
    assert gaps(answers) == {8.0}
