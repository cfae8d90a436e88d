"""Classes of calls as numbers: what one version writes into rows, boards and spools, another one reads."""

import msgspec
import pytest

from gateway.api import APIS
from gateway.core.calls import CallStart
from gateway.core.prompt_classes import (
    Effort,
    MeasuredApi,
    PromptClass,
    Spoken,
    answer_class,
    decoded_class,
    encoded_class,
    spoken_class,
)
from gateway.ledger import CALL_COLUMNS, attempt_rows, call_rows
from gateway.ledger.entries import Started, decode
from gateway.steering import counts, event_field
from gateway.steering.counts import censored_field, read_evidence, read_tallies

# As version 0.1.0 has written them; never to be changed.
NUMBERS = {
    "answers": 0,
    "embeddings": 1,
    "moderations": 2,
    "rerank": 3,
    "audio.speech": 4,
    "audio.transcriptions": 5,
    "audio.translations": 6,
    "images.generations": 7,
    "images.edits": 8,
    "images.variations": 9,
    "messages.count_tokens": 10,
    "answers.whole": 11,
    "decisions": 13,
    "responses.compact": 14,
}
KNOWN = [api for api in MeasuredApi if api is not MeasuredApi.UNKNOWN]
SPEECH = PromptClass(MeasuredApi.SPEECH, 1)
# A line of a spool, as version 0.1.0 has written it.
LINE = (
    b'{"type":"started","call":{"id":"c","started_at":"2026-03-04T12:00:00Z","client":"tests","model":"tts","endpoint":'
    b'"audio.speech","streamed":false,"mode":"auto","objective":"first_token","prompt_class":41,"tags":{},"replica":"r1",'
    b'"region":null,"win_on":"any","request_id":null,"deadline_ms":null,"attempts":[{"id":"a","number":1,"started_at":'
    b'"2026-03-04T12:00:00Z","role":"primary","provider":"groq","deployment":"groq/tts","launch_offset_ms":0.0,'
    b'"audited":false,"model":null,"in_flight":null,"asked_tokens":null}]}}'
)


@pytest.mark.parametrize("api", KNOWN)
@pytest.mark.parametrize("size", [0, 1, 2])
def test_each_class_has_the_number_it_always_had(api: MeasuredApi, size: int) -> None:
    assert encoded_class(PromptClass(api, size)) == 10 * NUMBERS[api] + size
    assert decoded_class(10 * NUMBERS[api] + size) == PromptClass(api, size)


@pytest.mark.parametrize(("effort", "number"), [(None, 2), (Effort.LOW, 5), (Effort.HIGH, 8)])
def test_an_effort_is_part_of_the_number_which_stays_that_of_answers(effort: Effort | None, number: int) -> None:
    assert encoded_class(answer_class(2, effort)) == number
    assert decoded_class(number) == answer_class(2, effort)
    assert event_field("groq/a", answer_class(2, effort), 0.02) == f"groq/a|{number}|e8"
    assert read_tallies({f"groq/a|{number}|e8": 1.0})["groq/a"].events == {answer_class(2, effort): {8: 1.0}}


def test_the_policys_own_figures_of_an_effort_and_a_voice_are_of_an_api_unknown_to_versions_before() -> None:
    measured = [*Effort, *Spoken]
    fields = [counts.event("groq/a", each, 0.02) for each in measured]
    assert fields == [f"groq/a|{number}|p8" for number in (100, 200, 300, 400, 500)]
    assert read_evidence(dict.fromkeys(fields, 1.0))["groq/a"].events == {each: {8: 1.0} for each in measured}
    assert not read_evidence({"groq/a|100|ended": 1.0, "groq/a|300|ended": 1.0, "groq/a|600|p8": 1.0})


@pytest.mark.parametrize("effort", [None, *Effort])
def test_what_is_spoken_has_the_number_of_other_answers_and_figures_of_its_own(effort: Effort | None) -> None:
    spoken = spoken_class(answer_class(1, effort))
    assert encoded_class(spoken) == encoded_class(answer_class(1, effort))
    assert (spoken.size, spoken.effort, spoken.is_answer) == (1, effort, True)
    assert isinstance(spoken.measured, Spoken)
    assert answer_class(1, effort).measured == (effort or MeasuredApi.ANSWERS)


def test_every_relayed_api_has_a_number_of_its_own() -> None:
    relayed = [each.relayed for each in APIS if each.relayed is not None]
    assert {each.endpoint for each in relayed} == {*KNOWN} - {MeasuredApi.ANSWERS, MeasuredApi.WHOLE}
    assert len({encoded_class(PromptClass(api, 0)) for api in KNOWN}) == len(KNOWN)


def test_a_number_of_a_later_version_is_of_an_unknown_api_and_keeps_its_size() -> None:
    assert decoded_class(122) == PromptClass(MeasuredApi.UNKNOWN, 2)
    with pytest.raises(KeyError):
        encoded_class(decoded_class(122))


def test_fields_of_the_board_are_as_they_were() -> None:
    assert event_field("groq/a|b", answer_class(2), 0.02) == "groq/a|b|2|e8"
    assert censored_field("groq/tts", SPEECH, 0.02, kind="ac") == "groq/tts|41|ac8"
    assert counts.event("groq/a", MeasuredApi.ANSWERS, 0.02) == "groq/a|0|p8"
    assert counts.cut("groq/tts", MeasuredApi.SPEECH, 0.02) == "groq/tts|4|q8"


def test_fields_of_the_board_are_read_as_they_were_written() -> None:
    tallies = read_tallies({"groq/a|2|e8": 3.0, "groq/a|41|c9": 2.0, "groq/a|122|e8": 5.0})
    assert tallies["groq/a"].events == {answer_class(2): {8: 3.0}}
    assert tallies["groq/a"].censored == {SPEECH: {9: 2.0}}
    known = read_evidence({"groq/a|0|p8": 3.0, "groq/a|4|q9": 2.0, "groq/a|12|p8": 5.0})
    assert known["groq/a"].events == {MeasuredApi.ANSWERS: {8: 3.0}}
    assert known["groq/a"].censored == {MeasuredApi.SPEECH: {9: 2.0}}


@pytest.mark.parametrize(("number", "size"), [(41, 1), (112, 2), (0, 0)])
def test_the_spool_of_another_version_becomes_rows(number: int, size: int) -> None:
    entry = decode(LINE.replace(b'"prompt_class":41', b'"prompt_class":%d' % number))
    [call] = (dict(zip(CALL_COLUMNS, row, strict=True)) for row in call_rows([entry]))
    assert (call["prompt_class"], call["size_class"], call["api"]) == (number, size, "audio.speech")
    assert len(list(attempt_rows([entry]))) == 1


def test_a_spool_has_the_number_alone() -> None:
    start = decode(LINE)
    assert isinstance(start, Started)
    assert msgspec.json.decode(msgspec.json.encode(start.call))["prompt_class"] == 41
    assert isinstance(start.call, CallStart)
