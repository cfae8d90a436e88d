"""Streams that stand still: what is life, and how long each kind of silence may last."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role, WinOn
from gateway.core.calls import CallRecord
from gateway.fleet import Clocks
from gateway.racing import GatheringSink, Pauses
from gateway.racing.timeouts import UNKNOWN_S, DeltaKind
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT, COMPLETIONS, GEMINI, MESSAGES, RESPONSES, Dialect
from tests.unit.racing.test_several import candidate
from tests.unit.racing.track import DONE, FINISH, Step, Timetable, Track, delta, event
from tests.unit.racing.virtual_time import run

PATIENT = Clocks(connect_s=5.0, ttft_s=1000.0, stall_s=120.0, total_s=None)
QUICK = Clocks(connect_s=5.0, ttft_s=1000.0, stall_s=10.0, total_s=None)


def named(type_: str, **fields: Any) -> bytes:
    return f"event: {type_}\n".encode() + event(type=type_, **fields)


def answered(
    dialect: Dialect, steps: Sequence[tuple[float, Step]], clocks: Clocks = PATIENT, spoken: Dialect | None = None
) -> CallRecord:
    """Return the record of a call whose only deployment answers in ``spoken``, by default the client's own dialect."""
    track = Track(Timetable("a", steps), clocks=clocks)
    track._call_options["dialect"] = dialect
    speaking = msgspec.structs.replace(track.model.deployments["a"], speaks=(spoken or dialect,))
    track.model = msgspec.structs.replace(track.model, deployments={"a": speaking})
    return run(track.run())


def block_start(**block: Any) -> bytes:
    return named("content_block_start", index=0, content_block=block)


def block_delta(**piece: Any) -> bytes:
    return named("content_block_delta", index=0, delta=piece)


def argument(piece: str) -> bytes:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": piece}}
    return delta(tool_calls=[call])


TEXT_OF = {
    CHAT: delta("So"),
    COMPLETIONS: event(id="c1", model="m", choices=[{"index": 0, "text": "So"}]),
    GEMINI: candidate(0, "So"),
    MESSAGES: block_delta(type="text_delta", text="So"),
    RESPONSES: named("response.output_text.delta", output_index=0, delta="So"),
}
NOTHING = [
    b": ping\n\n",
    b"event: ping\n\n",
    b"data: {}\n\n",
    b"event: ping\ndata: {}\n\n",
    named("ping"),
    named("keepalive"),
]
OWN = [
    (CHAT, event(id="c1", object="chat.completion.chunk", model="m", choices=[])),
    (COMPLETIONS, event(id="c1", model="m", choices=[])),
    (GEMINI, event(responseId="r", modelVersion="m")),
    (MESSAGES, named("content_block_delta", index=0)),
    (MESSAGES, named("from_the_future", x=1)),
    (RESPONSES, named("response.in_progress", response={"id": "r", "status": "in_progress"})),
    (RESPONSES, named("response.output_text.delta", output_index=0, delta="")),
]


@pytest.mark.parametrize(("dialect", "nothing"), [*((dialect, each) for dialect in TEXT_OF for each in NOTHING), *OWN])
def test_events_that_say_nothing_never_put_off_a_stall(dialect: Dialect, nothing: bytes) -> None:
    steps = [(0.1, TEXT_OF[dialect]), *((float(second), nothing) for second in range(1, 60))]
    record = answered(dialect, steps, QUICK)
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(10_100))


TRANSLATED = [CHAT, GEMINI, MESSAGES, RESPONSES]


@pytest.mark.parametrize(
    ("client", "server"), [(one, other) for one in TRANSLATED for other in TRANSLATED if one is not other]
)
def test_events_that_say_nothing_never_put_off_a_stall_in_a_translation(client: Dialect, server: Dialect) -> None:
    begin = block_start(type="text", text="") if server is MESSAGES else b""
    nothing = [(float(second), NOTHING[second % len(NOTHING)]) for second in range(1, 60)]
    record = answered(client, [(0.1, begin + TEXT_OF[server]), *nothing], QUICK, server)
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(10_100))


LIFE = [
    (CHAT, delta(reasoning_content="hm")),
    (CHAT, argument("1")),
    (GEMINI, event(usageMetadata={"promptTokenCount": 3, "thoughtsTokenCount": 40})),
    (MESSAGES, block_delta(type="thinking_delta", thinking="hm")),
    (MESSAGES, block_delta(type="signature_delta", signature="x")),
    (MESSAGES, named("content_block_stop", index=0)),
    (MESSAGES, block_start(type="server_tool_use", name="web_search")),
    (RESPONSES, named("response.web_search_call.searching", output_index=0)),
    (RESPONSES, named("response.output_item.done", output_index=0, item={"type": "reasoning"})),
]


@pytest.mark.parametrize(("dialect", "life"), LIFE)
def test_an_event_that_shows_the_answer_going_on_puts_off_a_stall(dialect: Dialect, life: bytes) -> None:
    record = answered(dialect, [(0.1, TEXT_OF[dialect]), (9.0, life)], QUICK)
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(19_000))


