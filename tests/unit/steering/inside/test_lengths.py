"""The expected length of an answer, by the kind of call."""

import pytest

from gateway.core.calls import CallKind, Objective
from gateway.steering.constants import LENGTH_CELLS_KEPT
from gateway.steering.prediction import Lengths
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

ANSWER = 250.0  # tokens: the mean of all the model's answers
STEP = 2**0.25


def taught(*lessons: tuple[CallKind, int], times: int = 30) -> Lengths:
    lengths = Lengths()
    for _ in range(times):
        for kind, tokens in lessons:
            lengths.learn(MODEL, kind, tokens)
    return lengths


def near(tokens: float) -> object:
    """Within a step, and what a prior of two answers leaves after thirty."""
    return pytest.approx(tokens, rel=0.5)


def test_an_unknown_kind_is_as_long_as_any_of_the_models_answers() -> None:
    assert Lengths().expected(MODEL, CallKind(), ANSWER) == pytest.approx(ANSWER, rel=STEP**0.5 - 1)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (CallKind(endpoint="completions"), CallKind(endpoint="chat.completions")),
        (CallKind(structured=True), CallKind(structured=False)),
        (CallKind(max_tokens=16), CallKind(max_tokens=8000)),
        (CallKind(client="labels"), CallKind(client="reports")),
        (CallKind(tags={"task": "label"}), CallKind(tags={"task": "report"})),
        (CallKind(prompt_tokens=40), CallKind(prompt_tokens=6000)),
    ],
    ids=["API", "tools or JSON", "max_tokens", "client", "tags", "prompt"],
)
def test_kinds_are_told_apart_by_each_thing_a_request_says(short: CallKind, long: CallKind) -> None:
    lengths = taught((short, 5), (long, 4000))
    assert lengths.expected(MODEL, short, ANSWER) == near(5)
    assert lengths.expected(MODEL, long, ANSWER) == near(4000)


def test_a_few_answers_are_enough() -> None:
    lengths = taught((CallKind(client="labels"), 5), times=3)
    assert lengths.expected(MODEL, CallKind(client="labels"), ANSWER) < 15


def test_a_kind_not_seen_before_is_like_those_that_differ_least() -> None:
    lengths = taught(
        (CallKind(client="labels", prompt_tokens=40), 5), (CallKind(client="reports", prompt_tokens=40), 4000)
    )
    assert lengths.expected(MODEL, CallKind(client="labels", prompt_tokens=9000), ANSWER) == near(5)


def test_models_do_not_share_what_they_learned() -> None:
    lengths = taught((CallKind(), 5))
    assert lengths.expected("another", CallKind(), ANSWER) == pytest.approx(ANSWER, rel=STEP**0.5 - 1)


def test_nothing_longer_than_the_request_allows_is_expected() -> None:
    assert Lengths().expected(MODEL, CallKind(max_tokens=16), ANSWER) == 16


def test_a_mean_of_long_and_short_answers_is_what_decoding_them_takes() -> None:
    lengths = taught((CallKind(), 10), (CallKind(), 990), times=200)
    assert lengths.expected(MODEL, CallKind(), ANSWER) == pytest.approx(500, rel=0.2)


def test_predictions_come_in_few_steps() -> None:
    lengths = Lengths()
    found = set()
    for tokens in range(1, 4000):
        lengths.learn(MODEL, CallKind(), tokens)
        found.add(lengths.expected(MODEL, CallKind(), ANSWER))
    assert len(found) <= 4 * 12  # twelve octaves


def test_a_new_length_replaces_the_old_one() -> None:
    lengths = taught((CallKind(), 4000), times=500)
    for _ in range(500):
        lengths.learn(MODEL, CallKind(), 20)
    assert lengths.expected(MODEL, CallKind(), ANSWER) == near(20)


def test_ids_among_the_tags_do_not_hide_the_task() -> None:
    lengths = Lengths()
    for number in range(200):
        lengths.learn(MODEL, CallKind(tags={"task": "label", "trace": str(number)}), 5)
        lengths.learn(MODEL, CallKind(tags={"task": "report", "trace": str(-number)}), 4000)
    assert lengths.expected(MODEL, CallKind(tags={"task": "label", "trace": "new"}), ANSWER) == near(5)
    assert lengths.expected(MODEL, CallKind(tags={"trace": "newer", "task": "report"}), ANSWER) == near(4000)


def test_a_strangers_tags_and_models_do_not_fill_the_memory() -> None:
    lengths = Lengths()
    for number in range(3 * LENGTH_CELLS_KEPT):
        lengths.learn(f"model-{number}", CallKind(tags={"a": str(number)}), 5)
        lengths.learn(MODEL, CallKind(tags={f"name-{number}": "a", "id": str(number)}), 5)
    assert len(lengths._cells) <= LENGTH_CELLS_KEPT
    assert len(lengths._tags) <= LENGTH_CELLS_KEPT


def test_a_strangers_tags_leave_others_their_kinds() -> None:
    known = CallKind(client="us", tags={"task": "label"})
    lengths = taught((known, 5))
    for number in range(2 * LENGTH_CELLS_KEPT):
        lengths.learn(MODEL, CallKind(client="stranger", tags={"id": str(number)}), 4000)
    assert lengths.expected(MODEL, known, ANSWER) == near(5)


def test_a_call_is_planned_for_the_length_of_its_kind() -> None:
    replica = VirtualReplica(deployments=("quick", "fast"))
    for _ in range(40):
        replica.win("quick", 0.1, speed_tps=40.0)
        replica.win("fast", 0.6, speed_tps=1000.0)
    label, report = CallKind(client="labels"), CallKind(client="reports")
    for _ in range(40):
        replica.finish(replica.win("quick", 0.1, speed_tps=40.0), completion_tokens=5, kind=label)
        replica.finish(replica.win("fast", 0.6, speed_tps=1000.0), completion_tokens=2000, kind=report)
    replica.now_s += 1.0

    def primaries(kind: CallKind) -> set[str]:
        plans = [replica.plan(objective=Objective.COMPLETION, kind=kind, budget=0.0) for _ in range(50)]
        return {plan.launches[0].deployment for plan in plans}

    assert primaries(label) == {"quick"}
    assert primaries(report) == {"fast"}


def test_a_failed_call_and_one_without_a_count_of_tokens_teach_no_length() -> None:
    replica = VirtualReplica(deployments=("a",))
    kind = CallKind(client="labels")
    for _ in range(50):
        replica.finish(replica.lose("a", 0.1), completion_tokens=5, kind=kind)
        replica.finish(replica.win("a"), completion_tokens=None, kind=kind)
    explanation = replica.plan(kind=kind, explain=True).explanation
    assert explanation is not None
    assert explanation.answer_tokens == pytest.approx(ANSWER, rel=STEP**0.5 - 1)
