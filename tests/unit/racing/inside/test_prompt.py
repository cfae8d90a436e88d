"""When a prompt is needed no more, and what is left of a request then."""

from typing import Any

import msgspec

from gateway.racing import forget_prompt
from gateway.racing.validation import expected, requested
from providers.dialects import CHAT, MESSAGES, RESPONSES
from tests.unit.racing.test_audits import to_the_end
from tests.unit.racing.test_race import answers
from tests.unit.racing.track import RememberingSink, Timetable, Track
from tests.unit.racing.virtual_time import run

BODY = (
    b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":7,"n":2,"temperature":0.5,"seed":1,'
    b'"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}}],'
    b'"response_format":{"type":"json_object"}}'
)
MESSAGE: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": {"id": "1", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
)


def event(said: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (said["type"].encode(), msgspec.json.encode(said))


def test_what_the_record_and_the_judgement_read_is_left_of_a_request() -> None:
    fields = msgspec.json.decode(BODY, type=dict[str, msgspec.Raw])
    before = requested(fields, CHAT), expected(fields, CHAT)
    forget_prompt(fields)
    assert set(fields) == {"max_tokens", "n", "temperature", "tools", "response_format"}
    assert (requested(fields, CHAT), expected(fields, CHAT)) == before


def test_tools_that_the_input_of_a_response_adds_are_known_to_the_judgement() -> None:
    added = {"type": "additional_tools", "tools": [{"type": "function", "name": "wait"}]}
    body = {"tools": [{"type": "function", "name": "sh"}], "input": [added, {"role": "user", "content": "Hi"}]}
    fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}
    before = expected(fields, RESPONSES)
    assert before is not None
    assert set(before.tools) == {"sh", "wait"}
    forget_prompt(fields, RESPONSES)
    assert set(fields) == {"tools"}
    assert expected(fields, RESPONSES) == before


def is_last(track: Track) -> bool:
    run(to_the_end(track))
    assert isinstance(track.sink, RememberingSink)
    assert track.sink.winner is not None
    return track.sink.winner.is_last


def test_once_the_losers_are_cut_nobody_needs_the_prompt() -> None:
    assert is_last(Track(answers("slow", 1.5), answers("quick", 0.2)))


def test_an_audited_loser_may_still_need_the_prompt() -> None:
    assert not is_last(Track(answers("slow", 1.5), answers("quick", 0.2), audited=["slow", "quick"]))


def test_the_translation_of_an_answer_may_still_need_the_prompt() -> None:
    track = Track(Timetable("quick", [*((0.2, event(said)) for said in MESSAGE), (0.2, None)]))
    quick = msgspec.structs.replace(track.model.deployments["quick"], speaks=(MESSAGES,))
    track.model = msgspec.structs.replace(track.model, deployments={"quick": quick})
    assert not is_last(track)
