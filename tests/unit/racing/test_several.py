"""Several answers to one request, streamed side by side: it is over when each that has begun is."""

from typing import Any

import msgspec
import pytest

from gateway.racing.validation import asks_for_several
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT, COMPLETIONS, GEMINI, Dialect
from tests.unit.racing.track import DONE, Step, Timetable, Track, event
from tests.unit.racing.virtual_time import run


def of(index: int, text: str = "", finish_reason: str | None = None) -> bytes:
    choice = {"index": index, "delta": {"content": text} if text else {}, "finish_reason": finish_reason}
    return event(id="c1", object="chat.completion.chunk", model="m", choices=[choice])


BEGINNING: list[tuple[float, Step]] = [(0.1, of(0, "a") + of(1, "b")), (0.2, of(0, finish_reason="stop"))]
LOST = UpstreamError(ErrorKind.DISCONNECTED, "reset")


def ended(*steps: tuple[float, Step], n: int = 2) -> tuple[str | None, bytes]:
    """Return the error of a call whose answers come so, and what its client was sent."""
    track = Track(Timetable("a", steps), fields={"n": n})
    record = run(track.run())
    return record.error_kind, track.sink.bytes  # type: ignore[union-attr]


def test_a_stream_that_breaks_when_one_of_two_answers_has_ended_is_broken() -> None:
    error, sent = ended(*BEGINNING, (0.3, of(1, "half")), (0.4, LOST))
    assert error == "disconnected"
    assert b"half" in sent
    assert b"[DONE]" not in sent


def test_an_answer_may_pause_longer_than_the_end_of_a_stream_may_when_another_has_ended() -> None:
    error, sent = ended(*BEGINNING, (20.0, of(1, "late", "stop") + DONE), (20.0, None))
    assert error is None
    assert b"late" in sent


def test_done_while_an_answer_lacks_its_finish_reason_is_truncated() -> None:
    error, sent = ended(*BEGINNING, (0.3, DONE), (0.3, None))
    assert error == "upstream_truncated"
    assert b"[DONE]" not in sent


def test_answers_that_have_all_ended_are_whole_without_done() -> None:
    error, sent = ended(*BEGINNING, (0.3, of(1, finish_reason="length")), (0.4, LOST))
    assert error is None
    assert sent.endswith(DONE)


def test_a_provider_that_gives_one_answer_of_two_has_answered() -> None:
    assert ended((0.1, of(0, "a")), (0.2, of(0, finish_reason="stop")), (0.3, LOST))[0] is None


@pytest.mark.parametrize(
    ("dialect", "fields", "several"),
    [
        (CHAT, {"n": 2}, True),
        (CHAT, {"n": 1}, False),
        (CHAT, {"n": None}, False),
        (CHAT, {}, False),
        (GEMINI, {"generationConfig.candidateCount": 2}, True),
        (COMPLETIONS, {"prompt": ["a", "b"]}, True),
        (COMPLETIONS, {"prompt": [[1, 2], [3]]}, True),
        (COMPLETIONS, {"prompt": [1, 2]}, False),
        (COMPLETIONS, {"prompt": "a"}, False),
        (COMPLETIONS, {"prompt": "a", "n": 3}, True),
    ],
)
def test_several_answers_are_asked_for_by_number_or_by_several_prompts(
    dialect: Dialect, fields: dict[str, Any], several: bool
) -> None:
    said = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    assert asks_for_several(said, dialect) is several
