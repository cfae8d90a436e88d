"""W3C Trace Context: what is read of a client's headers, and what providers are sent."""

from random import Random

import pytest

from gateway.core.ids import TraceContext, begun_by, begun_here, span_id, uuid7

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALID = f"00-{TRACE_ID}-{PARENT_ID}-01"
CALL_ID = "01a20150-ca1a-7470-8f7f-ee2dd7a77f9a"


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (VALID, 1),
        (f"00-{TRACE_ID}-{PARENT_ID}-00", 0),
        (f"00-{TRACE_ID}-{PARENT_ID}-03", 3),
        (f"00-{TRACE_ID}-{PARENT_ID}-ff", 3),  # unknown flags are not passed on
        (f"cc-{TRACE_ID}-{PARENT_ID}-01-what-the-future-brings", 1),
        (f" {VALID} ", 1),
    ],
)
def test_a_valid_header_is_read(header: str, flags: int) -> None:
    assert begun_by([header], ["a=1", "b=2"]) == TraceContext(TRACE_ID, PARENT_ID, flags, "a=1,b=2")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [""],
        [VALID, VALID],
        [f"ff-{TRACE_ID}-{PARENT_ID}-01"],
        [f"00-{'0' * 32}-{PARENT_ID}-01"],
        [f"00-{TRACE_ID}-{'0' * 16}-01"],
        [f"{VALID}-more"],
        [f"{VALID}."],
        [VALID.upper()],
        [f"00-{TRACE_ID}-{PARENT_ID}"],
        [f"00-{TRACE_ID}-{PARENT_ID}-1"],
        ["00-\u0660af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
        ["x" * 100_000],
    ],
)
def test_an_invalid_header_is_as_none(headers: list[str]) -> None:
    assert begun_by(headers, ["a=1"]) is None


@pytest.mark.parametrize("state", ["a=" + "1" * 2000, "a=\r\nx: y", "a=ä", "a=\x00"])
def test_a_state_that_cannot_be_sent_is_left_out(state: str) -> None:
    found = begun_by([VALID], [state])
    assert found is not None
    assert found.state == ""


def test_ids_are_made_of_the_ledgers() -> None:
    trace = begun_here(CALL_ID, 1.0)
    assert trace == TraceContext("01a20150ca1a74708f7fee2dd7a77f9a", None, 3)
    assert span_id(CALL_ID) == "8f7fee2dd7a77f9a"
    assert trace.traceparent(CALL_ID) == "00-01a20150ca1a74708f7fee2dd7a77f9a-8f7fee2dd7a77f9a-03"


def test_as_many_are_sampled_as_the_ratio_says_and_always_the_same() -> None:
    random = Random(7)
    ids = [uuid7(number, random.getrandbits(74)) for number in range(20_000)]
    for ratio in (0.0, 0.1, 0.5, 1.0):
        sampled = [begun_here(each, ratio).is_sampled for each in ids]
        assert sum(sampled) / len(ids) == pytest.approx(ratio, abs=0.01)
        assert sampled == [begun_here(each, ratio).is_sampled for each in ids]


def test_providers_are_sent_the_attempts_span_and_nothing_else_of_a_trace() -> None:
    headers = {"openai-beta": "x", "traceparent": "theirs", "tracestate": "theirs"}
    trace = TraceContext(TRACE_ID, PARENT_ID, 1, "a=1")
    assert trace.sent_with(headers, CALL_ID) == {
        "openai-beta": "x",
        "traceparent": f"00-{TRACE_ID}-8f7fee2dd7a77f9a-01",
        "tracestate": "a=1",
    }
    quiet = TraceContext(TRACE_ID, PARENT_ID, 1, "a=1", is_passed_on=False)
    assert quiet.sent_with(headers, CALL_ID) == {"openai-beta": "x"}
