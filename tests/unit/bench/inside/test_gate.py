"""Goals and runs of before that a bench is judged by, and the reports for pipelines."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from gateway.bench import (
    BenchPlan,
    BenchSample,
    CheckOutcome,
    GateChecks,
    GateError,
    GateResult,
    Report,
    TokenLengths,
    check_plan,
    gate_markdown,
    judge,
    junit,
    new_journal,
    read_condition,
    read_saved,
    report,
    with_gate,
)
from gateway.bench.gate import Check, SavedBench
from tests.unit.bench.inside.samples import plan, run, sample


def reported(of: BenchPlan, samples: list[BenchSample]) -> Report:
    return report(of, samples, sittings=1, at_most_usd=0.0)


def unreported(of: BenchPlan, samples: list[BenchSample]) -> Report:
    """Return a report without figures, which a comparison with a run of before does not need."""
    return msgspec.structs.replace(report(of, [], sittings=1, at_most_usd=0.0), samples=samples)


def gate(of: BenchPlan, samples: list[BenchSample], *conditions: str, against: SavedBench | None = None) -> GateResult:
    wanted = GateChecks(tuple(map(read_condition, conditions)), against, "before.jsonl")
    check_plan(wanted, of)
    return judge(wanted, reported(of, samples) if conditions else unreported(of, samples))


def outcomes(of: GateResult) -> dict[tuple[str, str], str]:
    return {(check.deployment, check.name): check.outcome.value for check in of.checks}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ttft_p95_ms > 800", (None, "ttft_p95_ms", ">", 800.0)),
        ("ttft_p95_ms>=0.8s", (None, "ttft_p95_ms", ">=", 800.0)),
        (" errors > 2% ", (None, "errors", ">", 0.02)),
        ("groq/meta:free: decode_tps_p50 < 45.5", ("groq/meta:free", "decode_tps_p50", "<", 45.5)),
        ("a/m:tokens_mean <= 3", ("a/m", "tokens_mean", "<=", 3.0)),
    ],
)
def test_a_condition_names_a_figure_and_perhaps_a_deployment(
    text: str, read: tuple[str | None, str, str, float]
) -> None:
    condition = read_condition(text)
    assert (condition.deployment, condition.metric, condition.sign, condition.limit) == read


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fast", 'write it like "ttft_p95_ms > 800", with >, >=, < or <='),
        ("ttft_p95 > 800", "there is no figure 'ttft_p95'; did you mean 'ttft_p95_ms'?"),
        ("ttft_p95_ms < 800", "would fail the better ones; did you mean ttft_p95_ms > 800?"),
        ("decode_tps_p50 >= 40", "would fail the better ones; did you mean decode_tps_p50 <= 40?"),
        ("decode_tps_p50 < 40ms", "decode_tps_p50 is in tok/s: 40ms is none; write decode_tps_p50 < 40"),
        ("errors > 2s", "errors is in shares from 0 to 1, or in %"),
    ],
)
def test_a_condition_that_is_not_understood_says_what_is_possible(text: str, told: str) -> None:
    with pytest.raises(GateError) as refused:
        read_condition(text)
    assert told in str(refused.value)


def test_a_condition_about_what_is_not_measured_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(GateError, match="a/n is not measured; did you mean 'a/m'"):
        check_plan(GateChecks((read_condition("a/n: errors > 0"),)), plan("a/m", "b/m"))
    with pytest.raises(GateError, match="needs a --goal"):
        check_plan(GateChecks((read_condition("goodput < 90%"),)), plan("a/m"))


def test_a_goal_is_broken_only_if_the_whole_interval_breaks_it() -> None:
    of = plan("a/m", "b/m", rounds=20)
    told = reported(of, run(of, {"a/m": 100.0, "b/m": 200.0}))
    [a, _] = [cell for cell in told.cells if cell.kind == "all"]
    found = a.figures["ttft_p50_ms"]
    assert found.low is not None
    assert found.value is not None
    between = (
        f"ttft_p50_ms > {(found.low + found.value) / 2}"  # the estimate breaks it, a part of the interval does not
    )

    def judged(*conditions: str) -> GateResult:
        return judge(GateChecks(tuple(map(read_condition, conditions))), told)

    assert outcomes(judged("ttft_p50_ms > 150")) == {
        ("a/m", "ttft_p50_ms > 150"): "holds",
        ("b/m", "ttft_p50_ms > 150"): "broken",
    }
    assert judged("ttft_p50_ms > 150").outcome is CheckOutcome.BROKEN
    assert judged("a/m: ttft_p50_ms > 150").outcome is CheckOutcome.HOLDS
    undecided = judged(f"a/m: {between}")
    assert undecided.outcome is CheckOutcome.UNDECIDED
    assert undecided.checks[0].words.endswith("more rounds would tell")
    assert judged(f"a/m: {between}", "b/m: ttft_p50_ms > 150").outcome is CheckOutcome.BROKEN


def test_no_error_at_all_is_within_a_goal_of_no_errors() -> None:
    of = plan("a/m", rounds=20)
    samples = run(of, {"a/m": 100.0})
    assert gate(of, samples, "errors > 0").outcome is CheckOutcome.HOLDS
    failed = [sample(samples[0].key, error_kind="server_error", ttft_ms=None), *samples[1:]]
    assert gate(of, failed, "errors > 0").outcome is CheckOutcome.BROKEN


def test_few_rounds_decide_nothing() -> None:
    of = plan("a/m", rounds=7)
    found = gate(of, run(of, {"a/m": 100.0}), "ttft_p50_ms > 5", "errors > 50%")
    assert {check.outcome for check in found.checks} == {CheckOutcome.UNDECIDED}
    assert found.checks[0].words.endswith("too few rounds: 7 of at least 8")


def test_a_figure_without_an_interval_decides_nothing() -> None:
    of = plan("a/m", rounds=20)
    [check] = gate(of, run(of, {"a/m": 100.0}), "ttft_p95_ms > 5").checks
    assert check.outcome is CheckOutcome.UNDECIDED
    assert check.words.endswith("too few answers for an interval: 40")


def test_a_deployment_that_never_answers_decides_no_time() -> None:
    of = plan("a/m", rounds=20)
    samples = [sample(each.key, error_kind="server_error", ttft_ms=None) for each in run(of, {"a/m": 100.0})]
    assert outcomes(gate(of, samples, "ttft_p50_ms > 5", "errors > 1%")) == {
        ("a/m", "ttft_p50_ms > 5"): "undecided",
        ("a/m", "errors > 1%"): "broken",
    }


def test_what_is_slower_than_before_is_broken_and_what_is_as_before_holds() -> None:
    of = plan("a/m", "b/m", rounds=20)
    before = SavedBench(of, run(of, {"a/m": 100.0, "b/m": 100.0}, seed=1))
    found = gate(of, run(of, {"a/m": 130.0, "b/m": 100.0}, seed=2), against=before)
    assert outcomes(found) == {
        (name, f"{aspect} not worse"): "broken" if (name, aspect) == ("a/m", "ttft") else "holds"
        for name in ("a/m", "b/m")
        for aspect in ("ttft", "decode_tps", "total", "errors")
    }
    [words] = [check.words for check in found.checks if check.outcome is CheckOutcome.BROKEN]
    assert words.startswith("ttft: ")
    assert words.endswith(" more time than in before.jsonl")


def test_what_is_faster_than_before_holds() -> None:
    of = plan("a/m", rounds=20)
    before = SavedBench(of, run(of, {"a/m": 130.0}, seed=1))
    assert gate(of, run(of, {"a/m": 100.0}, seed=2), against=before).outcome is CheckOutcome.HOLDS


def test_slower_decoding_and_more_errors_are_worse() -> None:
    of = plan("a/m", rounds=30)
    before = SavedBench(of, run(of, {"a/m": 100.0}, seed=1))
    slower = [
        msgspec.structs.replace(each, decode_tps=40.0 + (each.ttft_ms or 0) / 50)
        for each in run(of, {"a/m": 100.0}, seed=2)
    ]
    failing = [
        sample(each.key, error_kind="server_error", ttft_ms=None) if each.key.round % 2 else each
        for each in run(of, {"a/m": 100.0}, seed=2)
    ]
    assert outcomes(gate(of, slower, against=before))["a/m", "decode_tps not worse"] == "broken"
    assert outcomes(gate(of, failing, against=before))["a/m", "errors not worse"] == "broken"
    assert outcomes(gate(of, failing, against=before))["a/m", "ttft not worse"] == "holds"


def test_a_class_that_fails_more_often_is_no_slower_answer() -> None:
    of = plan("a/m", rounds=30)
    whole = [
        msgspec.structs.replace(each, ttft_ms=(each.ttft_ms or 0) * (10 if each.key.kind == "json" else 1))
        for each in run(of, {"a/m": 100.0}, seed=1)
    ]
    short_only = [
        sample(each.key, error_kind="server_error", ttft_ms=None)
        if each.key.kind == "short" and each.key.round % 2
        else each
        for each in whole
    ]
    assert outcomes(gate(of, short_only, against=SavedBench(of, whole)))["a/m", "ttft not worse"] == "holds"


def test_where_nothing_has_changed_hardly_any_gate_is_broken() -> None:
    of = plan("a/m", "b/m", rounds=10)
    times = {"a/m": 100.0, "b/m": 100.0}
    broken = sum(
        gate(of, run(of, times, seed=2 * seed), against=SavedBench(of, run(of, times, seed=2 * seed + 1))).outcome
        is CheckOutcome.BROKEN
        for seed in range(60)
    )
    assert broken <= 4  # at most 1.5 are expected; seeds are fixed


def test_too_few_rounds_before_decide_nothing() -> None:
    of, few = plan("a/m", rounds=10), plan("a/m", rounds=5)
    found = gate(of, run(of, {"a/m": 200.0}), against=SavedBench(few, run(few, {"a/m": 100.0})))
    assert {check.outcome for check in found.checks} == {CheckOutcome.UNDECIDED}
    assert "too few rounds to compare with before.jsonl: 5 of at least 8" in found.checks[0].words


def test_only_what_both_runs_have_is_compared_and_the_rest_is_said() -> None:
    of = plan("a/m", "c/m", kinds=("short", "long_prompt", "json"), url="http://gateway")
    old = plan("a/m", "b/m", kinds=("short", "long_prompt"), lengths=TokenLengths(long_prompt=100))
    found = gate(of, run(of, {"a/m": 100.0, "c/m": 1.0}), against=SavedBench(old, run(old, {"a/m": 100.0, "b/m": 1.0})))
    assert {check.deployment for check in found.checks} == {"a/m"}
    assert found.notes == [
        "before.jsonl does not have c/m",
        "before.jsonl does not have long_prompt, json, or with other lengths: not compared",
        "before.jsonl was measured directly, this was not",
    ]
    other = plan("b/m")
    with pytest.raises(GateError, match=r"nothing of this bench can be compared with before\.jsonl: it has b/m"):
        gate(of, [], against=SavedBench(other, []))


def test_a_run_of_before_is_read_from_its_journal_or_its_json(tmp_path: Path) -> None:
    of = plan("a/m", rounds=2)
    samples = run(of, {"a/m": 100.0})
    with new_journal(tmp_path / "bench.jsonl", of) as journal:
        for each in samples:
            journal.done(each)
    (tmp_path / "bench.json").write_bytes(msgspec.json.encode(reported(of, samples)))
    assert read_saved(tmp_path / "bench.jsonl") == SavedBench(of, samples)
    assert read_saved(tmp_path / "bench.json") == SavedBench(of, samples)
    (tmp_path / "other.json").write_text('{"plan": 1}\n')
    with pytest.raises(GateError, match="--against takes a journal, or what --json printed"):
        read_saved(tmp_path / "other.json")
    with pytest.raises(GateError, match="cannot be read: No such file"):
        read_saved(tmp_path / "missing.json")


def test_junit_has_a_case_for_each_check() -> None:
    of = plan("a/m")
    checks = [
        Check("ttft_p95_ms > 800", "a/m", 1, CheckOutcome.BROKEN, 'is <912> & "late"\x1b'),
        Check("errors > 0", "a/m", 1, CheckOutcome.HOLDS, "fine"),
        Check("total_p95_ms > 9", "a/m", 1, CheckOutcome.UNDECIDED, "too few"),
    ]
    root = ET.fromstring(junit(reported(of, run(of, {"a/m": 100.0})), GateResult(CheckOutcome.BROKEN, checks, [])))
    [suite] = root.findall("testsuite")
    assert (root.tag, suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("testsuites", "3", "1", "1")
    assert [(case.get("classname"), case.get("name")) for case in suite] == [
        (each.deployment, each.name) for each in checks
    ]
    failure, error = suite.find("testcase/failure"), suite.find("testcase/error")
    assert failure is not None
    assert error is not None
    assert (failure.get("message"), error.get("message")) == ('is <912> & "late"\\x1b', "too few")


def test_markdown_shows_checks_and_figures_and_no_markup_of_names() -> None:
    of = plan("a_b/m|x", "c/m", rounds=20)
    samples = run(of, {"a_b/m|x": 77.0, "c/m": 100.0})
    text = gate_markdown(reported(of, samples), gate(of, samples, "ttft_p50_ms > 90"))
    assert "**❌ broken**" in text
    assert r"| a\_b/m\|x | ttft\_p50\_ms \> 90 | ✅ holds |" in text
    assert r"| c/m | ttft\_p50\_ms \> 90 | ❌ broken |" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.replace(r"\|", "").count("|") for line in rows[4:]}) == 1
    assert "80 of 80 requests" in text
    assert "broken" not in gate_markdown(reported(of, samples), None)


def test_the_json_of_a_gated_report_can_be_compared_with() -> None:
    of = plan("a/m")
    samples = run(of, {"a/m": 100.0})
    told = json.loads(
        msgspec.json.encode(with_gate(reported(of, samples), gate(of, samples, "ttft_p50_ms > 5", "errors > 0")))
    )
    assert told["gate"]["outcome"] == "broken"
    assert [check["outcome"] for check in told["gate"]["checks"]] == ["broken", "holds"]
    assert msgspec.convert(told, SavedBench).samples == samples
