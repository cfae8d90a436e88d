from typing import Any

import msgspec
import pytest

from gateway.racing import MOST_ANSWERS, RequestParameters
from gateway.racing.answer import request_of
from gateway.racing.validation import requested
from providers import Sendings
from providers.dialects import CHAT, COMPLETIONS, DIALECTS
from providers.upstreams.http_upstream import streamed_body
from providers.vendors import Quirks
from tests.support.calls import made_call
from tests.unit.racing.track import Timetable, Track


def fields(**values: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in values.items()}


def test_every_dialect_s_name_for_a_length_is_known() -> None:
    for dialect in DIALECTS.values():
        for name in dialect.requests.parameters.answer_limits:
            assert requested(fields(**{name: 70}), dialect).max_tokens == 70
    assert requested(fields(max_tokens=70, max_completion_tokens=60), CHAT).max_tokens == 60


def test_temperature_and_tools_are_told() -> None:
    asked = requested(fields(messages=[], temperature=0.5, tools=[{"type": "function"}, {"type": "function"}]), CHAT)
    assert asked == RequestParameters(None, 0.5, 2)


@pytest.mark.parametrize(
    "tool",
    [{"type": "web_search_20250305"}, {"type": "x_search"}, {"type": "browser_search"}, {"googleSearch": {}},
     {"google_search_retrieval": {}}, {"googleSearchRetrieval": {}}, {"enterpriseWebSearch": {}}, {"googleMaps": {}}],
)  # fmt: skip
def test_a_vendors_own_search_is_told_by_its_name_in_any_dialect(tool: dict[str, Any]) -> None:
    asked = requested(fields(tools=[{"type": "function"}, tool]), CHAT)
    assert (asked.searches, asked.searches_untold) == (True, False)


def test_a_field_of_chat_that_lets_its_vendor_search_is_told_apart() -> None:
    asked = requested(fields(web_search_options={}), CHAT)
    assert (asked.searches, asked.searches_untold) == (True, True)


def test_the_number_of_answers_is_told_and_never_more_than_anybody_gives() -> None:
    assert requested(fields(messages=[]), CHAT).answers == 1
    assert requested(fields(n=4), CHAT).answers == 4
    assert requested(fields(n=2, prompt=["one", "two", "three"]), COMPLETIONS).answers == 6
    assert requested(fields(prompt=["one", "two", "three"]), COMPLETIONS).answers == 3
    assert requested(fields(n=10**12), CHAT).answers == MOST_ANSWERS


@pytest.mark.parametrize("odd", ["many", None, True, -1, 0, 2**40, {"a": 1}])
def test_what_makes_no_sense_is_not_told(odd: Any) -> None:
    assert requested(fields(max_tokens=odd, tools="x"), CHAT) == RequestParameters()


@pytest.mark.parametrize("text", [b"1e999", b"9" * 400, b"-" + b"9" * 400])
def test_a_number_that_no_column_holds_is_not_told(text: bytes) -> None:
    assert requested({"temperature": msgspec.Raw(text), "max_tokens": msgspec.Raw(text)}, CHAT) == RequestParameters()


def test_of_what_is_nested_without_end_nothing_is_told() -> None:
    deep = msgspec.Raw(b"[" * 2_000_000)
    assert requested({"tools": deep, "temperature": deep, "max_tokens": deep}, CHAT) == RequestParameters()


def test_a_whole_temperature_is_stored_like_any_other() -> None:
    asked = requested(
        {"temperature": msgspec.Raw(b"1" + b"0" * 30)}, CHAT
    ).temperature  # no integer of SQLite's holds it
    assert asked == 1e30
    assert isinstance(asked, float)


def test_planning_s_finding_that_nothing_is_refused_holds_for_what_was_planned_alone() -> None:
    deployment = Track(Timetable("alpha", [])).model.deployments["alpha"]
    marked = fields(messages=[{"role": "user", "content": "Hi", "cache_control": {"type": "ephemeral"}}])
    planned = made_call(fields=marked)  # of which a plan would have said so
    others = (
        planned.rendered_as("alpha", fields=dict(marked)),  # reworded since
        planned.rendered_as("alpha", dropped=("messages.cache_control",)),
    )
    quirks = Quirks(refused_members=frozenset({"*.cache_control"}))
    sent = [streamed_body(request_of(deployment, call, "1", Sendings()), quirks) for call in (planned, *others)]
    assert [b"cache_control" in body for body in sent] == [True, False, False]
