"""Plain events that arrive while the winner's task waits are passed on without waking it."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.core.errors import ClientDisconnected
from gateway.fleet import Clocks
from gateway.racing import Block, Forward, Winner
from providers import ErrorKind, Exchange, HttpExchange, Request, UpstreamError
from providers.dialects import events_of_answer
from providers.http import Response
from tests.unit.racing.server import left_clean, limited
from tests.unit.racing.track import DONE, FINISH, ROLE, RememberingSink, Step, Timetable, Track, delta, event, usage
from tests.unit.racing.virtual_time import run

TEXTS = [delta(f"text {number}") for number in range(6)]
EVENTS = [ROLE, *TEXTS, FINISH, usage(), DONE]


class OverHttp(Timetable):
    """An upstream whose timetable arrives on a connection, as the client of our own has it."""

    def __init__(self, name: str, steps: Sequence[tuple[float, Step]]) -> None:
        super().__init__(name, steps)
        self._steps = steps

    async def stream(self, request: Request) -> Exchange:
        self.requests.append(request)
        loop = asyncio.get_running_loop()
        response = Response(self, loop, None)
        response.begin(200, [(b"content-type", b"text/event-stream")])
        self._timers = [loop.call_later(at, self._arrive, response, step) for at, step in self._steps]
        return HttpExchange(response, (), events_of_answer)

    def taken(self, response: Response, size: int) -> None:
        pass

    def widen(self, response: Response) -> None:
        """Hear of it."""

    def drop(self, response: Response) -> None:
        self.aborts += 1
        for timer in self._timers:
            timer.cancel()

    @staticmethod
    def _arrive(response: Response, step: Step) -> None:
        if step is None:
            response.end()
        elif isinstance(step, UpstreamError):
            response.fail(step)
        else:
            assert isinstance(step, bytes)
            response.feed(step)


class EagerSink(RememberingSink):
    """A streaming sink that takes events at once, while its client keeps up."""

    def __init__(self, *, slow_from: int | None = None) -> None:
        super().__init__()
        self.passed_on: list[bytes] = []
        self._slow_from = slow_from

    async def begin(self, winner: Winner) -> Forward | None:
        await super().begin(winner)
        return self._forward

    def _forward(self, events: bytes) -> bool:
        assert self.blocks, "passed on before the headers have left"
        if self._slow_from is not None and len(self.blocks) >= self._slow_from:
            return False
        self.blocks.append(events)
        self.passed_on.append(events)
        return True


def steps(events: Sequence[bytes]) -> list[tuple[float, Step]]:
    arriving: list[tuple[float, Step]] = [(0.1 * number, item) for number, item in enumerate(events, start=1)]
    return [*arriving, (0.1 * len(events), None)]


def test_text_is_passed_on_and_everything_else_read_by_the_task() -> None:
    sink = EagerSink()
    run(Track(OverHttp("p", steps(EVENTS)), sink=sink).run())
    assert sink.passed_on == TEXTS[1:]
    assert sink.bytes == b"".join([ROLE, *TEXTS, FINISH, DONE])
    assert sink.ended


def test_nothing_is_measured_otherwise_than_when_the_task_reads_it() -> None:
    eager, patient = Track(OverHttp("p", steps(EVENTS)), sink=EagerSink()), Track(OverHttp("p", steps(EVENTS)))
    assert run(eager.run()) == run(patient.run())
    assert eager.recorder.ended == patient.recorder.ended


def test_a_slow_client_is_waited_for_by_the_task() -> None:
    sink = EagerSink(slow_from=4)
    run(Track(OverHttp("p", steps(EVENTS)), sink=sink).run())
    assert sink.passed_on == TEXTS[1:4]
    assert sink.bytes == b"".join([ROLE, *TEXTS, FINISH, DONE])


@pytest.mark.parametrize(
    "odd",
    [
        delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{}"}}]),
        delta("text") + b": ping\n\n",
        b": ping\n\n" + delta("text"),
        event(choices=[{"index": 0, "delta": {"content": "x"}}], usage={"completion_tokens": 3}),
    ],
)
def test_what_is_not_text_alone_keeps_its_place_among_the_text(odd: bytes) -> None:
    sink = EagerSink()
    run(Track(OverHttp("p", steps([ROLE, *TEXTS[:3], odd, *TEXTS[3:], FINISH, DONE])), sink=sink).run())
    assert sink.bytes == b"".join([ROLE, *TEXTS[:3], odd, *TEXTS[3:], FINISH, DONE])
    assert odd not in sink.passed_on


def test_an_event_that_arrives_in_pieces_leaves_in_whole() -> None:
    sink = EagerSink()
    pieces = [TEXTS[1][:30], TEXTS[1][30:], TEXTS[2] + TEXTS[3][:9], TEXTS[3][9:], b"event: vendor\n", TEXTS[4]]
    run(Track(OverHttp("p", steps([ROLE, TEXTS[0], *pieces, TEXTS[5], FINISH, DONE])), sink=sink).run())
    assert sink.bytes == b"".join([ROLE, *TEXTS[:4], b"event: vendor\n", *TEXTS[4:], FINISH, DONE])
    assert sink.passed_on == [TEXTS[5]]


def test_text_after_the_end_of_the_answer_goes_nowhere() -> None:
    sink = EagerSink()
    late: list[tuple[float, Step]] = [(0.45, TEXTS[1]), (0.5, None)]

    async def run_and_drain() -> None:
        await Track(OverHttp("p", [*steps([ROLE, TEXTS[0], FINISH + DONE])[:-1], *late]), sink=sink).run()
        await asyncio.sleep(1)

    run(run_and_drain())
    assert sink.bytes == b"".join([ROLE, TEXTS[0], FINISH, DONE])


def test_an_error_after_text_that_was_passed_on_ends_the_answer() -> None:
    sink = EagerSink()
    error = UpstreamError(ErrorKind.DISCONNECTED, "gone")
    track = Track(OverHttp("p", [*steps([ROLE, *TEXTS])[:-1], (2.0, error)]), sink=sink)
    record = run(track.run())
    assert (sink.bytes, sink.failure, sink.ended) == (b"".join([ROLE, *TEXTS]), error, False)
    assert record.error_kind == ErrorKind.DISCONNECTED


def test_silence_counts_from_the_last_event_that_was_passed_on() -> None:
    clocks = Clocks(connect_s=5.0, ttft_s=5.0, stall_s=1.0, total_s=None)
    slowly: list[tuple[float, Step]] = [(0.1, ROLE), *((0.9 * number, text) for number, text in enumerate(TEXTS, 1))]
    sink = EagerSink()
    upstream = OverHttp("p", [*slowly, (60.0, None)])
    record = run(Track(upstream, sink=sink, clocks=clocks).run())
    assert (len(sink.passed_on), record.error_kind) == (5, ErrorKind.STALL_TIMEOUT)
    assert record.total_ms == pytest.approx(6400)
    assert upstream.aborts == 1


def test_a_client_that_leaves_while_text_is_passed_on_stops_the_winner() -> None:
    upstream = OverHttp("p", steps(EVENTS))
    track = Track(upstream, sink=EagerSink())

    async def leave() -> None:
        racing = asyncio.ensure_future(track.run())
        await asyncio.sleep(0.45)
        racing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await racing

    run(leave())
    assert upstream.aborts == 1
    assert (track.outcomes, track.recorder.records[0].error_kind) == ({"p": "client_gone"}, ClientDisconnected.code)


def test_a_client_that_is_found_gone_by_the_task_ends_the_call() -> None:
    class Gone(EagerSink):
        async def write(self, block: Block) -> None:
            await super().write(block)
            self._slow_from = 0
            self._gone_after = 2

    upstream = OverHttp("p", steps(EVENTS))
    track = Track(upstream, sink=Gone())
    run(track.run())
    assert (track.outcomes, upstream.aborts) == ({"p": "client_gone"}, 1)


def test_a_server_that_keeps_its_stream_open_after_the_end_is_dropped_and_its_seat_is_given_back() -> None:
    seats = limited(p=1)
    upstream = OverHttp("p", steps([ROLE, TEXTS[0], FINISH + DONE])[:-1])
    track = Track(upstream, seats=seats)

    async def run_and_drain() -> None:
        await track.run()
        await asyncio.sleep(1)

    run(run_and_drain())
    assert track.outcomes == {"p": "won"}
    assert upstream.aborts == 1
    assert track.tasks.in_flight("p") == 0
    left_clean(seats)
