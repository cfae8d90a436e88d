"""A plan in a header is one short line of ASCII, whatever the names are and however many run."""

import json
from collections.abc import Mapping

from gateway.core.attempts import Role
from gateway.core.calls import Mode, Objective
from gateway.http import headers
from gateway.steering import Explanation, Start


def plan(launches: int, name: str = "groq/llama", excluded: Mapping[str, str] | None = None) -> Explanation:
    starts = tuple(
        Start(f"{name}-{number}", 0.0, Role.RACE, audited=False, extra=True, why="because")
        for number in range(launches)
    )
    return Explanation(
        objective=Objective.FIRST_TOKEN,
        mode=Mode.AUTO,
        prompt_tokens=700,
        answer_tokens=250.0,
        ttft_ms=None,
        min_tok_s=None,
        budget=1.0,
        budget_tokens=20.0,
        deployments=(),
        launches=starts,
        rest=(),
        retry_after_s=None,
        notes=(),
        excluded=excluded or {},
    )


def test_a_usual_plan_is_told_whole() -> None:
    told = json.loads(headers.written(plan(3)))

    assert [launch["deployment"] for launch in told["launches"]] == ["groq/llama-0", "groq/llama-1", "groq/llama-2"]
    assert "left_out" not in told


def test_a_long_plan_says_how_much_was_left_out() -> None:
    text = headers.written(plan(200))

    told = json.loads(text)
    assert len(text) <= headers.LIMIT_BYTES
    assert len(told["launches"]) + told["left_out"] == 200


def test_names_longer_than_the_limit_still_leave_a_line() -> None:
    assert json.loads(headers.written(plan(2, "x" * headers.LIMIT_BYTES)))["left_out"] == 2


def test_who_is_excluded_is_told_with_the_reason() -> None:
    assert "excluded" not in json.loads(headers.written(plan(1)))
    assert json.loads(headers.written(plan(1, excluded={"a/b": "takes no images"})))["excluded"] == {
        "a/b": "takes no images"
    }


def test_where_there_is_no_room_for_reasons_those_excluded_are_counted() -> None:
    text = headers.written(plan(3, excluded={str(number): "x" * 1000 for number in range(5)}))

    told = json.loads(text)
    assert len(text) <= headers.LIMIT_BYTES
    assert (len(told["launches"]), told["excluded_left_out"]) == (3, 5)


def test_a_name_that_is_no_ascii_is_escaped() -> None:
    assert headers.written(plan(1, "groß/模型")).isascii()


def test_only_a_yes_asks_for_it() -> None:
    assert headers.is_wanted({"x-holeshot-plan": "1"})
    assert headers.is_wanted({"x-holeshot-plan": "Explain"})
    assert not headers.is_wanted({"x-holeshot-plan": "0"})
    assert not headers.is_wanted({})