AFTER = [
    (CHAT, [delta("So")], 60),
    (CHAT, [delta(reasoning_content="hm")], 120),
    (CHAT, [delta("So"), delta(reasoning_content="hm")], 120),
    (CHAT, [delta("So"), argument('{"x":')], 120),
    (CHAT, [argument('{"x":'), delta("So")], 60),
    (MESSAGES, [TEXT_OF[MESSAGES]], 60),
    (MESSAGES, [TEXT_OF[MESSAGES], named("content_block_stop", index=0)], 120),
    (MESSAGES, [TEXT_OF[MESSAGES], block_start(type="tool_use", id="t", name="f")], 120),
    (MESSAGES, [block_start(type="server_tool_use", name="web_search")], 120),
    (RESPONSES, [TEXT_OF[RESPONSES]], 60),
    (RESPONSES, [TEXT_OF[RESPONSES], named("response.web_search_call.searching", output_index=0)], 120),
    (COMPLETIONS, [TEXT_OF[COMPLETIONS]], 60),
    (GEMINI, [TEXT_OF[GEMINI]], 60),
]


@pytest.mark.parametrize(("dialect", "events", "limit_s"), AFTER)
def test_how_long_a_stream_may_stand_still_depends_on_what_came_last(
    dialect: Dialect, events: list[bytes], limit_s: float
) -> None:
    record = answered(dialect, [(float(number), each) for number, each in enumerate(events, start=1)])
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(1000 * (len(events) + limit_s)))


def test_text_in_one_read_is_recognised_as_text_and_as_what_follows_it() -> None:
    texts = [(float(number), delta("So")) for number in range(1, 9)]
    assert answered(CHAT, texts).total_ms == pytest.approx(68_000)
    assert answered(CHAT, [*texts, (9.0, delta("on") * 30 + argument("{"))]).total_ms == pytest.approx(129_000)


@pytest.mark.parametrize(("stall_s", "limit_s"), [(5, 5), (30, 30), (60, 60), (90, 60), (120, 60), (600, 300)])
def test_the_setting_is_the_ceiling_and_text_has_sixty_seconds_or_half_of_a_more_patient_one(
    stall_s: float, limit_s: float
) -> None:
    clocks = msgspec.structs.replace(PATIENT, stall_s=float(stall_s))
    assert answered(CHAT, [(1.0, delta("So"))], clocks).total_ms == pytest.approx(1000 * (1 + limit_s))
    thinks = answered(CHAT, [(1.0, delta(reasoning_content="hm"))], clocks)
    assert thinks.total_ms == pytest.approx(1000 * (1 + stall_s))


def test_an_end_that_comes_late_is_no_stall() -> None:
    record = answered(CHAT, [(1.0, delta("So")), (59.0, FINISH), (60.0, DONE), (60.0, None)])
    assert (record.status_code, record.error_kind) == (200, None)


async def pauses_of(track: Track, *recovered_s: float) -> tuple[CallRecord, Pauses]:
    """Return the record of a call, and the pauses of its deployment, which had these before."""
    race = track.race()
    pauses = race.open_call.services.pauses["a"]
    for pause_s in recovered_s:
        pauses.recovered(DeltaKind.TEXT, pause_s)
    ending = await race.run()
    assert isinstance(ending, CallRecord)
    return ending, pauses


def test_twice_the_longest_pause_that_the_deployment_recovered_from_is_waited_for() -> None:
    for longest_s, limit_s in ((29.0, 60.0), (40.0, 80.0), (90.0, 120.0)):
        record, _ = run(pauses_of(Track(Timetable("a", [(1.0, delta("So"))]), clocks=PATIENT), longest_s))
        assert record.total_ms == pytest.approx(1000 * (1 + limit_s))


def test_pauses_after_text_are_learnt_from_streams_that_go_on() -> None:
    thinks, text, end = delta(reasoning_content="hm"), delta("So"), [(60.0, FINISH), (60.0, DONE), (60.0, None)]
    steps: list[tuple[float, Step]] = [(1.0, thinks), (20.0, text), (25.0, text), (33.0, thinks), (60.0, text), *end]
    _, pauses = run(pauses_of(Track(Timetable("a", steps), clocks=PATIENT)))
    assert (pauses.longest_s(), pauses.streams) == (pytest.approx(8.0), 1)


def test_a_stream_that_is_cut_for_standing_still_teaches_no_patience() -> None:
    _, pauses = run(pauses_of(Track(Timetable("a", [(1.0, delta("So"))]), clocks=PATIENT)))
    assert (pauses.longest_s(), pauses.streams) == (0.0, 0)


# Where the client has seen nothing, another is asked beside a silent one, and the first with more goes on.

