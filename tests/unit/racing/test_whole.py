"""Calls that their clients do not stream, at providers that answer them whole but refuse to stream."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.errors import ApiError
from gateway.core.prompt_classes import MeasuredApi, answer_class, whole_class
from gateway.fleet import Clocks
from gateway.racing import GatheringSink, Seats, asked_whole
from providers import ErrorKind, Fact, Kind, LearntFacts, UpstreamError
from providers.dialects import CHAT
from providers.refusals.learnt import HOUR_S
from tests.support.calls import with_facts
from tests.unit.racing.track import DONE, FINISH, Timetable, Track, delta, usage
from tests.unit.racing.virtual_time import run

REFUSAL = "`response_format` does not support streaming"
JSON = {"response_format": {"type": "json_object"}}


def refusal(status: int = 400, message: str = REFUSAL) -> UpstreamError:
    kind = ErrorKind.PROVIDER_AUTH if status == 403 else ErrorKind.BAD_REQUEST
    return UpstreamError(kind, message, status=status)


def whole(at: float, text: str = "whole") -> list[tuple[float, Any]]:
    return [(at, delta(text) + FINISH + usage() + DONE), (at, None)]


def track(*upstreams: Timetable, **options: Any) -> Track:
    once = Track(*upstreams, sink=GatheringSink(CHAT), streamed=False, **{"fields": JSON, **options})
    return remembering(once, LearntFacts())


def remembering(once: Track, learnt: LearntFacts) -> Track:
    able = {name: msgspec.structs.replace(each, learnt=learnt) for name, each in once.model.deployments.items()}
    once.model = msgspec.structs.replace(once.model, deployments=able)
    return once


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_refused_stream_is_asked_for_whole_at_once_at_the_same_deployment(status: int) -> None:
    picky = Timetable("picky", [(0.5, refusal(status))], whole(2.0))
    once = track(picky)
    record = run(once.run())
    assert record.status_code == 200
    assert [request.upstream_stream for request in picky.requests] == [True, False]
    first, second = record.attempts
    assert (first.role, first.outcome, first.error_kind) == (Role.PRIMARY, "failed", "bad_request")
    assert (second.role, second.outcome, second.launch_offset_ms) == (Role.WHOLE, "won", 500.0)
    assert second.is_extra is False
    assert second.completion_tokens == 5


def test_the_time_to_the_first_token_of_a_whole_answer_is_unknown() -> None:
    once = track(Timetable("picky", [(0.5, refusal())], whole(2.0)), deadline_ms=5000.0)
    record = run(once.run())
    answered = record.attempts[1]
    assert (record.ttft_ms, answered.ttft_ms, answered.ttft_answer_ms, answered.token_ms) == (None,) * 4
    assert answered.last_token_ms == 2000.0
    assert record.total_ms == 2500.0
    assert record.deadline_met is True
    assert isinstance(once.sink, GatheringSink)
    assert once.sink.winner is not None
    assert once.sink.winner.ttft_ms is None


def test_what_a_whole_answer_took_is_learnt_in_a_class_of_its_own() -> None:
    once = track(Timetable("picky", [(0.5, refusal())], whole(2.0)))
    run(once.run())
    assert once.recorder.first_tokens == [("picky", 2.0)]
    assert once.recorder.classes == [answer_class(0), whole_class(answer_class(0)), whole_class(answer_class(0))]
    assert whole_class(answer_class(0)).api is MeasuredApi.WHOLE


def test_a_refusal_costs_one_request_and_not_one_a_call() -> None:
    async def main() -> list[bool]:
        picky, later_s = Timetable("picky", [(0.1, refusal())], whole(1.0), whole(1.0), whole(1.0)), [0.0]
        learnt = LearntFacts(wall_clock=lambda: later_s[0])
        once = remembering(track(picky), learnt)
        await once.run()
        assert once.open_call is not None
        call, deployment = once.open_call.call, once.model.deployments["picky"]
        assert asked_whole(call, deployment)
        assert [fact.words for fact in learnt.of("picky-model")] == [
            "streaming, in chat with response_format=json_object"
        ]
        later_s[0] = HOUR_S
        assert not asked_whole(call, deployment)
        later_s[0] = HOUR_S - 1.0
        learnt.note("picky-model", Fact(Kind.STREAM, "chat", value="response_format=json_object"))
        await remembering(track(picky), learnt).run()
        return [request.upstream_stream for request in picky.requests]

    assert run(main()) == [True, False, False]


def test_a_request_that_is_refused_whole_too_is_the_clients_fault_and_is_forgotten() -> None:
    once = track(Timetable("picky", [(0.1, refusal())], [(0.1, refusal(message="no such field: stream"))]))
    with pytest.raises(ApiError) as caught:
        run(once.run())
    assert caught.value.status_code == 400
    assert once.open_call is not None
    assert not asked_whole(once.open_call.call, once.model.deployments["picky"])


@pytest.mark.parametrize(
    ("message", "options"),
    [("'temperature' must be below 2", {}), ("the upstream refused it", {}), (REFUSAL, {"streamed": True})],
)
def test_other_refusals_are_not_repeated_nor_those_of_what_the_client_streams(message: str, options: Any) -> None:
    picky = Timetable("picky", [(0.1, refusal(message=message))], whole(1.0))
    with pytest.raises(ApiError):
        run(Track(picky, fields=JSON, **{"streamed": False, "sink": GatheringSink(CHAT), **options}).run())
    assert len(picky.requests) == 1


def test_both_requests_share_the_time_of_one_attempt() -> None:
    clocks = Clocks(connect_s=5.0, ttft_s=3.0, stall_s=120.0, total_s=None)
    once = track(Timetable("picky", [(2.0, refusal())], whole(2.0)), clocks=clocks)
    with pytest.raises(ApiError) as caught:
        run(once.run())
    assert caught.value.status == 504
    assert once.recorder.records[0].total_ms == 3000.0


def test_a_whole_answer_races_with_the_others() -> None:
    def raced(whole_at: float) -> dict[str, str]:
        picky = Timetable("picky", [(0.1, refusal())], whole(whole_at))
        beside = Timetable("beside", [(1.0, delta("beside")), (1.5, FINISH + usage() + DONE), (1.5, None)])
        once = track(picky, beside)
        assert run(once.run()).status_code == 200
        return {f"{each.deployment} {each.role}": each.outcome for each in once.recorder.ended}

    assert raced(0.5) == {"picky primary": "failed", "picky whole": "won", "beside race": "lost"}
    assert raced(2.0) == {"picky primary": "failed", "picky whole": "lost", "beside race": "won"}


def test_a_whole_answer_that_fails_is_replaced_by_another_deployment() -> None:
    picky = Timetable("picky", [(0.1, refusal())], [(0.1, UpstreamError(ErrorKind.SERVER_ERROR, "down", status=500))])
    beside = Timetable("beside", whole(1.0))
    once = track(picky, beside, launches=[("picky", 0.0, Role.PRIMARY)], rest=["beside"])
    assert run(once.run()).status_code == 200
    assert [each.role for each in once.recorder.ended] == [Role.PRIMARY, Role.WHOLE, Role.FAILOVER]


def test_both_requests_take_one_seat() -> None:
    seats = Seats()
    seats.limit({"picky": 1}, 1.0)
    once = track(Timetable("picky", [(0.1, refusal())], whole(1.0)), seats=seats)
    most: list[float] = []

    async def main() -> None:
        task = asyncio.ensure_future(once.run())
        await asyncio.sleep(0.5)  # virtual
        most.append(seats.lines["picky"].taken)
        assert (await task).status_code == 200

    run(main())
    assert most == [1]
    assert seats.lines["picky"].has_room


@pytest.mark.parametrize(
    ("fields", "is_whole"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}, True),
        ({"response_format": {"type": "text"}}, False),
        ({"prompt_logprobs": 3}, True),
        ({"prompt_logprobs": None}, False),
        ({"best_of": 1}, False),
        ({"best_of": 3}, True),
        ({"audio": {"voice": "alloy", "format": "wav"}}, True),
        ({"audio": {"voice": "alloy", "format": "pcm16"}}, False),
    ],
)
def test_what_a_vendors_row_says_is_never_streamed(fields: dict[str, Any], is_whole: bool) -> None:
    rules = {"response_format": ("json_schema",), "prompt_logprobs": ("*",), "best_of": ("many",), "audio": ("wav",)}
    known = Timetable("known", whole(1.0))
    once = track(known, fields=fields)
    deployments = {name: msgspec.structs.replace(each, whole=rules) for name, each in once.model.deployments.items()}
    once.model = msgspec.structs.replace(once.model, deployments=deployments)
    record = run(once.run())
    assert [request.upstream_stream for request in known.requests] == [not is_whole]
    assert (record.ttft_ms is None) is is_whole


def test_refusals_of_other_parameters_and_deployments_are_kept_apart() -> None:
    once = track(Timetable("a", [(0.1, refusal())], whole(1.0)), Timetable("b", whole(9.0)))

    async def main() -> None:
        await once.run()
        assert once.open_call is not None
        call = once.open_call.call
        one, other = once.model.deployments.values()
        assert (asked_whole(call, one), asked_whole(call, other)) == (True, False)
        plain = with_facts(call, fields={"messages": msgspec.Raw(b"[]")})
        assert not asked_whole(plain, one)

    run(main())


@pytest.mark.parametrize(
    ("message", "again"),
    [
        ("response format `json_schema` cannot be combined with streaming", True),
        ("This model doesn\u2019t support tool use in streaming mode.", True),
        ("logprobs is not supported with tools + stream", True),
        ("Your organization must be verified to stream this model.", True),
        ("Unknown parameter: 'stream'", True),
        ("The model `acme/stream-7b` does not exist", False),
        ("messages: field required. Streams of events are described in our guide.", False),
        ("stream_options is not supported", False),
        ("temperature must be below 2 (asked was /v1/models/m:streamGenerateContent)", False),
    ],
)
def test_what_only_mentions_a_stream_is_not_asked_again(message: str, again: bool) -> None:
    picky = Timetable("picky", [(0.1, refusal(message=message))], whole(1.0))
    once = track(picky)
    if again:
        assert run(once.run()).status_code == 200
    else:
        with pytest.raises(ApiError):
            run(once.run())
    assert len(picky.requests) == 1 + again


def test_what_clients_write_into_parameters_is_not_remembered() -> None:
    learnt, canary = LearntFacts(), "canary-4711"
    once = track(
        Timetable("picky", [(0.1, refusal())], whole(1.0)), fields={**JSON, "metadata": {"type": canary}, "x y": 1}
    )
    assert run(remembering(once, learnt).run()).status_code == 200
    assert len(learnt.of("picky-model")) == 1
    assert canary not in str(learnt.models)


def test_a_stream_that_is_answered_after_all_is_forgotten_to_be_refused() -> None:
    learnt = LearntFacts()
    learnt.note("picky-model", Fact(Kind.STREAM, "chat", value="response_format=json_object"))
    picky = Timetable("picky", whole(1.0))
    streamed = Track(picky, streamed=True, fields=JSON)

    async def main() -> None:
        assert (await remembering(streamed, learnt).run()).status_code == 200

    run(main())
    assert learnt.of("picky-model") == ()
