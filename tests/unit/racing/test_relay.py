"""Races of answers that pass unread: who is asked next, which clock runs out, what is recorded when."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role, WinOn
from gateway.core.calls import CallRecord, Mode, Objective
from gateway.core.errors import ApiError, ClientDisconnected, ShuttingDown
from gateway.core.prompt_classes import MeasuredApi, PromptClass
from gateway.core.race_failures import AllRateLimited, AllTimedOut, RejectedByProvider
from gateway.fleet.models import Clocks, Deployment, Model
from gateway.racing import (
    Attempt,
    AttemptTasks,
    Block,
    BrokenAnswer,
    ClientGone,
    NoAnswer,
    OpenCall,
    Race,
    RelayedExchange,
    RelayedRequest,
    Seats,
    Services,
    Winner,
)
from gateway.settings import RaceSettings
from gateway.steering import Launch, Plan
from providers import ErrorKind, Price, Request, UpstreamAnswer, UpstreamError, Usage
from tests.support.calls import made_call
from tests.unit.racing import virtual_time
from tests.unit.racing.track import RememberingRecorder, Timetable, recorded

Piece = bytes | UpstreamError | None  # None: the end
VECTORS = b'{"data":[],"usage":{"prompt_tokens":3,"total_tokens":3}}'
PICTURES = b'{"data":[],"usage":{"input_tokens":5,"output_tokens":1000}}'
SLOW = UpstreamError(ErrorKind.SERVER_ERROR, "broken", status=500)
WRONG = UpstreamError(ErrorKind.BAD_REQUEST, "wrong", status=400)
LACKING = UpstreamError(ErrorKind.NO_SUCH_API, "Not Found", status=404)
SPEECH = RelayedRequest(path="audio/speech")
CLOCKS = Clocks(connect_s=5.0, ttft_s=120.0, stall_s=30.0, total_s=None)


class TimedRest:
    """Comes piece by piece, each so many seconds after the one before."""

    def __init__(self, pieces: Sequence[tuple[float, Piece]], usage: Usage | None = None) -> None:
        self.usage = usage
        self.model: str | None = None
        self.error: UpstreamError | None = None
        self.ended = False
        self.aborted = False
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        after_s, piece = self._pieces.pop(0)
        await asyncio.sleep(after_s)
        if isinstance(piece, UpstreamError):
            raise piece
        if piece is None:
            self.ended = True
            return b""
        return piece

    def abort(self) -> None:
        self.aborted = True


class Speaker(Timetable):
    """An upstream that answers after so many seconds: all of it, how it begins and the rest, or an error."""

    def __init__(self, after_s: float, answer: bytes | UpstreamError, rest: TimedRest | None = None) -> None:
        super().__init__("speaker")
        self.rest = rest
        self._after_s = after_s
        self._answer = answer

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        self.requests.append(request)
        request.sendings.number += 1
        await asyncio.sleep(self._after_s)
        if isinstance(self._answer, UpstreamError):
            raise self._answer
        return UpstreamAnswer(200, {"x-request-id": "req_1"}, self._answer, None, 1.0, self.rest)


class RememberingOutlet:
    """Keeps what it was given, and what the recorder had heard by then."""

    understands = False

    def __init__(self, recorder: RememberingRecorder, *, gone_after: int | None = None) -> None:
        self.streams = False
        self.begun: Winner | None = None  # of an answer that goes on
        self.written: list[bytes] = []
        self.recorded_at_end: bool | None = None
        self.dropped = False
        self._recorder = recorder
        self._gone_after = gone_after

    async def begin(self, winner: Winner) -> None:
        assert isinstance(winner.exchange, RelayedExchange)
        self.streams = not winner.exchange.is_whole
        if self.streams:
            self.begun = winner

    async def write(self, block: Block) -> None:
        if self.streams:
            self.written.append(block.forward)
        if len(self.written) == self._gone_after:
            raise ClientGone

    async def end(self, last: Block) -> None:
        self.written.append(last.forward)
        self.recorded_at_end = bool(self._recorder.records)

    def may_be_continued(self, error: UpstreamError) -> bool:
        del error
        return False

    async def fail(self, error: UpstreamError) -> None:
        del error
        self.dropped = True


class Room:
    """Everything of one race."""

    def __init__(
        self,
        *speakers: Speaker,
        clocks: Clocks = CLOCKS,
        price: Price | None = None,
        asking: RelayedRequest = SPEECH,
        prompt_tokens: int = 0,
        gone_after: int | None = None,
        cancelled_as: type[ApiError] = ClientDisconnected,
        open_call: OpenCall | None = None,
        seats: Seats | None = None,
        tasks: AttemptTasks[Attempt] | None = None,
        beside: Sequence[Launch] = (),
        rescue_s: float | None = None,
        may_launch: Callable[[Launch], bool] = lambda _: True,
        withheld: Launch | None = None,
        audited: bool = False,
    ) -> None:
        """``beside``: the plan's launches after the first."""
        self.recorder = RememberingRecorder()
        self.tasks = tasks or AttemptTasks[Attempt]()
        self.outlet = RememberingOutlet(self.recorder, gone_after=gone_after)
        names = [f"s{number}" for number in range(1, len(speakers) + 1)]
        deployments = {
            name: Deployment(
                name=name,
                provider=name,
                model=f"{name}-model",
                upstream=speaker,
                clocks=clocks,
                price=price,
                bills_after_disconnect=None,
                extra_body={"own": msgspec.Raw(b"1")},
                upstream_stream=True,
            )
            for name, speaker in zip(names, speakers, strict=True)
        }
        launches = (Launch(names[0], 0.0, Role.PRIMARY, audited), *beside) if names else ()
        rest = tuple(name for name in names[1:] if name not in {each.deployment for each in beside})
        retry_after_s = None if names else 7.0
        plan = Plan(launches, rest, Mode.SINGLE, retry_after_s=retry_after_s, rescue_s=rescue_s, withheld=withheld)
        now = datetime(2026, 1, 1, tzinfo=UTC)
        clock = asyncio.get_running_loop().time
        ids = iter(range(1, 100))
        call = made_call(
            id="call",
            received_at=clock(),
            started_at=now,
            client=None,
            model="m",
            endpoint="audio.speech",
            mode=Mode.SINGLE,
            objective=Objective.FIRST_TOKEN,
            win_on=WinOn.ANY,
            prompt_class=PromptClass(MeasuredApi.SPEECH, 0),
            prompt_tokens=prompt_tokens,
            wants_usage=False,
            fields={"input": msgspec.Raw(b'"x"')},
            headers={},
            tags={},
            replica="test",
            region=None,
        )
        services = Services(
            recorder=self.recorder,
            tasks=self.tasks,
            seats=seats or Seats(),
            clock=clock,
            new_id=lambda: f"attempt-{next(ids)}",
            utc_now=lambda: now,
        )
        self.model, self.plan = Model(name="m", deployments=deployments, race=RaceSettings()), plan
        self.open_call = open_call or OpenCall(services, call, cancelled_as=lambda: cancelled_as)
        self.may_launch, self.asking = may_launch, asking
        self.race = self.race_in(self.open_call, self.outlet)

    def race_in(self, open_call: OpenCall, outlet: RememberingOutlet) -> Race:
        """Return a race of these deployments for ``open_call``."""
        return Race(open_call, self.model, self.plan, outlet, may_launch=self.may_launch, reading=self.asking)

    async def run(self) -> CallRecord:
        ending = await self.race.run()
        assert not isinstance(ending, BrokenAnswer)
        return recorded(self.open_call, ending, self.model, self.plan)

    async def fail(self) -> ApiError:
        with pytest.raises(ApiError) as caught:
            await self.run()
        return caught.value

    @property
    def record(self) -> CallRecord:
        [record] = self.recorder.records
        return record

    @property
    def outcomes(self) -> dict[str, str]:
        return {each.deployment: str(each.outcome) for each in self.record.attempts}


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test where two minutes take none, and see that it leaves no task and no timer."""

    def run() -> None:
        virtual_time.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_virtual_time
async def test_a_whole_answer_is_its_first_token() -> None:
    room = Room(Speaker(0.25, VECTORS), asking=RelayedRequest(path="embeddings"))
    record = await room.run()
    assert (record.status_code, record.prompt_tokens, record.total_ms) == (200, 3, 250.0)
    assert room.recorder.heard == ["call_started", "started s1", "first token s1", "won s1", "call_finished"]
    assert room.outlet.begun is None
    assert record.attempts[0].provider_request_id == "req_1"


@in_virtual_time
async def test_an_answer_that_comes_in_pieces_is_recorded_before_its_last() -> None:
    rest = TimedRest([(1.0, b"b"), (1.0, b"c"), (0.5, None)], Usage(prompt_tokens=2, completion_tokens=9))
    room = Room(Speaker(0.25, b"a", rest))
    record = await room.run()
    assert b"".join(room.outlet.written) == b"abc"
    assert room.outlet.recorded_at_end is True
    assert (record.total_ms, record.attempts[0].ttft_ms) == (2750.0, 250.0)
    assert (record.prompt_tokens, record.completion_tokens) == (2, 9)


@in_virtual_time
async def test_a_failure_is_replaced_until_one_answers() -> None:
    room = Room(Speaker(0.1, SLOW), Speaker(0.1, SLOW), Speaker(0.1, VECTORS))
    record = await room.run()
    assert room.outcomes == {"s1": "failed", "s2": "failed", "s3": "won"}
    assert [each.role for each in record.attempts] == ["primary", "failover", "failover"]


@in_virtual_time
async def test_a_record_says_how_often_it_was_sent_and_what_has_answered() -> None:
    told = Speaker(0.1, b'{"data":[],"model":"embed-2026-01-01"}')
    record = await Room(Speaker(0.1, SLOW), told, asking=RelayedRequest(path="embeddings")).run()
    assert [(each.sends, each.model_version) for each in record.attempts] == [(1, None), (1, "embed-2026-01-01")]


@pytest.mark.parametrize("answer", [b'{"model":["m"],"usage":{"prompt_tokens":3}}', b'{"usage":{"prompt_tokens":3}}'])
def test_an_answer_without_the_name_of_a_model_reports_its_tokens_all_the_same(answer: bytes) -> None:
    async def test() -> None:
        record = await Room(Speaker(0.1, answer), asking=RelayedRequest(path="embeddings")).run()
        assert (record.prompt_tokens, record.attempts[0].model_version) == (3, None)

    virtual_time.run(test())


@in_virtual_time
async def test_attempts_under_way_are_counted_with_those_of_races_until_they_end() -> None:
    tasks = AttemptTasks[Attempt]()
    other = asyncio.create_task(Room(Speaker(100.0, VECTORS), tasks=tasks).run())
    await asyncio.sleep(0.0)
    first = Room(Speaker(0.1, SLOW), Speaker(1.0, VECTORS), tasks=tasks)
    second = Room(Speaker(5.0, VECTORS), Speaker(5.0, VECTORS), tasks=tasks)
    running = asyncio.create_task(first.run())
    await asyncio.sleep(0.05)
    assert (tasks.in_flight("s1"), tasks.in_flight("s2")) == (2, 0)
    late = asyncio.create_task(second.run())
    await running
    assert [each.in_flight for each in first.record.attempts] == [1, 0]
    late.cancel()
    with suppress(asyncio.CancelledError):
        await late
    assert [each.in_flight for each in second.record.attempts] == [2]
    assert (tasks.in_flight("s1"), tasks.in_flight("s2")) == (1, 0)
    other.cancel()
    await asyncio.wait([other])


EMBED = RelayedRequest(path="embeddings")


@in_virtual_time
async def test_a_late_answer_is_hedged_and_the_first_one_wins() -> None:
    room = Room(Speaker(17.0, VECTORS), Speaker(0.2, VECTORS), asking=EMBED, beside=[Launch("s2", 0.3, Role.HEDGE)])
    record = await room.run()
    assert (record.total_ms, record.launched, record.extras) == (500.0, 2, 1)
    assert room.outcomes == {"s1": "lost", "s2": "won"}
    first, second = record.attempts
    assert (first.censored_at_ms, first.ttft_ms, first.is_extra) == (500.0, None, False)
    assert (second.role, second.launch_offset_ms, second.ttft_ms, second.is_extra) == ("hedge", 300.0, 200.0, True)
    await asyncio.sleep(0)
    assert (room.tasks.in_flight("s1"), room.tasks.in_flight("s2")) == (0, 0)


@in_virtual_time
async def test_an_answer_in_time_is_not_hedged() -> None:
    other = Speaker(0.2, VECTORS)
    room = Room(Speaker(0.25, VECTORS), other, asking=EMBED, beside=[Launch("s2", 0.3, Role.HEDGE)])
    record = await room.run()
    assert (record.launched, record.extras, other.requests) == (1, 0, [])


@in_virtual_time
async def test_a_failure_before_the_hedge_is_due_is_replaced_at_once_and_asked_once() -> None:
    room = Room(Speaker(0.1, SLOW), Speaker(5.0, VECTORS), asking=EMBED, beside=[Launch("s2", 0.3, Role.HEDGE)])
    record = await room.run()
    assert (record.total_ms, record.launched, record.extras) == (5100.0, 2, 0)
    assert [each.role for each in record.attempts] == ["primary", "failover"]


@in_virtual_time
async def test_those_raced_from_the_start_are_asked_at_once() -> None:
    room = Room(Speaker(1.0, VECTORS), Speaker(0.2, VECTORS), asking=EMBED, beside=[Launch("s2", 0.0, Role.RACE)])
    record = await room.run()
    assert (record.total_ms, room.outcomes) == (200.0, {"s1": "lost", "s2": "won"})


@in_virtual_time
async def test_a_hedge_that_the_budget_refuses_comes_as_a_rescue() -> None:
    def only_rescues(launch: Launch) -> bool:
        return launch.role is Role.FAILOVER

    hedge = [Launch("s2", 0.3, Role.HEDGE)]
    room = Room(
        Speaker(17.0, VECTORS),
        Speaker(0.2, VECTORS),
        asking=EMBED,
        beside=hedge,
        rescue_s=2.0,
        may_launch=only_rescues,
    )
    record = await room.run()
    assert (record.total_ms, [each.role for each in record.attempts]) == (2200.0, ["primary", "failover"])


@in_virtual_time
async def test_where_two_are_silent_a_third_is_asked() -> None:
    silent = [Speaker(17.0, VECTORS), Speaker(17.0, VECTORS)]
    hedge = [Launch("s2", 0.3, Role.HEDGE)]
    hedge.append(Launch("s3", 2.0, Role.FAILOVER))
    room = Room(*silent, Speaker(0.2, VECTORS), asking=EMBED, beside=hedge, rescue_s=2.0)
    record = await room.run()
    assert (record.total_ms, room.outcomes) == (2200.0, {"s1": "lost", "s2": "lost", "s3": "won"})


@in_virtual_time
async def test_a_wide_race_has_no_rescues_beside_it() -> None:
    silent, others = [Speaker(9.0, VECTORS) for _ in range(4)], [Speaker(0.1, VECTORS) for _ in range(3)]
    wide = [Launch(f"s{number}", 0.0, Role.RACE) for number in (2, 3, 4)]
    room = Room(*silent, *others, asking=EMBED, beside=wide, rescue_s=2.0)
    record = await room.run()
    assert (record.launched, record.total_ms, [each.requests for each in others]) == (4, 9000.0, [[], [], []])


@in_virtual_time
async def test_a_client_that_leaves_ends_both() -> None:
    room = Room(Speaker(17.0, VECTORS), Speaker(17.0, VECTORS), asking=EMBED, beside=[Launch("s2", 0.3, Role.HEDGE)])
    running = asyncio.create_task(room.run())
    await asyncio.sleep(1.0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert room.outcomes == {"s1": "client_gone", "s2": "client_gone"}
    assert [each.censored_at_ms for each in room.record.attempts] == [1000.0, 700.0]
    assert (room.tasks.in_flight("s1"), room.tasks.in_flight("s2")) == (0, 0)


@in_virtual_time
async def test_where_both_find_the_request_invalid_nobody_else_is_asked() -> None:
    third = Speaker(0.1, VECTORS)
    room = Room(Speaker(1.0, WRONG), Speaker(0.1, WRONG), third, asking=EMBED, beside=[Launch("s2", 0.3, Role.HEDGE)])
    assert isinstance(await room.fail(), RejectedByProvider)
    assert third.requests == []


@in_virtual_time
async def test_the_first_byte_has_a_clock() -> None:
    room = Room(Speaker(1000.0, VECTORS), Speaker(0.1, VECTORS))
    await room.run()
    assert room.outcomes == {"s1": "timeout", "s2": "won"}
    assert room.record.attempts[0].error_kind == "ttft_timeout"


@in_virtual_time
async def test_the_total_clock_counts_from_the_launch() -> None:
    clocks = Clocks(connect_s=5.0, ttft_s=120.0, stall_s=30.0, total_s=60.0)
    room = Room(Speaker(100.0, VECTORS), Speaker(50.0, b"a", TimedRest([(20.0, b"b")])), clocks=clocks)
    record = await room.run()
    assert [each.error_kind for each in record.attempts] == ["total_timeout", "total_timeout"]
    assert (record.status_code, record.error_kind, record.total_ms) == (200, "total_timeout", 120_000.0)
    assert room.outlet.dropped


@in_virtual_time
async def test_silence_in_the_middle_has_a_clock_and_nobody_else_is_asked() -> None:
    rest = TimedRest([(29.0, b"b"), (31.0, b"c")])
    other = Speaker(0.1, VECTORS)
    room = Room(Speaker(0.1, b"a", rest), other)
    record = await room.run()
    assert (record.error_kind, room.outcomes) == ("stall_timeout", {"s1": "stalled"})
    assert (room.outlet.written, room.outlet.dropped, rest.aborted) == ([b"a", b"b"], True, True)
    assert other.requests == []


@in_virtual_time
async def test_an_answer_that_breaks_off_is_recorded_as_failed() -> None:
    rest = TimedRest([(1.0, UpstreamError(ErrorKind.DISCONNECTED, "gone"))])
    room = Room(Speaker(0.1, b"a", rest))
    record = await room.run()
    assert (record.status_code, record.error_kind, room.outcomes) == (200, "disconnected", {"s1": "failed"})
    assert room.outlet.dropped


@in_virtual_time
async def test_a_client_that_cannot_be_written_to_has_gone() -> None:
    rest = TimedRest([(1.0, b"b"), (1.0, b"c")])
    room = Room(Speaker(0.1, b"a", rest), gone_after=2)
    record = await room.run()
    assert (record.status_code, record.error_kind, room.outcomes) == (499, "client_disconnected", {"s1": "client_gone"})
    assert record.attempts[0].censored_at_ms is None  # its first byte had come
    assert rest.aborted


@in_virtual_time
async def test_being_cancelled_before_an_answer_censors_it() -> None:
    room = Room(Speaker(100.0, VECTORS))
    running = asyncio.ensure_future(room.run())
    await asyncio.sleep(3.0)
    running.cancel()
    await asyncio.wait({running})
    assert (room.record.status_code, room.outcomes) == (499, {"s1": "client_gone"})
    assert room.record.attempts[0].censored_at_ms == 3000.0


@in_virtual_time
async def test_being_cancelled_by_a_gateway_that_stops_counts_against_nobody() -> None:
    room = Room(Speaker(0.1, b"a", TimedRest([(100.0, b"b")])), cancelled_as=ShuttingDown)
    running = asyncio.ensure_future(room.run())
    await asyncio.sleep(3.0)
    running.cancel()
    await asyncio.wait({running})
    assert (room.record.status_code, room.outcomes) == (503, {"s1": "interrupted"})


@in_virtual_time
async def test_a_defect_of_our_own_leaves_nothing_in_flight() -> None:
    class Defective(Speaker):
        async def send(self, path: str, request: Request) -> UpstreamAnswer:
            raise ValueError("a header that cannot be sent")

    room = Room(Defective(0.0, b""))
    with pytest.raises(ValueError, match="header"):
        await room.run()
    assert (room.record.status_code, room.record.error_kind, room.outcomes) == (
        500,
        "internal_error",
        {"s1": "interrupted"},
    )


@in_virtual_time
async def test_what_two_call_wrong_is_wrong() -> None:
    third = Speaker(0.1, VECTORS)
    room = Room(Speaker(0.1, WRONG), Speaker(0.1, WRONG), third)
    assert isinstance(await room.fail(), RejectedByProvider)
    assert third.requests == []


@in_virtual_time
async def test_after_two_that_hung_through_the_clock_nobody_else_is_tried() -> None:
    third = Speaker(0.1, VECTORS)
    room = Room(Speaker(1000.0, VECTORS), Speaker(1000.0, VECTORS), third)
    assert isinstance(await room.fail(), AllTimedOut)
    assert third.requests == []


@in_virtual_time
async def test_an_api_that_everybody_lacks_is_told_from_providers_that_are_not_well() -> None:
    error = await Room(Speaker(0.1, LACKING), Speaker(0.1, LACKING)).fail()
    assert (error.code, error.status_code) == ("no_such_api", 424)
    assert (await Room(Speaker(0.1, LACKING), Speaker(0.1, SLOW)).fail()).code == "all_providers_failed"


@in_virtual_time
async def test_nobody_to_ask_is_a_rate_limit() -> None:
    room = Room()
    error = await room.fail()
    assert isinstance(error, AllRateLimited)
    assert (error.headers["retry-after"], room.record.status_code) == ("7", 429)


@in_virtual_time
async def test_a_call_that_goes_on_elsewhere_is_recorded_there() -> None:
    room = Room(Speaker(0.1, SLOW))
    assert isinstance(await room.race.run(), NoAnswer)
    assert room.recorder.records == []
    following = Room(Speaker(0.1, VECTORS), open_call=room.open_call)
    record = await following.run()
    assert [(each.number, each.outcome) for each in record.attempts] == [(1, "failed"), (2, "won")]
    assert record.launched == 2
    assert len(room.recorder.starts) == 1  # it had begun before


@in_virtual_time
async def test_what_a_deployment_adds_to_prompts_is_left_out_where_it_is_not_taken() -> None:
    speakers = Speaker(0.1, VECTORS), Speaker(0.1, VECTORS)
    await Room(speakers[0]).run()
    await Room(speakers[1], asking=RelayedRequest(path="messages/count_tokens", takes_extra_body=False)).run()
    assert [speaker.requests[0].extra_body for speaker in speakers] == [{"own": msgspec.Raw(b"1")}, {}]


@pytest.mark.parametrize(
    ("answer", "price", "prompt_tokens", "is_priced", "cost_usd"),
    [
        (VECTORS, Price(input_usd=1.0, output_usd=0.0), 100, True, 3.0),
        (b"{}", Price(input_usd=1.0, output_usd=0.0), 100, True, 100.0),  # guessed
        (b"{}", Price(input_usd=1.0, output_usd=0.0), 0, True, None),  # nothing to guess by
        (VECTORS, None, 100, True, None),
        (VECTORS, Price(input_usd=1.0, output_usd=0.0), 100, False, None),
        (PICTURES, Price(input_usd=1.0, output_usd=0.0), 0, True, None),  # what comes out has no price
        (PICTURES, Price(input_usd=1.0, output_usd=2.0), 0, True, 2005.0),
    ],
)
def test_a_cost_is_known_where_the_tokens_and_their_price_are(
    answer: bytes, price: Price | None, prompt_tokens: int, *, is_priced: bool, cost_usd: float | None
) -> None:
    async def relayed() -> CallRecord:
        asking = RelayedRequest(path="embeddings", is_priced=is_priced)
        return await Room(Speaker(0.1, answer), price=price, asking=asking, prompt_tokens=prompt_tokens).run()

    assert virtual_time.run(relayed()).cost_usd == cost_usd
