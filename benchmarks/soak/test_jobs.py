"""Which call meets which fault is drawn from the seed and the number alone, and so is how it may end."""

import pytest

from benchmarks.soak.jobs import (
    AT_ONE,
    EVERYWHERE_SHARE,
    KINDS,
    NOT_OF_EMBEDDINGS,
    Ending,
    Fault,
    Job,
    Kind,
    allowed,
    asked,
    drawn,
    judged,
)
from benchmarks.soak.provider import text_of

STREAM, WHOLE, VECTORS = Kind("raced", streamed=True), Kind("single"), Kind("relayed")
JOBS = [drawn(1, number, 0.05) for number in range(20_000)]


def test_a_call_is_always_the_same_and_another_seed_has_others() -> None:
    assert [drawn(1, number, 0.05) for number in range(200)] == JOBS[:200]
    assert [drawn(2, number, 0.05) for number in range(200)] != JOBS[:200]


def test_as_many_calls_meet_a_fault_as_were_asked_for() -> None:
    faulty = [job for job in JOBS if job.fault is not None]
    assert len(faulty) / len(JOBS) == pytest.approx(0.05, rel=0.1)
    assert {job.fault for job in faulty} == set(Fault)
    assert {job.kind for job in JOBS} == set(KINDS)
    everywhere = [job for job in faulty if job.is_everywhere]
    assert len(everywhere) / len(faulty) == pytest.approx(EVERYWHERE_SHARE * 9 / 11, rel=0.3)
    assert not [job for job in everywhere if job.fault in AT_ONE]
    assert not [job for job in faulty if job.kind.is_relayed and job.fault in NOT_OF_EMBEDDINGS]
    assert all((job.leave_s is not None) == (job.fault is Fault.LEAVES) for job in JOBS)


def test_no_call_meets_a_fault_where_none_is_asked_for() -> None:
    assert not [number for number in range(500) if drawn(1, number, 0.0).fault]


def test_a_closed_port_is_asked_first_or_alone_and_nobody_plays_it() -> None:
    once, everywhere = (Job(7, WHOLE, Fault.REFUSED, is_everywhere=each) for each in (False, True))
    assert asked(once)[1]["provider"] == {"order": ["nowhere"]}
    assert asked(everywhere)[1]["provider"] == {"only": ["nowhere"]}
    assert once.prompt == "soak 7 none once"
    assert "provider" not in asked(Job(7, WHOLE, Fault.RESET))[1]


@pytest.mark.parametrize("kind", KINDS)
def test_who_meets_nothing_has_an_answer(kind: Kind) -> None:
    assert Ending.ANSWERED in allowed(Job(1, kind))
    assert not allowed(Job(1, kind)) & {Ending.TOLD, Ending.CUT, Ending.WRONG, Ending.LATE, Ending.LEFT}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_allows_a_wrong_answer_or_none(kind: Kind, fault: Fault) -> None:
    for everywhere in (False, True):
        assert not allowed(Job(1, kind, fault, is_everywhere=everywhere)) & {Ending.WRONG, Ending.LATE}


def test_one_provider_that_fails_before_its_answer_costs_no_call() -> None:
    for kind in (STREAM, WHOLE, VECTORS):
        assert Ending.TOLD not in allowed(Job(1, kind, Fault.FAILS))
        assert Ending.ANSWERED not in allowed(Job(1, kind, Fault.FAILS, is_everywhere=True))


def test_in_mid_answer_only_what_has_not_gone_out_can_be_replaced() -> None:
    assert Ending.TOLD in allowed(Job(1, STREAM, Fault.BROKEN))
    assert Ending.TOLD not in allowed(Job(1, WHOLE, Fault.BROKEN))
    assert Ending.CUT in allowed(Job(1, VECTORS, Fault.BROKEN))
    assert Ending.CUT not in allowed(Job(1, STREAM, Fault.BROKEN))


def event(content: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": reason}
    return b"data: " + str({"choices": [choice]}).replace("'", '"').replace("None", "null").encode() + b"\n\n"


OWN = event(text_of("swift", 7)) + event("", "stop") + b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "every deployment failed"}}\n\n'


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        (OWN, Ending.ANSWERED),
        (b": ping\n\n" + OWN, Ending.ANSWERED),
        (OWN.removesuffix(b"data: [DONE]\n\n"), Ending.WRONG),
        (event(text_of("swift", 7)) + b"data: [DONE]\n\n", Ending.WRONG),
        (event(text_of("swift", 8)) + event("", "stop") + b"data: [DONE]\n\n", Ending.WRONG),
        (event(text_of("swift", 7)[:-3]) + event("", "stop") + b"data: [DONE]\n\n", Ending.WRONG),
        (event("swift 7") + ERROR, Ending.TOLD),
        (event("swift 7") + b"data: {", Ending.WRONG),
        (b"", Ending.WRONG),
    ],
)
def test_a_stream_is_whole_and_its_own_or_says_that_it_is_not(body: bytes, ending: Ending) -> None:
    assert judged(Job(7, STREAM), 200, body) is ending


def test_an_event_that_is_no_json_is_wrong_unless_its_provider_sent_it() -> None:
    garbled = b'data: {"choi\n\n' + OWN
    assert judged(Job(7, STREAM), 200, garbled) is Ending.WRONG
    assert judged(Job(7, STREAM, Fault.GARBLED), 200, garbled) is Ending.ANSWERED


@pytest.mark.parametrize(
    ("said", "ending"),
    [
        ("every deployment failed (swift/m: server_error: no)", Ending.TOLD),
        ("failed (swift/m: server_error: no; nowhere/m: not asked, open: connect_error)", Ending.TOLD),
        ("failed (nowhere/m: connect_error; swift/m: not asked, cooling 0.5 s)", Ending.TURNED_AWAY),
        ("failed (slow/m: not asked, open: server_error)", Ending.TURNED_AWAY),
        ("", Ending.WRONG),
    ],
)
def test_an_error_says_who_was_not_asked(said: str, ending: Ending) -> None:
    assert judged(Job(7, WHOLE), 502, b'{"error": {"message": "%b"}}' % said.encode()) is ending


def test_what_is_no_error_of_the_api_is_wrong() -> None:
    for body in (b"", b"<html>", b"{}", b"[]"):
        assert judged(Job(7, WHOLE), 502, body) is Ending.WRONG
        assert judged(Job(7, VECTORS), 200, body) is Ending.WRONG
