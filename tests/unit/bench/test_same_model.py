"""Whether two sets of answers are from one model."""

import re
from random import Random

import pytest

from gateway.bench.gate import Gate, GateError, Outcome, Saved, Wanted, check_plan
from gateway.bench.plan import WRITTEN_KINDS, Lengths, Plan, Sample, body, kind_of, turns
from gateway.bench.report import report
from gateway.bench.same_model import check_same, judge_same
from gateway.detecting.writing import WRITTEN_PROMPTS, Answers, alike, discrepancy
from tests.unit.bench.samples import plan, sample

WORDS = ("sea ", "wind ", "stone ", "bread ")


def written(*names: str, **changed: object) -> Plan:
    return plan(*names, **({"kinds": WRITTEN_KINDS[:6], "rounds": 12, "lengths": Lengths(long_answer=50)} | changed))


def text(random: Random, likely: float) -> str:
    """Return a text whose words are the likeliest one with ``likely``."""
    return "".join(WORDS[0] if random.random() < likely else random.choice(WORDS) for _ in range(30))


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


def answers(likely: float, seed: int, number: int = 10) -> Answers:
    random = Random(seed)
    return {str(prompt): [text(random, likely) for _ in range(number)] for prompt in range(4)}


def test_texts_are_alike_by_the_characters_at_each_position_and_padded() -> None:
    found = alike(["abcd", "abxd", "ab", ""])
    assert found[0] == [0.0, 0.75, 0.5, 0.0]
    assert found[2][3] == 0.5  # both are padded at two of four places
    assert [row[place] for place, row in enumerate(found)] == [0.0] * 4


def test_the_discrepancy_is_that_of_its_definition() -> None:
    a, b = ([each.strip().replace(" ", "_") for each in answers(*of)["0"]] for of in ((0.9, 1, 6), (0.2, 2, 9)))
    length = max(map(len, [*a, *b]))

    def kernel(x: str, y: str) -> float:
        return sum(one == other for one, other in zip(x.ljust(length), y.ljust(length), strict=True)) / length

    within = sum(kernel(x, y) for i, x in enumerate(a) for j, y in enumerate(a) if i != j) / (6 * 5)
    other = sum(kernel(x, y) for i, x in enumerate(b) for j, y in enumerate(b) if i != j) / (9 * 8)
    across = sum(kernel(x, y) for x in a for y in b) / (6 * 9)
    found = discrepancy({"0": a}, {"0": b}, seed=1, permutations=10)
    assert found is not None
    assert found.mmd2 == pytest.approx(within + other - 2 * across)
    assert (found.prompts, found.answers) == (1, (6, 9))


def test_one_model_is_hardly_ever_told_from_itself_and_another_one_is() -> None:
    same = [
        discrepancy(answers(0.5, seed), answers(0.5, 1000 + seed), seed=seed, permutations=99) for seed in range(40)
    ]
    assert sum(each is not None and each.p <= 0.05 for each in same) <= 6  # 2 are expected; seeds are fixed
    other = discrepancy(answers(0.5, 1), answers(0.8, 2), seed=1, permutations=999)
    assert other is not None
    assert other.p == pytest.approx(1 / 1000)


def test_what_is_clearly_no_difference_is_found_with_fewer_permutations() -> None:
    a, b = answers(0.5, 1), answers(0.5, 1001)
    whole, short = (discrepancy(a, b, seed=1, permutations=2000, enough=enough) for enough in (None, 20))
    assert whole is not None
    assert short is not None
    assert short.mmd2 == whole.mmd2
    assert short.p == pytest.approx(whole.p, abs=0.2)
    assert short.p > 0.05
    other = discrepancy(a, answers(0.9, 2), seed=1, permutations=999, enough=20)
    assert other is not None
    assert other.p == pytest.approx(1 / 1000)


def test_texts_that_are_all_the_same_show_nothing() -> None:
    found = discrepancy({"0": ["yes"] * 10}, {"0": ["yes"] * 10}, seed=1, permutations=50)
    assert found is not None
    assert (found.mmd2, found.p) == (0.0, 1.0)


def test_prompts_with_few_answers_do_not_count() -> None:
    assert discrepancy({"0": ["a"] * 10}, {"0": ["a"] * 4}, seed=1) is None


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