END: list[tuple[float, Step]] = [(0.3, FINISH), (0.4, DONE), (0.4, None)]
OTHER: list[tuple[float, Step]] = [(0.2, delta("other")), *END]


def whole(
    *steps: tuple[float, Step],
    rival: Sequence[tuple[float, Step]] = OTHER,
    more: Sequence[Sequence[tuple[float, Step]]] = (),
    **options: Any,
) -> Track:
    """Return a race for a whole answer, at a deployment with these steps, while ``rival`` and ``more`` stand by."""
    others = [Timetable(name, each) for name, each in zip("bcd", [rival, *more], strict=False)]
    return Track(
        Timetable("a", steps),
        *others,
        launches=[("a", 0.0, Role.PRIMARY)],
        rest=[each.name for each in others],
        sink=GatheringSink(CHAT),
        streamed=False,
        **options,
    )


def text(track: Track) -> str:
    assert isinstance(track.sink, GatheringSink)
    return str(msgspec.json.decode(track.sink.body())["choices"][0]["message"]["content"])


def outcomes(track: Track) -> list[str]:
    return [
        f"{each.deployment} {each.role} {each.outcome}"
        for each in sorted(track.recorder.ended, key=lambda each: each.number)
    ]


@pytest.mark.parametrize(
    ("last", "noticed_s"), [(delta("So"), UNKNOWN_S), (argument("{"), 60.0), (delta(reasoning_content="hm"), 120.0)]
)
def test_a_silent_whole_answer_is_given_by_another(last: bytes, noticed_s: float) -> None:
    track = whole((1.0, delta("So")), (1.1, last), clocks=msgspec.structs.replace(PATIENT, stall_s=300.0))
    record = run(track.run())
    assert (text(track), record.error_kind) == ("other", None)
    assert outcomes(track) == ["a primary stalled", "b failover won"]
    assert record.total_ms == pytest.approx(1000 * (1.1 + noticed_s + 0.4))
    assert track.upstreams["a"].aborts == 1


def test_a_whole_answer_that_goes_on_first_is_kept_and_its_rival_is_cut() -> None:
    track = whole((1.0, delta("So")), (13.1, delta(" on")), *((13.1 + at, step) for at, step in END))
    run(track.run())
    assert text(track) == "So on"
    assert outcomes(track) == ["a primary won", "b failover lost"]
    assert track.upstreams["b"].aborts == 1


def test_a_whole_answer_may_stand_still_twice() -> None:
    steps = [(1.0, delta("So")), (13.1, delta(" on"))]
    track = whole(*steps, rival=[(0.5, delta("other")), *((0.5 + at, step) for at, step in END)])
    run(track.run())
    assert text(track) == "other"
    assert outcomes(track) == ["a primary stalled", "b failover lost", "b failover won"]


def test_a_rival_that_fails_is_replaced_at_once() -> None:
    track = whole((1.0, delta("So")), rival=[(0.5, UpstreamError(ErrorKind.DISCONNECTED, "reset"))], more=[OTHER])
    record = run(track.run())
    assert text(track) == "other"
    assert outcomes(track) == ["a primary stalled", "b failover failed", "c failover won"]
    assert record.total_ms == pytest.approx(1000 * (1.0 + UNKNOWN_S + 0.5 + 0.4))


def test_who_has_failed_at_last_leaves_the_silent_one_its_rival() -> None:
    slow = [(60.0, delta("other")), *((60.0 + at, step) for at, step in END)]
    track = whole((1.0, delta("So")), rival=slow, more=[OTHER])
    record = run(track.run())
    assert text(track) == "other"
    assert outcomes(track) == ["a primary stalled", "b failover won"]
    assert record.total_ms == pytest.approx(1000 * (1.0 + UNKNOWN_S + 60.4))


def test_a_silent_whole_answer_ends_at_its_limit_where_the_rival_is_silent_too() -> None:
    track = whole((1.0, delta("So")), rival=[(500.0, None)], clocks=msgspec.structs.replace(PATIENT, ttft_s=100.0))
    with pytest.raises(Exception, match="first token"):
        run(track.run())
    assert outcomes(track) == ["a primary stalled", "b failover timeout"]


def test_a_rival_that_a_limit_refuses_is_asked_for_again_while_the_silence_lasts() -> None:
    track = whole((1.0, delta("So")), (20.0, delta(" on")), (20.1, FINISH), (20.1, DONE), (20.1, None), refuses=True)
    record = run(track.run())
    assert (text(track), record.total_ms) == ("So on", pytest.approx(20_100))
    assert track.asked == [Role.FAILOVER] * 2


def test_an_attempt_that_only_thinks_gets_a_rival_where_only_an_answer_wins() -> None:
    track = whole(
        (1.0, delta(reasoning_content="hm")),
        win_on=WinOn.ANSWER,
        clocks=msgspec.structs.replace(PATIENT, stall_s=300.0),
    )
    record = run(track.run())
    assert text(track) == "other"
    assert record.total_ms == pytest.approx(121_400)
