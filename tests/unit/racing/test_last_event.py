"""Responses whose whole answer comes in the last event: a few servers stream nothing before it."""

from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role, WinOn
from gateway.racing import GatheringSink
from providers import events
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect, translations
from tests.unit.racing.track import DONE, RememberingSink, Timetable, Track, event
from tests.unit.racing.virtual_time import run

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": '{"a": 1}', "annotations": []}],
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "now", "arguments": "{}", "status": "completed"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}


def last(*output: Any, status: str = "completed") -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 40, "total_tokens": 43}
    response = {"id": "r1", "object": "response", "model": "m", "status": status, "output": output, "usage": usage}
    return event(type=f"response.{status}", sequence_number=1, response=response)


def tracked(*steps: tuple[float, bytes | None], **options: Any) -> Track:
    other = Timetable("other", [(9.0, last(MESSAGE)), (9.0, None)])
    launches = [("whole", 0.0, Role.PRIMARY), ("other", 0.0, Role.RACE)]
    track = Track(Timetable("whole", list(steps)), other, launches=launches, **options)
    track._call_options["dialect"] = RESPONSES
    deployments = {
        name: msgspec.structs.replace(each, speaks=(RESPONSES,)) for name, each in track.model.deployments.items()
    }
    track.model = msgspec.structs.replace(track.model, deployments=deployments)
    return track


@pytest.mark.parametrize("item", [MESSAGE, CALL, THOUGHT])
@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_an_answer_that_comes_in_the_last_event_alone_wins_with_it(item: Any, status: str) -> None:
    whole = last(item, status=status)
    track = tracked((0.4, whole), (0.4, None))
    record = run(track.run())
    assert track.outcomes == {"whole": "won", "other": "lost"}
    assert isinstance(track.sink, RememberingSink)
    assert track.sink.bytes == whole
    won = next(each for each in record.attempts if each.outcome == "won")
    assert (record.ttft_ms, won.decode_tps, won.completion_tokens) == (pytest.approx(400), None, 40)
    assert track.recorder.first_tokens == [("whole", 0.4)]


def test_an_empty_output_is_no_token() -> None:
    track = tracked((0.4, last()), (0.4, None))
    run(track.run())
    assert track.outcomes == {"whole": "lost", "other": "won"}


def test_done_without_anything_before_it_is_an_empty_answer() -> None:
    track = tracked((0.4, DONE), (0.4, None))
    run(track.run())
    assert next(each.error_kind for each in track.recorder.ended if each.deployment == "whole") == "upstream_empty"


def test_what_was_streamed_is_not_counted_again_with_the_last_event() -> None:
    said = event(type="response.output_text.delta", output_index=0, delta='{"a": 1}')
    track = tracked((0.1, said), (0.4, last(MESSAGE)), (0.4, None))
    record = run(track.run())
    won = next(each for each in record.attempts if each.outcome == "won")
    assert (won.ttft_ms, won.chunks) == (pytest.approx(100), 1)


@pytest.mark.parametrize("win_on", [WinOn.ANSWER, WinOn.SENTENCE, WinOn.VALID])
def test_it_wins_whatever_has_to_be_known_of_it(win_on: WinOn) -> None:
    asked = {"type": "json_object"}
    format_: dict[str, Any] = {"text": {"format": asked}, "response_format": asked} if win_on is WinOn.VALID else {}
    track = tracked((0.4, last(MESSAGE)), (0.4, None), win_on=win_on, fields=format_)
    assert run(track.run()).ttft_ms == pytest.approx(400)
    assert track.outcomes["whole"] == "won"


def test_it_is_gathered_as_it_came() -> None:
    sink = GatheringSink(RESPONSES)
    run(tracked((0.4, last(MESSAGE)), (0.4, None), sink=sink, streamed=False).run())
    assert msgspec.json.decode(sink.body())["output"] == [MESSAGE]


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, GEMINI])
def test_clients_of_other_dialects_get_its_text_once(dialect: Dialect) -> None:
    streams = translations(RESPONSES, dialect, {}, ())
    told = last(MESSAGE)
    for each in streams:
        told = each.feed(told) + each.end()
    chunks = [dialect.answers.read_event(each.data, ()) for each in events(told) if each.data]
    texts = [text for chunk in chunks if chunk.answer for _, text in dialect.answers.texts(chunk.data)]
    assert "".join(texts) == '{"a": 1}'
