"""Calls of tools that come only when they are complete: the silence before them is no stall."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.fleet import Clocks
from gateway.racing import GatheringSink, PausesByDeployment
from gateway.racing.timeouts import CALL_S, DeltaKind
from providers.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from tests.unit.racing.inside.test_stalls import block_start, named, outcomes
from tests.unit.racing.track import DONE, FINISH, ROLE, Step, Timetable, Track, delta
from tests.unit.racing.virtual_time import run

DEFAULT = Clocks(connect_s=5.0, ttft_s=120.0, stall_s=120.0, total_s=None, first_call_s=360.0, silent_call_s=360.0)
CHOSEN = Clocks(connect_s=5.0, ttft_s=120.0, stall_s=50.0, total_s=None)
ARGUMENTS = json.dumps({"path": "a.txt", "text": "word " * 400})
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
CHAT_TOOLS = {"tools": [{"type": "function", "function": {"name": "write", "parameters": SCHEMA}}]}
TOOLS: dict[Dialect, dict[str, Any]] = {
    CHAT: CHAT_TOOLS,
    MESSAGES: {"tools": [{"name": "write", "input_schema": SCHEMA}]},
    RESPONSES: {"tools": [{"type": "function", "name": "write", "parameters": SCHEMA}]},
}
Steps = Sequence[tuple[float, Step]]


def call(arguments: str = ARGUMENTS, *, name: str | None = "write") -> bytes:
    head = {} if name is None else {"id": "c1", "type": "function"}
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return delta(tool_calls=[{"index": 0, **head, "function": function}])


def end(at: float) -> Steps:
    return [(at, FINISH), (at, DONE), (at, None)]


def pinged(since: float, until: float, ping: bytes = b": ping\n\n", every: float = 10.0) -> Steps:
    return [(since + every * n, ping) for n in range(1, int((until - since) / every))]


def track_of(
    *steps: tuple[float, Step],
    dialect: Dialect = CHAT,
    clocks: Clocks = DEFAULT,
    pauses: PausesByDeployment | None = None,
    fields: dict[str, Any] | None = None,
    **options: Any,
) -> Track:
    asked = TOOLS[dialect] if fields is None else fields
    track = Track(Timetable("a", steps), clocks=clocks, fields=asked, pauses=pauses, **options)
    track._call_options["dialect"] = dialect
    speaking = msgspec.structs.replace(track.model.deployments["a"], speaks=(dialect,))
    track.model = msgspec.structs.replace(track.model, deployments={**track.model.deployments, "a": speaking})
    return track


def told(record: CallRecord) -> tuple[int, str | None]:
    return record.status_code, record.error_kind


TEXT, EMPTY = delta("I write it."), delta()
NAMED = call("")
MESSAGES_END = [
    named("content_block_stop", index=0),
    named("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 500}),
    named("message_stop"),
]
ADDED = named("response.output_item.added", output_index=0, item={"type": "function_call", "name": "write"})
COMPLETED = named("response.completed", response={"id": "r", "status": "completed", "output": []})


@pytest.mark.parametrize("first", [[TEXT], [TEXT, NAMED], [NAMED], [delta(reasoning_content="Hm.")]])
@pytest.mark.parametrize("ping", [b": ping\n\n", EMPTY, b"event: ping\ndata: {}\n\n"])
def test_a_call_that_takes_long_arrives_whole_while_there_are_signs_of_life(first: list[bytes], ping: bytes) -> None:
    begun = [(1.0, each) for each in first]
    last = call(name=None) if NAMED in first else call()
    for clocks in (DEFAULT, CHOSEN):
        steps = [*begun, *pinged(1.0, 201.0, ping), (201.0, last), *end(201.1)]
        assert told(run(track_of(*steps, clocks=clocks).run())) == (200, None)


def test_a_call_announced_in_messages_arrives_whole() -> None:
    start = block_start(type="tool_use", id="t", name="write", input={})
    piece = named("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": ARGUMENTS})
    last = [(201.0, each) for each in (piece, *MESSAGES_END, None)]
    steps = [(1.0, start), *pinged(1.0, 201.0, named("ping")), *last]
    assert told(run(track_of(*steps, dialect=MESSAGES).run())) == (200, None)
    assert told(run(track_of((1.0, start), *last, dialect=MESSAGES).run())) == (200, None)


def test_a_call_announced_in_responses_arrives_whole() -> None:
    piece = named("response.function_call_arguments.delta", output_index=0, delta=ARGUMENTS)
    state = named("response.in_progress", response={"id": "r", "status": "in_progress"})
    last = [(201.0, each) for each in (piece, COMPLETED, None)]
    steps = [(1.0, ADDED), *pinged(1.0, 201.0, state), *last]
    assert told(run(track_of(*steps, dialect=RESPONSES).run())) == (200, None)


def test_an_event_that_arrives_in_pieces_is_a_sign_of_life() -> None:
    whole = call()
    parts = [whole[at : at + 200] for at in range(0, len(whole), 200)]
    steps = [(1.0, TEXT), *((40.0 * number, part) for number, part in enumerate(parts, start=1))]
    last = steps[-1][0]
    assert last > 400
    assert told(run(track_of(*steps, *end(last), clocks=CHOSEN).run())) == (200, None)


@pytest.mark.parametrize("first", [TEXT, NAMED])
def test_a_dead_stream_is_found_where_tools_are_offered_too(first: bytes) -> None:
    record = run(track_of((1.0, first)).run())
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(361_000))
    record = run(track_of((1.0, first), clocks=CHOSEN).run())
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(51_000))


def test_a_stream_that_only_gives_signs_of_life_has_an_end() -> None:
    record = run(track_of((1.0, TEXT), *pinged(1.0, 5000.0)).run())
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(1000 * (1 + CALL_S)))
    bounded = msgspec.structs.replace(DEFAULT, total_s=300.0)
    record = run(track_of((1.0, TEXT), *pinged(1.0, 5000.0), clocks=bounded).run())
    assert (record.error_kind, record.total_ms) == ("total_timeout", pytest.approx(300_000))
    record = run(track_of((1.0, TEXT), *pinged(1.0, 100.0), clocks=DEFAULT).run())  # and then died
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(441_000))


@pytest.mark.parametrize("fields", [{}, {**CHAT_TOOLS, "tool_choice": "none"}, {"tools": []}])
def test_without_tools_all_is_as_ever(fields: dict[str, Any]) -> None:
    for steps in ([(1.0, TEXT)], [(1.0, TEXT), *pinged(1.0, 500.0)]):
        record = run(track_of(*steps, fields=fields).run())
        assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(61_000))


def test_who_is_asked_for_json_may_call_a_tool_as_well() -> None:
    fields = {**CHAT_TOOLS, "response_format": {"type": "json_object"}}
    steps = [(1.0, TEXT), (201.0, call()), *end(201.1)]
    assert told(run(track_of(*steps, fields=fields).run())) == (200, None)


# What is learnt.

IN_PIECES = [
    (1.0, TEXT),
    (1.5, NAMED),
    *((2.0 + 0.5 * number, call("x" * 40, name=None)) for number in range(20)),
    *end(20.0),
]


def test_a_deployment_that_sends_calls_in_pieces_is_not_waited_for_longer() -> None:
    pauses = PausesByDeployment()
    assert told(run(track_of(*IN_PIECES, pauses=pauses).run())) == (200, None)
    assert pauses["a"].in_pieces is True
    record = run(track_of((1.0, TEXT), *pinged(1.0, 500.0), pauses=pauses).run())
    assert (record.error_kind, record.total_ms) == ("stall_timeout", pytest.approx(61_000))
    # A call that it announced, and of which pings say that it is written, is waited for.
    steps = [(1.0, NAMED), *pinged(1.0, 201.0), (201.0, call(name=None)), *end(201.1)]
    assert told(run(track_of(*steps, pauses=pauses).run())) == (200, None)


@pytest.mark.parametrize(
    "sent",
    [
        [(150.0, call())],
        [(2.0, NAMED), (150.0, call(name=None))],
        [
            (2.0, NAMED),
            *((150.0 + number / 1e4, call(ARGUMENTS[number * 100 :][:100], name=None)) for number in range(21)),
        ],
        [
            (60.0, call()),
            (
                150.0,
                delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "write", "arguments": ARGUMENTS}}]),
            ),
        ],
    ],
)
def test_a_deployment_that_sends_calls_whole_is_known_by_one_and_its_silence_teaches_no_patience(sent: Steps) -> None:
    pauses = PausesByDeployment()
    assert told(run(track_of((1.0, TEXT), *sent, *end(151.0), pauses=pauses).run())) == (200, None)
    assert pauses["a"].in_pieces is False
    assert [pauses["a"].longest_s(kind) for kind in DeltaKind] == [0.0] * len(DeltaKind)


def test_a_short_call_shows_nothing() -> None:
    pauses = PausesByDeployment()
    run(track_of((1.0, TEXT), (2.0, call("{}")), *end(2.1), pauses=pauses).run())
    assert pauses["a"].in_pieces is None


# The first token.


def test_a_call_that_is_the_first_token_is_waited_for_where_calls_are_known_to_come_whole() -> None:
    pauses = PausesByDeployment()
    late = [(200.0, call()), *end(200.1)]
    with pytest.raises(Exception, match="first token"):
        run(track_of(*late, pauses=pauses).run())
    pauses["a"].in_pieces = False
    assert told(run(track_of(*late, pauses=pauses).run())) == (200, None)
    with pytest.raises(Exception, match="first token"):
        run(track_of(*late, pauses=pauses, fields={}).run())
    with pytest.raises(Exception, match="first token"):
        run(track_of(*late, pauses=pauses, clocks=CHOSEN).run())


def test_a_stream_that_has_begun_may_be_writing_a_call() -> None:
    for begun in (ROLE, b": ping\n\n"):
        assert told(run(track_of((3.0, begun), (300.0, call()), *end(300.1)).run())) == (200, None)
    with pytest.raises(Exception, match="first token"):
        run(track_of((3.0, ROLE), (370.0, call())).run())


def test_a_primary_that_is_silent_before_its_first_token_is_rescued_as_ever() -> None:
    pauses = PausesByDeployment()
    pauses["a"].in_pieces = False
    other = Timetable("b", [(0.5, call("{}")), *end(0.6)])
    track = Track(
        Timetable("a", [(1.0, ROLE)]),
        other,
        launches=[("a", 0.0, Role.PRIMARY), ("b", 4.0, Role.FAILOVER)],
        clocks=DEFAULT,
        fields=CHAT_TOOLS,
        pauses=pauses,
    )
    record = run(track.run())
    assert (track.outcomes, record.ttft_ms) == ({"a": "lost", "b": "won"}, pytest.approx(4500))


# Another deployment beside a silent one.


def beside(*steps: tuple[float, Step], fields: dict[str, Any], pauses: PausesByDeployment | None = None) -> Track:
    other = Timetable("b", [(500.0, None)])
    return Track(
        Timetable("a", steps),
        other,
        launches=[("a", 0.0, Role.PRIMARY)],
        rest=["b"],
        sink=GatheringSink(CHAT),
        streamed=False,
        clocks=DEFAULT,
        fields=fields,
        pauses=pauses,
    )


def test_nobody_is_asked_beside_a_call_in_the_making_until_it_is_very_late() -> None:
    track = beside((1.0, TEXT), *pinged(1.0, 201.0), (201.0, call()), *end(201.1), fields=CHAT_TOOLS)
    run(track.run())
    assert outcomes(track) == ["a primary won"]
    track = beside((1.0, TEXT), (50.0, call()), *end(50.1), fields=CHAT_TOOLS)
    run(track.run())
    assert outcomes(track) == ["a primary won"]
    track = beside((1.0, TEXT), (90.0, call()), *end(90.1), fields=CHAT_TOOLS)
    run(track.run())
    assert outcomes(track) == ["a primary won", "b failover lost"]


def test_without_tools_and_where_calls_come_in_pieces_another_is_asked_as_soon_as_ever() -> None:
    steps = [(1.0, TEXT), (50.0, delta(" on")), *end(50.1)]
    track = beside(*steps, fields={})
    run(track.run())
    assert outcomes(track) == ["a primary won", "b failover lost"]
    pauses = PausesByDeployment()
    pauses["a"].in_pieces = True
    track = beside(*steps, fields=CHAT_TOOLS, pauses=pauses)
    run(track.run())
    assert outcomes(track) == ["a primary won", "b failover lost"]
