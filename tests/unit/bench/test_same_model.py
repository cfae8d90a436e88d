"""Whether two sets of answers are from one model."""

import re
from random import Random

import pytest

from gateway.bench.gate import Gate, GateError, Outcome, Saved, Wanted, check_plan
from gateway.bench.plan import WRITTEN_KINDS, Lengths, Plan, Sample, body, kind_of, turns
from gateway.bench.report import report
from gateway.bench.same_model import check_same, judge_same
from gateway.detecting.writing import WRITTEN_PROMPTS
from tests.unit.bench.samples import plan, sample
from tests.unit.detecting.test_writing import text


def written(*names: str, **changed: object) -> Plan:
    return plan(*names, **({"kinds": WRITTEN_KINDS[:6], "rounds": 12, "lengths": Lengths(long_answer=50)} | changed))


def samples(of: Plan, likely: dict[str, float], seed: int = 1) -> list[Sample]:
    random = Random(seed)
    return [
        sample(key, text=text(random, likely[key.deployment]))
        for round_ in range(of.rounds)
        for turn in turns(of, round_)
        for key in turn.keys
    ]


def judged(of: Plan, measured: list[Sample], wanted: Wanted | None = None) -> Gate:
    check_same(of, wanted)
    return judge_same(report(of, measured, sittings=1, at_most_usd=0.0), wanted)


def test_each_deployment_is_compared_with_the_first() -> None:
    of = written("a/m", "b/m", "c/m")
    found = judged(of, samples(of, {"a/m": 0.5, "b/m": 0.5, "c/m": 0.9}))
    assert [(check.deployment, check.name, check.outcome) for check in found.checks] == [
        ("b/m", "same model as a/m", Outcome.HOLDS),
        ("c/m", "same model as a/m", Outcome.BROKEN),
    ]
    assert found.outcome is Outcome.BROKEN
    assert re.fullmatch(
        r"does not write as a/m does: p = 0\.0010, MMD² 0\.\d{4}, 72 and 72 answers to 6 prompts", found.checks[1].words
    )


def test_a_deployment_is_compared_with_what_it_wrote_before() -> None:
    of = written("a/m", "b/m", "c/m")
    old = written("b/m", "a/m")
    before = Saved(old, samples(old, {"a/m": 0.5, "b/m": 0.5}, seed=2))
    found = judged(of, samples(of, {"a/m": 0.5, "b/m": 0.9, "c/m": 0.5}), Wanted((), before, "old.jsonl"))
    assert [(check.deployment, check.name, check.outcome) for check in found.checks] == [
        ("a/m", "same model as old.jsonl", Outcome.HOLDS),
        ("b/m", "same model as old.jsonl", Outcome.BROKEN),
    ]
    assert found.notes == ["old.jsonl does not have c/m"]


def test_a_deployment_that_writes_nothing_decides_nothing() -> None:
    of = written("a/m", "b/m")
    silent = [
        sample(each.key, text="") if each.key.deployment == "b/m" else each
        for each in samples(of, {"a/m": 0.5, "b/m": 0.5})
    ]
    found = judged(of, silent)
    assert found.outcome is Outcome.UNDECIDED
    assert "0 of 6 prompts have 5 of each (a model that reasons first may need more --answer-tokens)" in (
        found.checks[0].words
    )


def test_a_first_run_of_one_deployment_says_how_to_compare_with_it() -> None:
    of = written("a/m")
    found = judged(of, samples(of, {"a/m": 0.5}))
    assert (found.outcome, found.checks) == (Outcome.HOLDS, [])
    assert found.notes == ["nothing is compared yet: give this run's journal to --against in a later run"]


def test_answers_that_never_vary_are_noted() -> None:
    of = written("a/m", "b/m")
    measured = [sample(each.key, text=each.key.kind) for each in samples(of, {"a/m": 0.5, "b/m": 0.5})]
    found = judged(of, measured)
    assert found.outcome is Outcome.HOLDS
    assert [note.partition(":")[0] for note in found.notes] == [
        "a/m always writes the same to a prompt",
        "b/m always writes the same to a prompt",
    ]


@pytest.mark.parametrize(
    ("of", "wanted", "told"),
    [
        (written("a/m", "b/m", rounds=4, concurrencies=(2,)), None, "--rounds times --concurrency is 8"),
        (written("a/m"), Wanted((), Saved(plan("a/m"), []), "t.jsonl"), "t.jsonl is no run of --same-model"),
        (
            written("a/m"),
            Wanted((), Saved(written("a/m", lengths=Lengths(long_answer=80)), []), "t.jsonl"),
            "t.jsonl has answers of 80 tokens: add --answer-tokens 80",
        ),
        (written("a/m"), Wanted((), Saved(written("b/m"), []), "t.jsonl"), "nothing of this bench can be compared"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_sent(of: Plan, wanted: Wanted | None, told: str) -> None:
    with pytest.raises(GateError) as refused:
        check_same(of, wanted)
    assert told in str(refused.value)


def test_times_are_not_compared_with_a_run_that_has_texts() -> None:
    with pytest.raises(GateError, match="has no times to compare with"):
        check_plan(Wanted((), Saved(written("a/m"), []), "old.jsonl"), plan("a/m"))


def test_the_prompts_are_all_different_and_sent_without_a_salt() -> None:
    assert len(set(WRITTEN_PROMPTS)) == len(WRITTEN_PROMPTS) == len(WRITTEN_KINDS)
    sent = body(WRITTEN_KINDS[0], Lengths(long_answer=50), "salt", "m")
    assert sent == body(WRITTEN_KINDS[0], Lengths(long_answer=50), "other", "m")
    assert b'"temperature":1' in sent
    assert b'"max_tokens":50' in sent
    for name in ("written", "written:25", "written:fixed"):
        with pytest.raises(ValueError, match="written"):
            kind_of(name)
