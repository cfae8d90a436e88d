"""Races of answers that pass unread: what such an answer's row says, which sound has begun, what is billed.

Who is asked when, and whose seat is free, is tested of answers that are read, in ``test_race.py`` and
``test_seats.py``: the engine is the same.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord, Mode
from gateway.core.errors import ApiError
from gateway.core.race_failures import RejectedByProvider
from gateway.fleet import Clocks
from gateway.racing import Block, FallbackModel, RelayedRequest
from gateway.steering import Launch
from providers import ErrorKind, Exchange, Price, Request, UpstreamError, Usage
from tests.support.calls import with_facts
from tests.unit.racing.server import left_clean, limited
from tests.unit.racing.track import RelayedSink, Step, Timetable, Track
from tests.unit.racing.virtual_time import in_virtual_time, run

VECTORS = b'{"data":[],"usage":{"prompt_tokens":3,"total_tokens":3}}'
PICTURES = b'{"data":[],"usage":{"input_tokens":5,"output_tokens":1000}}'
BROKEN = UpstreamError(ErrorKind.SERVER_ERROR, "broken", status=500)
WRONG = UpstreamError(ErrorKind.BAD_REQUEST, "wrong", status=400)
LACKING = UpstreamError(ErrorKind.NO_SUCH_API, "Not Found", status=404)
GONE = UpstreamError(ErrorKind.DISCONNECTED, "gone")
EMBED = RelayedRequest(path="embeddings")
COMPARED = msgspec.structs.replace(EMBED, is_compared=True)
SPEECH = RelayedRequest(path="audio/speech", is_sound=True)
WAVE = (
    b"RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\xc0\x5d\x00\x00"
    b"\x80\xbb\x00\x00\x02\x00\x10\x00data\xff\xff\xff\xff"
)
HEDGED = (("a", 0.0, Role.PRIMARY), ("b", 0.3, Role.HEDGE))
CLOCKS = Clocks(connect_s=5.0, ttft_s=120.0, stall_s=30.0, total_s=None)


def whole(name: str, at: float, body: bytes = VECTORS) -> Timetable:
    return Timetable(name, [(at, body), (at, None)])


def fails(name: str, at: float, error: UpstreamError = BROKEN) -> Timetable:
    return Timetable(name, [(at, error)])


def pieces(name: str, *steps: tuple[float, Step], usage: Usage | None = None) -> Timetable:
    upstream = Timetable(name, steps)
    upstream.usage = usage
    return upstream


def track(*upstreams: Timetable, reading: RelayedRequest = EMBED, **options: Any) -> Track:
    """Return a call that asks the first, and if that fails the others."""
    options = {"launches": [(upstreams[0].name, 0.0, Role.PRIMARY)], "mode": Mode.SINGLE, "clocks": CLOCKS, **options}
    asked = {name for name, *_ in options["launches"]}
    return Track(
        *upstreams, reading=reading, rest=[each.name for each in upstreams if each.name not in asked], **options
    )


def hedged(*upstreams: Timetable, **options: Any) -> Track:
    return track(*upstreams, launches=HEDGED, **options)


def sent(relayed: Track) -> bytes:
    assert isinstance(relayed.sink, RelayedSink)
    return relayed.sink.bytes


async def cancelled_after(relayed: Track, after_s: float) -> CallRecord:
    running = asyncio.create_task(relayed.run())
    await asyncio.sleep(after_s)
    running.cancel()
    await asyncio.wait([running])
    [record] = relayed.recorder.records
    return record


def test_a_whole_answer_is_its_first_token() -> None:
    relayed = track(whole("a", 0.25))
    record = run(relayed.run())
    assert (record.status_code, record.prompt_tokens, record.total_ms) == (200, 3, 250.0)
    assert relayed.recorder.heard == ["call_started", "started a", "first token a", "won a", "call_finished"]
    assert relayed.sink.streams is False
    assert record.attempts[0].provider_request_id == "a"


def test_an_answer_that_comes_in_pieces_is_recorded_before_its_last() -> None:
    class Sink(RelayedSink):
        async def end(self, last: Block) -> None:
            assert relayed.recorder.records
            await super().end(last)

    usage = Usage(prompt_tokens=2, completion_tokens=9)
    upstream = pieces("a", (0.25, b"a"), (1.25, b"b"), (2.25, b"c"), (2.75, None), usage=usage)
    relayed = track(upstream, reading=SPEECH, sink=Sink())
    record = run(relayed.run())
    assert sent(relayed) == b"abc"
    assert relayed.sink.ended  # type: ignore[union-attr]
    assert (record.total_ms, record.attempts[0].ttft_ms) == (2750.0, 250.0)
    assert (record.prompt_tokens, record.completion_tokens) == (2, 9)


def test_a_record_says_how_often_it_was_sent_and_what_has_answered() -> None:
    told = whole("b", 0.1, b'{"data":[],"model":"embed-2026-01-01"}')
    record = run(track(fails("a", 0.1), told).run())
    assert [(each.sends, each.model_version) for each in record.attempts] == [(1, None), (1, "embed-2026-01-01")]


@pytest.mark.parametrize("answer", [b'{"model":["m"],"usage":{"prompt_tokens":3}}', b'{"usage":{"prompt_tokens":3}}'])
def test_an_answer_without_the_name_of_a_model_reports_its_tokens_all_the_same(answer: bytes) -> None:
    record = run(track(whole("a", 0.1, answer)).run())
    assert (record.prompt_tokens, record.attempts[0].model_version) == (3, None)


@in_virtual_time
async def test_attempts_under_way_are_counted_with_those_of_other_calls_until_they_end() -> None:
    first = track(fails("a", 0.1), whole("b", 1.0))
    other, late = track(whole("a", 100.0)), track(whole("a", 5.0), whole("b", 5.0))
    other.tasks = late.tasks = tasks = first.tasks
    others = asyncio.create_task(other.run())
    await asyncio.sleep(0.0)
    running = asyncio.create_task(first.run())
    await asyncio.sleep(0.05)
    assert (tasks.in_flight("a"), tasks.in_flight("b")) == (2, 0)
    late_one = asyncio.create_task(cancelled_after(late, 1.05))
    assert [each.in_flight for each in (await running).attempts] == [1, 0]
    assert [each.in_flight for each in (await late_one).attempts] == [2]
    assert (tasks.in_flight("a"), tasks.in_flight("b")) == (1, 0)
    others.cancel()
    await asyncio.wait([others])


@in_virtual_time
async def test_a_late_answer_is_hedged_and_the_first_one_wins() -> None:
    relayed = hedged(whole("a", 17.0), whole("b", 0.2))
    record = await relayed.run()
    assert (record.total_ms, record.launched, record.extras) == (500.0, 2, 1)
    assert relayed.outcomes == {"a": "lost", "b": "won"}
    first, second = record.attempts
    assert (first.censored_at_ms, first.ttft_ms, first.is_extra) == (500.0, None, False)
    assert (second.role, second.launch_offset_ms, second.ttft_ms, second.is_extra) == ("hedge", 300.0, 200.0, True)
    await asyncio.sleep(0)
    assert (relayed.tasks.in_flight("a"), relayed.tasks.in_flight("b")) == (0, 0)


def test_a_wide_race_has_no_rescues_beside_it() -> None:
    silent, others = [whole(name, 9.0) for name in "abcd"], [whole(name, 0.1) for name in "efg"]
    wide = [HEDGED[0], *((name, 0.0, Role.RACE) for name in "bcd")]
    record = run(track(*silent, *others, launches=wide, rescue_s=2.0).run())
    assert (record.launched, record.total_ms, [each.requests for each in others]) == (4, 9000.0, [[], [], []])


def test_where_both_find_the_request_invalid_nobody_else_is_asked() -> None:
    third = whole("c", 0.1)
    with pytest.raises(RejectedByProvider):
        run(hedged(fails("a", 1.0, WRONG), fails("b", 0.1, WRONG), third).run())
    assert third.requests == []


def test_a_request_that_one_finds_invalid_is_sent_to_nobody_else_while_another_looks_at_it() -> None:
    third = whole("c", 0.2)
    launches = (*HEDGED, ("c", 2.0, Role.FAILOVER))
    relayed = track(whole("a", 5.0), fails("b", 0.1, WRONG), third, launches=launches, rescue_s=2.0)
    assert run(relayed.run()).total_ms == 5000.0
    assert third.requests == []


@pytest.mark.parametrize(
    ("steps", "ends", "kind", "total_s"),
    [
        ([(1000.0, b"a")], "timeout", "ttft_timeout", 120.0),
        ([(0.1, b"a"), (29.1, b"b"), (60.1, b"c")], "stalled", "stall_timeout", 59.1),
        ([(0.1, b"a"), (1.1, GONE)], "failed", "disconnected", 1.1),
    ],
)
def test_clocks_and_breaks_end_an_answer_and_nobody_else_is_asked_for_one_that_has_begun(
    steps: list[tuple[float, Step]], ends: str, kind: str, total_s: float
) -> None:
    other = whole("b", 0.1)
    relayed = track(Timetable("a", steps), other)
    record = run(relayed.run())
    [first, *others] = record.attempts
    assert (first.outcome, first.error_kind) == (ends, kind)
    has_begun = kind != "ttft_timeout"
    assert (record.error_kind, record.status_code) == (kind if has_begun else None, 200)
    assert record.total_ms == pytest.approx(1000 * (total_s if has_begun else total_s + 0.1))
    assert (len(others), len(other.requests)) == ((0, 0) if has_begun else (1, 1))
    assert (relayed.sink.failure is not None) == has_begun  # type: ignore[union-attr]
    assert relayed.upstreams["a"].aborts == 1


def test_the_total_clock_counts_from_the_launch() -> None:
    clocks = Clocks(connect_s=5.0, ttft_s=120.0, stall_s=30.0, total_s=60.0)
    relayed = track(whole("a", 100.0), pieces("b", (50.0, b"a"), (70.0, b"b")), clocks=clocks)
    record = run(relayed.run())
    assert [each.error_kind for each in record.attempts] == ["total_timeout", "total_timeout"]
    assert (record.status_code, record.error_kind, record.total_ms) == (200, "total_timeout", 120_000.0)
    assert relayed.sink.failure is not None  # type: ignore[union-attr]


def test_a_client_that_cannot_be_written_to_has_gone() -> None:
    relayed = track(pieces("a", (0.1, b"a"), (1.1, b"b"), (2.1, b"c")), sink=RelayedSink(gone_after=2))
    record = run(relayed.run())
    assert (record.status_code, record.error_kind) == (499, "client_disconnected")
    assert relayed.outcomes == {"a": "client_gone"}
    assert record.attempts[0].censored_at_ms is None  # its first byte had come
    assert relayed.upstreams["a"].aborts == 1


@in_virtual_time
async def test_being_cancelled_before_an_answer_censors_it() -> None:
    relayed = track(whole("a", 100.0))
    record = await cancelled_after(relayed, 3.0)
    assert (record.status_code, relayed.outcomes) == (499, {"a": "client_gone"})
    assert record.attempts[0].censored_at_ms == 3000.0


def test_a_defect_of_our_own_leaves_nothing_in_flight() -> None:
    class Defective(Timetable):
        async def stream(self, request: Request) -> Exchange:
            raise ValueError("a header that cannot be sent")

    relayed = track(Defective("a"))
    with pytest.raises(ValueError, match="header"):
        run(relayed.run())
    [record] = relayed.recorder.records
    assert (record.status_code, record.error_kind) == (500, "internal_error")
    assert relayed.outcomes == {"a": "interrupted"}


@pytest.mark.parametrize(
    ("second", "code", "status_code"), [(LACKING, "no_such_api", 424), (BROKEN, "all_providers_failed", 502)]
)
def test_an_api_that_everybody_lacks_is_told_from_providers_that_are_not_well(
    second: UpstreamError, code: str, status_code: int
) -> None:
    with pytest.raises(ApiError) as caught:
        run(track(fails("a", 0.1, LACKING), fails("b", 0.1, second)).run())
    assert (caught.value.code, caught.value.status_code) == (code, status_code)


@pytest.mark.parametrize("takes_extra_body", [True, False])
def test_what_a_deployment_adds_to_prompts_is_left_out_where_it_is_not_taken(*, takes_extra_body: bool) -> None:
    upstream, own = whole("a", 0.1), {"own": msgspec.Raw(b"1")}
    relayed = track(upstream, reading=msgspec.structs.replace(EMBED, takes_extra_body=takes_extra_body))
    deployment = msgspec.structs.replace(relayed.model.deployments["a"], extra_body=own)
    relayed.model = msgspec.structs.replace(relayed.model, deployments={"a": deployment})
    run(relayed.run())
    assert upstream.requests[0].extra_body == (own if takes_extra_body else {})


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
    reading = RelayedRequest(path="embeddings", is_priced=is_priced)
    relayed = track(whole("a", 0.1, answer), price=price, reading=reading, prompt_tokens=prompt_tokens)
    assert run(relayed.run()).cost_usd == cost_usd


def test_a_loser_has_its_part_of_the_cost() -> None:
    price = Price(input_usd=1e-6, output_usd=0.0)
    record = run(hedged(whole("a", 17.0), whole("b", 0.2), price=price, prompt_tokens=0).run())
    assert (record.cost_usd, record.duplicate_cost_usd) == (pytest.approx(6e-6), pytest.approx(3e-6))


def test_a_loser_that_speaks_costs_what_its_text_does() -> None:
    reading = msgspec.structs.replace(SPEECH, is_priced=False, cost_usd={"a": 0.3, "b": 0.2})
    record = run(hedged(whole("a", 17.0, b"sound"), whole("b", 0.2, b"sound"), reading=reading).run())
    assert (record.cost_usd, record.duplicate_cost_usd) == (pytest.approx(0.5), pytest.approx(0.3))
    assert (record.cost_low_usd, record.cost_high_usd) == (pytest.approx(0.2), pytest.approx(0.5))


def test_a_hedge_for_which_there_is_no_deployment_asks_when_it_would_be_due() -> None:
    relayed = track(whole("a", 1.0), withheld=Launch("a", 0.3, Role.HEDGE), refuses=True)
    run(relayed.run())
    assert relayed.asked == [Role.HEDGE]


def test_a_sound_wins_with_its_first_bytes_after_the_header() -> None:
    header_only = pieces("a", (0.1, WAVE), (5.1, b"sound"), (5.2, None))
    other = pieces("b", (0.3, WAVE + b"sound"), (0.4, b"more"), (0.5, None))
    relayed = hedged(header_only, other, reading=SPEECH)
    record = run(relayed.run())
    assert relayed.outcomes == {"a": "lost", "b": "won"}
    assert sent(relayed) == WAVE + b"soundmore"
    assert record.attempts[1].ttft_ms == pytest.approx(300.0)
    assert header_only.aborts == 1


def test_a_sound_that_has_begun_is_never_asked_for_again() -> None:
    other = whole("b", 0.1, WAVE + b"x")
    relayed = hedged(pieces("a", (0.1, WAVE + b"a"), (5.1, b"b"), (5.2, GONE)), other, reading=SPEECH)
    assert (run(relayed.run()).error_kind, other.requests) == ("disconnected", [])
    assert relayed.sink.failure is not None  # type: ignore[union-attr]


def test_a_sound_that_breaks_in_its_header_is_asked_for_elsewhere() -> None:
    breaks = pieces("a", (0.1, WAVE), (0.2, GONE))
    relayed = track(breaks, whole("b", 0.1, b"sound"), reading=SPEECH)
    run(relayed.run())
    assert (relayed.outcomes, breaks.aborts) == ({"a": "failed", "b": "won"}, 1)


@in_virtual_time
async def test_a_client_that_leaves_after_a_header_leaves_no_stream_open() -> None:
    relayed = track(pieces("a", (0.1, WAVE), (50.1, b"b")), reading=SPEECH)
    await cancelled_after(relayed, 1.0)
    assert (relayed.outcomes, relayed.upstreams["a"].aborts) == ({"a": "client_gone"}, 1)


def test_a_seat_is_free_once_the_provider_is_done_however_slowly_the_client_reads() -> None:
    seats, taken = limited(a=1), list[int]()

    class Sink(RelayedSink):
        async def end(self, last: Block) -> None:
            taken.append(seats.lines["a"].taken)

    run(track(pieces("a", (0.1, b"a"), (0.2, b"b"), (0.3, None)), seats=seats, sink=Sink()).run())
    assert taken == [0]


@in_virtual_time
async def test_a_client_that_leaves_as_the_winner_answers_leaves_no_seat_taken() -> None:
    for after_s in (0.299, 0.3, 0.5, 0.501):
        seats = limited(a=1, b=1)
        await cancelled_after(hedged(whole("a", 17.0), whole("b", 0.2), seats=seats), after_s)
        left_clean(seats)


class Others:
    """One other model, which is asked when the first is late; ``answered`` has its name if it answers."""

    def __init__(self, other: Track, late_s: float) -> None:
        self.late_s = late_s
        self.answered: list[str] = []
        self._other: Track | None = other

    async def next(self, *, is_rescued: bool) -> FallbackModel | None:
        assert not is_rescued or self._other is None
        other, self._other = self._other, None
        if other is None:
            return None
        call = with_facts(other.race().open_call.call, model="other")
        model = msgspec.structs.replace(other.model, name="other")
        return FallbackModel(model, other.plan, call, other.sink, lambda _: True, lambda _: None, None, EMBED)

    def won(self, model: str) -> None:
        self.answered.append(model)

    def runs_on(self, model: str, attempts: Sequence[str]) -> bool:
        return False


@pytest.mark.parametrize(
    ("first_s", "other_s", "total_ms", "outcomes"),
    [(17.0, 0.2, 1200.0, ["lost", "won"]), (1.5, 17.0, 1500.0, ["won", "lost"])],
)
def test_a_fallback_is_asked_beside_a_model_that_is_late_and_either_may_win(
    first_s: float, other_s: float, total_ms: float, outcomes: list[str]
) -> None:
    others = Others(track(whole("b", other_s)), 1.0)
    relayed = track(whole("a", first_s), following=others)

    async def main() -> CallRecord:
        record = await relayed.run()
        await asyncio.sleep(0)
        return record

    record = run(main())
    assert (record.total_ms, others.answered) == (pytest.approx(total_ms), ["other"] * (outcomes[1] == "won"))
    assert [(each.outcome, each.number) for each in record.attempts] == list(zip(outcomes, (1, 2), strict=True))
    assert relayed.open_call is not None
    assert (relayed.tasks.in_flight("a"), relayed.open_call.running) == (0, 0)


@in_virtual_time
async def test_a_client_that_leaves_ends_both_models() -> None:
    for leaves_s in (0.5, 1.0, 1.5):
        relayed = track(whole("a", 17.0), following=Others(track(whole("b", 17.0)), 1.0))
        record = await cancelled_after(relayed, leaves_s)
        assert {each.outcome for each in record.attempts} == {"client_gone"}, leaves_s
        assert relayed.open_call is not None
        assert relayed.open_call.running == 0


def test_a_model_that_waits_for_a_seat_gives_way_to_its_fallback() -> None:
    seats = limited(a=1)
    seats.lines["a"].take()
    other = track(whole("b", 0.2), launches=[("b", 0.0, Role.FALLBACK)])
    record = run(track(whole("a", 0.2), seats=seats, following=Others(other, 1.0)).run())
    assert (record.total_ms, [each.role for each in record.attempts]) == (pytest.approx(1200.0), ["fallback"])
    seats.lines["a"].give_back()
    left_clean(seats)


def test_the_row_of_a_short_call_says_when_its_answer_came_and_what_the_first_choice_alone_would_have_taken() -> None:
    record = run(track(whole("a", 0.2), reading=COMPARED).run())
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(200.0), pytest.approx(200.0))


def test_a_first_choice_that_a_hedge_has_overtaken_is_compared_as_in_a_race() -> None:
    record = run(hedged(whole("a", 17.0), whole("b", 0.2), reading=COMPARED).run())
    assert (record.ttft_ms, record.alone_ms, record.alone_age_ms) == (pytest.approx(500.0), None, pytest.approx(500.0))
    lost, won = record.attempts
    assert (lost.outcome, lost.is_overtaken, lost.overtaken_at_ms) == ("lost", True, pytest.approx(500.0))
    assert (won.outcome, won.is_overtaken) == ("won", False)


def test_a_first_choice_that_fails_shows_what_racing_saved() -> None:
    record = run(hedged(fails("a", 0.5), whole("b", 0.4), reading=COMPARED).run())
    assert record.ttft_ms == pytest.approx(700.0)
    assert record.alone_ms == pytest.approx(900.0)  # its replacement would have begun at 500


@in_virtual_time
async def test_an_audited_first_choice_runs_on_after_its_loss_and_its_row_follows() -> None:
    seats = limited(a=1)
    relayed = hedged(whole("a", 0.9), whole("b", 0.2), reading=COMPARED, seats=seats, audited="a")
    record = await relayed.run()
    assert (record.total_ms, record.launched, len(record.attempts)) == (pytest.approx(500.0), 2, 1)
    rooms = [seats.lines["a"].has_room]  # none: its provider works on
    await asyncio.sleep(0.5)
    rooms.append(seats.lines["a"].has_room)
    [audited] = relayed.recorder.audited
    assert (audited.outcome, audited.audited, audited.ttft_ms) == ("superseded", True, pytest.approx(900.0))
    assert (rooms, relayed.tasks.in_flight("a")) == ([False, True], 0)


@in_virtual_time
async def test_an_audited_sound_is_read_to_its_first_bytes_and_no_further() -> None:
    sound = pieces("a", (0.9, WAVE + b"sound"), (60.9, b"more"), (61.0, None))
    reading = msgspec.structs.replace(SPEECH, is_compared=True)
    relayed = hedged(sound, whole("b", 0.2, b"sound"), reading=reading, audited="a")
    await relayed.run()
    await asyncio.sleep(0.5)
    [audited] = relayed.recorder.audited
    assert (audited.outcome, audited.ttft_ms, sound.aborts) == ("superseded", pytest.approx(900.0), 1)


@in_virtual_time
async def test_an_audited_first_choice_that_hangs_is_cut_after_half_a_minute() -> None:
    relayed = hedged(whole("a", 90.0), whole("b", 0.2), reading=COMPARED, audited="a")
    await relayed.run()
    await asyncio.sleep(31.0)
    [audited] = relayed.recorder.audited
    assert (audited.outcome, audited.ttft_ms, audited.censored_at_ms) == ("lost", None, pytest.approx(30_000.0))


@in_virtual_time
async def test_a_deployment_alone_races_itself() -> None:
    moody = Timetable("a", [(17.0, VECTORS), (17.0, None)], [(0.2, VECTORS), (0.2, None)])
    record = await track(moody, launches=[HEDGED[0], ("a", 0.3, Role.HEDGE)]).run()
    assert (record.total_ms, [each.outcome for each in record.attempts]) == (500.0, ["lost", "won"])
