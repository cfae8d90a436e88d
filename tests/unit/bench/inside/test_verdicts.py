from gateway.bench import ALL, as_csv, report
from gateway.bench.figures import Draws, cells
from gateway.bench.verdicts import Verdict, verdicts
from tests.unit.bench.inside.samples import GOAL, plan, run, sample


def found(of: list[Verdict], aspect: str) -> Verdict:
    [verdict] = [verdict for verdict in of if verdict.aspect == aspect]
    return verdict


def test_a_difference_is_stated_with_its_interval() -> None:
    of = plan("a/m", "b/m", rounds=20)
    told = verdicts(of, run(of, {"a/m": 77.0, "b/m": 100.0}), Draws(range(20), 1))
    verdict = found(told, "ttft")
    assert (verdict.a, verdict.b, verdict.is_shown) == ("a/m", "b/m", True)
    low, high = verdict.difference.low, verdict.difference.high
    assert low is not None
    assert high is not None
    assert low < 0.23 < high
    assert verdict.words.startswith("a is faster than b at first tokens: 2")
    assert verdict.words.endswith(f"({low * 100:.0f} to {high * 100:.0f}) less time")


def test_the_better_one_is_named_first_whichever_comes_first_in_the_plan() -> None:
    of = plan("a/m", "b/m", rounds=20)
    samples = run(of, {"a/m": 100.0, "b/m": 77.0})
    verdict = found(verdicts(of, samples, Draws(range(20), 1)), "ttft")
    assert (verdict.a, verdict.b) == ("b/m", "a/m")
    assert verdict.difference.value is not None
    assert verdict.difference.value > 0.15


def test_no_difference_is_shown_where_there_is_none() -> None:
    of = plan("a/m", "b/m", rounds=20)
    verdict = found(verdicts(of, run(of, {"a/m": 100.0, "b/m": 100.0}), Draws(range(20), 1)), "ttft")
    assert not verdict.is_shown
    assert "no difference shown between" in verdict.words


def test_few_rounds_show_nothing() -> None:
    of = plan("a/m", "b/m", rounds=4)
    verdict = found(verdicts(of, run(of, {"a/m": 10.0, "b/m": 100.0}), Draws(range(4), 1)), "ttft")
    assert not verdict.is_shown
    assert verdict.words == "too few rounds to compare a and b at first tokens: 4 of at least 8"


def test_a_small_difference_among_many_comparisons_is_not_shown_and_says_why() -> None:
    names = [f"{letter}/m" for letter in "abcdefgh"]
    of = plan(*names, rounds=8)
    times = dict.fromkeys(names, 100.0) | {"a/m": 94.0}
    told = verdicts(of, run(of, times, seed=3), Draws(range(8), 1, 100))
    alone = [verdict for verdict in told if not verdict.is_shown and verdict.p < 0.05]
    assert alone
    assert all("would be one alone, but is not among" in verdict.words for verdict in alone)


def test_requests_that_failed_are_compared_as_errors_only() -> None:
    of = plan("a/m", "b/m", rounds=20, goal=GOAL)
    samples = [
        sample(each.key, error_kind="server_error", ttft_ms=None, total_ms=None)
        if each.key.deployment == "b/m"
        else each
        for each in run(of, {"a/m": 100.0, "b/m": 100.0})
    ]
    told = verdicts(of, samples, Draws(range(20), 1))
    assert {verdict.aspect for verdict in told} == {"errors", "goodput"}
    assert found(told, "errors").words.startswith("a is better than b in errors: 100 (")
    assert found(told, "goodput").words.startswith("a is better than b at the goal: 100 (")
    assert all(verdict.is_shown for verdict in told)


def test_answers_of_other_lengths_are_noted() -> None:
    of = plan("a/m", "b/m", rounds=20)
    samples = [
        sample(each.key, total_ms=each.ttft_ms or 0, completion_tokens=50 if each.key.deployment == "a/m" else 100)
        for each in run(of, {"a/m": 77.0, "b/m": 100.0})
    ]
    assert found(verdicts(of, samples, Draws(range(20), 1)), "total").words.endswith("; its answers are 50 % shorter")


def test_every_figure_is_a_row_of_the_csv() -> None:
    of = plan("a/m", "b/m")
    text = as_csv(report(of, run(of, {"a/m": 77.0, "b/m": 100.0}), sittings=1, at_most_usd=0.04))
    head, *rows = text.splitlines()
    assert head == "deployment,concurrency,class,metric,unit,n,value,low,high"
    assert any(row.startswith("a/m,1,all,ttft_p50_ms,ms,20,7") for row in rows)
    assert any(row.startswith("b/m,1,json,cost_per_1000_usd,usd,10,1,") for row in rows)


def test_an_hour_of_speech_costs_what_its_answers_cost_by_their_length() -> None:
    of = plan("a/m", kinds=("short",))
    spoken = [
        sample(each.key, sentence_ms=300.0, speech_pause_ms=0.0, spoken_s=10.0 if each.key.round % 2 else 30.0)
        for each in run(of, {"a/m": 100.0})
    ]
    (cell,) = [each for each in cells(of, spoken, Draws(range(10), 1)) if each.kind == ALL]
    hour = cell.figures["cost_per_spoken_hour_usd"]
    assert hour.value is not None
    assert abs(hour.value - 3600 * 0.001 / 20) < 1e-9
    assert cell.figures["sentence_p50_ms"].value == 300.0
