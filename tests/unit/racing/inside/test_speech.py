"""Races for the first clause that can be spoken, in virtual time."""

from typing import Any

import pytest

from gateway.core.attempts import WinOn
from gateway.racing.measurement import SpeechListener
from gateway.racing.speech import SPOKEN_CHARS_S, Speech
from providers.dialects import PIVOT
from tests.unit.racing.test_valid import says
from tests.unit.racing.track import DONE, FINISH, RememberingSink, Timetable, Track, delta
from tests.unit.racing.virtual_time import run


def test_who_can_be_spoken_first_wins_however_early_others_begin() -> None:
    dribbles = says("dribbles", (0.1, "Well"), (3.0, ", yes. "), (4.0, "Good."))
    fluent = says("fluent", (0.4, "It is "), (0.6, "noon. "), (0.9, "Anything else?"))
    track = Track(dribbles, fluent, win_on=WinOn.SENTENCE)
    record = run(track.run())
    assert track.outcomes == {"dribbles": "lost", "fluent": "won"}
    assert record.ttft_ms == pytest.approx(600)
    assert isinstance(track.sink, RememberingSink)
    assert track.sink.bytes == delta("It is ") + delta("noon. ") + delta("Anything else?") + FINISH + DONE
    won = next(each for each in record.attempts if each.outcome == "won")
    assert (won.ttft_ms, won.sentence_ms, won.token_ms) == (pytest.approx(400), pytest.approx(600), pytest.approx(600))
    assert won.win_on is WinOn.SENTENCE
    lost = next(each for each in record.attempts if each.outcome == "lost")
    assert (lost.sentence_ms, lost.censored_at_ms) == (None, pytest.approx(600))
    assert track.recorder.first_tokens == [("fluent", 0.6)]


def test_a_short_answer_without_an_end_is_spoken_when_it_is_over() -> None:
    track = Track(says("brief", (0.2, "Yes"), (0.5, " sir")), win_on=WinOn.SENTENCE)
    record = run(track.run())
    assert record.ttft_ms == pytest.approx(500)


def test_enough_words_win() -> None:
    words = [(0.1 * n, f"word{n} ") for n in range(1, 21)]
    record = run(Track(says("long", *words), win_on=WinOn.SENTENCE, sentence_words=5).run())
    assert record.ttft_ms == pytest.approx(600)  # the sixth word shows that the fifth has ended


def test_a_call_of_a_tool_is_not_spoken_and_wins_at_once() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    steps = [(0.3, delta(tool_calls=[call])), (0.6, FINISH), (0.6, DONE), (0.6, None)]
    record = run(Track(Timetable("tool", steps), win_on=WinOn.SENTENCE).run())
    assert record.ttft_ms == pytest.approx(300)


def test_reasoning_is_not_spoken() -> None:
    steps = [
        (0.1, delta(reasoning_content="Let me see. ")),
        (0.7, delta("Noon. ")),
        (0.8, delta("Bye")),
        (0.9, FINISH),
        (0.9, DONE),
        (0.9, None),
    ]
    record = run(Track(Timetable("thinks", steps), win_on=WinOn.SENTENCE).run())
    assert record.ttft_ms == pytest.approx(700)


def test_the_pause_of_speech_is_the_longest_time_with_nothing_left_to_hear() -> None:
    seconds = 2.0
    first = "a" * int(seconds * SPOKEN_CHARS_S - 2) + ". "
    speech = Speech(PIVOT.answers.texts, 12)
    speech.add([first])
    speech.came(10.0, is_over=False, is_spoken=True)
    speech.add(["More."])
    speech.came(11.0, is_over=False, is_spoken=True)  # before the first is heard to its end
    assert speech.listener.pause_s == 0.0
    spoken_s = seconds + len("More.") / SPOKEN_CHARS_S
    speech.add(["And more."])
    speech.came(10.0 + spoken_s + 1.5, is_over=True, is_spoken=True)
    assert speech.listener.pause_s == pytest.approx(1.5)


def test_the_pause_of_an_answer_that_goes_on_has_the_silence_before_it_and_none_of_the_text_that_is_repeated() -> None:
    first, other = SpeechListener(), SpeechListener()
    first.until = 10.0
    first.add(2.0)
    first.hear(10.0)
    other.until = 11.0  # its own first clause, of which nobody hears anything
    other.add(3.0)
    other.hear(15.0)
    other.go_on(16.0, first.heard, repeated_s=2.0)
    assert (other.pause_s, other.until) == (4.0, 17.0)
    other.add(1.0)
    other.hear(16.5)
    assert (other.pause_s, other.until) == (4.0, 18.0)


def test_what_has_no_more_of_the_text_yet_makes_no_pause() -> None:
    first, other = SpeechListener(), SpeechListener()
    first.until = 10.0
    first.add(2.0)
    first.hear(10.0)
    other.go_on(11.0, first.heard, repeated_s=2.0)
    assert (other.pause_s, other.until) == (0.0, 12.0)


@pytest.mark.parametrize(
    ("text", "spoken_s"),
    [
        ("\u4f60\u597d\u5417", 0.6),
        ("\ud55c\uad6d\uc5b4", 0.6),
        ("Schöner Tag", 11 / SPOKEN_CHARS_S),
        ("\u0e2a\u0e27\u0e31", 0.2),
    ],
)
def test_a_syllable_in_one_character_takes_as_long_as_three_of_an_alphabet(text: str, spoken_s: float) -> None:
    speech = Speech(PIVOT.answers.texts, 12)
    speech.add([text])
    speech.came(10.0, is_over=True, is_spoken=True)
    assert speech.listener.until - 10.0 == pytest.approx(spoken_s)


def test_without_it_no_answer_is_looked_into() -> None:
    track = Track(says("plain", (0.1, "One. "), (0.2, "Two. ")))
    record = run(track.run())
    assert record.attempts[0].sentence_ms is None
    assert record.attempts[0].speech_pause_ms is None


@pytest.mark.parametrize("text", ["\N{THUMBS UP SIGN}", "...", " \n "])
def test_a_whole_answer_without_a_word_wins_when_it_is_over(text: str) -> None:
    late = says("late", (30.0, "Yes. "), (31.0, "Sir."))
    track = Track(says("sign", (0.1, text), (0.4, text)), late, win_on=WinOn.SENTENCE)
    record = run(track.run())
    assert (track.outcomes, record.ttft_ms) == ({"sign": "won", "late": "lost"}, pytest.approx(400))


@pytest.mark.parametrize("said", [{"refusal": "No"}, {"audio": {"id": "a", "data": "AAAA"}}])
def test_what_is_not_text_wins_at_once(said: dict[str, Any]) -> None:
    steps = [(0.2, delta(**said)), (0.6, FINISH), (0.6, DONE), (0.6, None)]
    record = run(Track(Timetable("other", steps), win_on=WinOn.SENTENCE).run())
    assert record.ttft_ms == pytest.approx(200)


def test_a_clause_may_span_several_blocks_of_an_answer() -> None:
    speech = Speech(lambda data: [(int(data[:1]), data[1:].decode())], 12)
    for data in (b"0It is ", b"2noon", b"2. "):
        speech.take(data)
    speech.came(1.0, is_over=False, is_spoken=True)
    assert speech.began_at == 1.0
