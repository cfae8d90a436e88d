"""Thoughts inside the text of an answer: they are no answer, and win no race for one."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.attempts import WinOn
from gateway.core.race_failures import NoValidAnswer
from gateway.racing import GatheringSink
from gateway.racing.thoughts import (
    EACH_STREAM,
    FIRST_STREAMS,
    MOST_UNPROVEN,
    Fields,
    Habit,
    HabitsByDeployment,
    Thoughts,
    after_thoughts,
)
from providers.dialects import CHAT, COMPLETIONS, GEMINI, MESSAGES, RESPONSES, Dialect
from tests.unit.racing.inside.test_stalls import block_delta, named
from tests.unit.racing.test_several import candidate, of
from tests.unit.racing.track import DONE, FINISH, RememberingSink, Step, Timetable, Track, delta, event, usage
from tests.unit.racing.virtual_time import run

MARKED = [
    ("<think>", "</think>"),
    ("<Think>", "</Think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("analysisW", "assistantfinal"),
]


def said(pieces: Sequence[str], thoughts: Thoughts | None = None) -> tuple[str, float | None]:
    """Return the answer in these pieces, which come a second apart, and when it began."""
    looking = thoughts or Thoughts()
    text = "".join(looking.take(piece, float(number)) for number, piece in enumerate(pieces, start=1))
    text += looking.finish(float(len(pieces) + 1), is_cut_short=False)
    return text, looking.began_at if looking.has_begun else None


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[begin:end] for begin, end in pairwise(ends)]


@given(st.sampled_from(MARKED), st.lists(st.integers(0, 200), max_size=40), st.sampled_from(["", "\n", "  \n\n"]))
def test_thoughts_are_found_however_the_text_is_cut(marks: tuple[str, str], places: list[int], blank: str) -> None:
    opening, closing = marks
    if opening == "analysisW":
        places = [max(place % 60, 12) for place in places]  # its first letters begin many words
    text = f"{blank}{opening}e think of <b> and [x] & </thin.{closing}{blank}<b>Noon</b> [1]"
    assert said(cut(text, places))[0] == "<b>Noon</b> [1]"


@given(st.lists(st.integers(0, 200), max_size=40))
def test_several_thoughts_one_after_the_other_are_found(places: list[int]) -> None:
    text = "<think>\n\n</think>\n\n<think>Hm.</think>\n\nNoon. <think>is a mark</think>"
    assert said(cut(text, places))[0] == "Noon. <think>is a mark</think>"


@given(
    st.sampled_from(
        [
            "Noon",
            "<b>Noon</b>",
            "<thin> is no mark",
            "[1] Noon",
            "analysis shows",
            "analysis",
            "```xml\n<think>x</think>\n```",
            "`<think>` begins a thought, `</think>` ends it.",
            "The </think> tag ends it.",
            "It ends with </think>, mostly.",
            "<",
            " \n",
            "[",
        ]
    ),
    st.lists(st.integers(0, 60), max_size=40),
    st.booleans(),
)
def test_a_text_without_thoughts_is_the_answer_from_its_first_piece(text: str, places: list[int], seeks: bool) -> None:
    habit = Habit()
    assert said(cut(text, places), Thoughts(habit, seeks=seeks)) == (text, 1.0)
    assert said(["No", "on"], begun(habit)) == ("Noon", 1.0)


def test_the_answer_begins_with_the_first_letter_behind_the_thought() -> None:
    assert said(["<think>", "Hm", "</think>", "\n\n", "No", "on"]) == ("Noon", 5.0)
    assert said(["\n", "<th", "ink>Hm</th", "ink>\n\nNo", "on"]) == ("Noon", 4.0)
    assert said(["<", "b>Noon"]) == ("<b>Noon", 1.0)
    assert said(["<think>Hm</think>", "<", "b>Noon"]) == ("<b>Noon", 2.0)


def test_a_thought_that_does_not_end_has_no_answer_behind_it() -> None:
    assert said(["<think>", "Hm", "and hm"]) == ("", None)


# Thoughts that the chat template begins.


def begun(habit: Habit, fields: Fields | None = None) -> Thoughts | None:
    habit.left -= 1
    return habit.begin(fields or {}, keeps=True) if habit.left < 0 or habit.opened else None


def ended(habit: Habit, *pieces: str, fields: dict[str, Any] | None = None) -> tuple[str, float | None]:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in (fields or {}).items()}
    return said(pieces, begun(habit, raw))


LONE = ["Hm, ", "hm.", "\n</th", "ink>\n\n", "No", "on"]


def test_an_end_without_a_beginning_is_learnt_and_expected_from_then_on() -> None:
    habit = Habit()
    assert ended(habit, *LONE) == ("Hm, hm.\n</thNoon", 5.0)
    assert ended(habit, *LONE) == ("Noon", 5.0)
    assert ended(habit, "Hm</think>", "Noon") == ("Noon", 2.0)


@pytest.mark.parametrize(
    "text",
    [
        "The </think> tag ends it.",
        "It is `</think>`.",
        "It is </think>.",
        "```\n</think>\n``` is the end",
        "<think> begins, and </think>\n ends",
    ],
)
def test_a_text_that_mentions_a_mark_teaches_nothing(text: str) -> None:
    for piece in (1, 3, 100):
        habit = Habit()
        ended(habit, *[text[at : at + piece] for at in range(0, len(text), piece)])
        assert ended(habit, "No", "on") == ("Noon", 1.0)


def test_a_deployment_that_does_not_think_any_more_is_believed_at_once() -> None:
    habit = Habit()
    ended(habit, *LONE)
    assert ended(habit, "No", "on") == ("Noon", 1.0)
    assert said(["No"], begun(habit)) == ("No", 1.0)
    looking = begun(habit)
    assert looking is None or looking.take("No", 1.0) == "No"


def test_thoughts_that_never_come_to_their_end_are_not_expected_for_ever() -> None:
    habit = Habit()
    ended(habit, *LONE)
    for _ in range(MOST_UNPROVEN):
        looking = begun(habit)
        assert looking is not None
        assert looking.take("No", 1.0) == ""  # and it is cut, as it lost
    looking = begun(habit)
    assert looking is None or looking.take("No", 1.0) == "No"


def test_an_answer_that_its_limit_ended_may_have_been_thoughts() -> None:
    habit = Habit()
    ended(habit, *LONE)
    looking = begun(habit)
    assert looking is not None
    assert looking.take("Hm", 1.0) + looking.finish(2.0, is_cut_short=True) == ""
    assert ended(habit, *LONE) == ("Noon", 5.0)


def test_a_request_that_switches_thinking_off_is_known_apart() -> None:
    habit, off = Habit(), {"chat_template_kwargs": {"enable_thinking": False}}
    ended(habit, *LONE)
    looking = begun(habit, {name: msgspec.Raw(msgspec.json.encode(each)) for name, each in off.items()})
    assert looking is None or looking.take("No", 1.0) == "No"
    assert ended(habit, *LONE) == ("Noon", 5.0)


def test_only_some_streams_of_a_known_deployment_are_searched() -> None:
    habit = Habit()
    for _ in range(FIRST_STREAMS):
        assert ended(habit, "No", "on") == ("Noon", 1.0)
    later = [begun(habit) for _ in range(2 * EACH_STREAM)]
    assert sum(each is not None for each in later) == 2


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        ('<think>{"a"}</think>\n{"city": 1}', '{"city": 1}'),
        ('Hm.\n</think>\n\n{"city": 1}', '{"city": 1}'),
        ('{"city": "</think>"}', None),
        ("Sure! Oslo", None),
        ("", None),
    ],
)
def test_what_stands_behind_the_thoughts_of_a_whole_text_is_known(text: str, behind: str | None) -> None:
    assert after_thoughts(text) == behind


# In a race.


def in_pieces(dialect: Dialect, text: str) -> bytes:
    if dialect is MESSAGES:
        return block_delta(type="text_delta", text=text)
    if dialect is RESPONSES:
        return named("response.output_text.delta", output_index=0, delta=text)
    if dialect is GEMINI:
        return candidate(0, text)
    if dialect is COMPLETIONS:
        return event(id="c1", model="m", choices=[{"index": 0, "text": text}])
    return delta(text)


def end_of(dialect: Dialect) -> list[bytes]:
    if dialect is MESSAGES:
        return [
            named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
            named("message_stop"),
        ]
    if dialect is RESPONSES:
        return [named("response.completed", response={"id": "r", "status": "completed", "output": []})]
    if dialect is GEMINI:
        return [candidate(0, "", "STOP")]
    if dialect is COMPLETIONS:
        return [event(id="c1", model="m", choices=[{"index": 0, "text": "", "finish_reason": "stop"}]), DONE]
    return [FINISH, DONE]


def telling(name: str, dialect: Dialect, *pieces: tuple[float, str]) -> Timetable:
    last = pieces[-1][0] + 0.1
    steps: list[tuple[float, Step]] = [(at, in_pieces(dialect, text)) for at, text in pieces]
    return Timetable(name, [*steps, *((last, each) for each in end_of(dialect)), (last, None)])


def track_in(client: Dialect, *upstreams: Timetable, server: Dialect | None = None, **options: Any) -> Track:
    track = Track(*upstreams, **options)
    track._call_options["dialect"] = client
    speaking = {
        name: msgspec.structs.replace(each, speaks=(server or client,))
        for name, each in track.model.deployments.items()
    }
    track.model = msgspec.structs.replace(track.model, deployments=speaking)
    return track


THINKING = [(0.1, "<th"), (0.2, "ink>"), (0.3, "Let me see. "), (0.8, "Well."), (0.9, "</think>\n\n")]
DIALECTS = [CHAT, COMPLETIONS, MESSAGES, RESPONSES, GEMINI]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
@pytest.mark.parametrize("win_on", [WinOn.ANSWER, WinOn.SENTENCE, WinOn.VALID])
def test_who_still_thinks_in_the_text_has_not_answered(dialect: Dialect, win_on: WinOn) -> None:
    thinks = telling("thinks", dialect, *THINKING, (2.0, "It is noon. "), (2.1, "Bye."))
    answers = telling("answers", dialect, (0.5, "It is noon. "), (0.6, "Bye."))
    track = track_in(dialect, thinks, answers, win_on=win_on)
    run(track.run())
    assert track.outcomes == {"thinks": "lost", "answers": "won"}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_the_first_token_wins_where_any_does_and_the_answer_is_timed_behind_the_thoughts(dialect: Dialect) -> None:
    thinks = telling("thinks", dialect, *THINKING, (2.0, "It is noon. "), (2.1, "Bye."))
    track = track_in(dialect, thinks, telling("answers", dialect, (0.5, "It is noon. ")))
    record = run(track.run())
    assert track.outcomes == {"thinks": "won", "answers": "lost"}
    won = next(each for each in record.attempts if each.outcome == "won")
    assert (won.ttft_ms, won.ttft_answer_ms) == (pytest.approx(100), pytest.approx(2000))
    assert isinstance(track.sink, RememberingSink)
    pieces = [text for _, text in THINKING]
    assert track.sink.bytes.startswith(b"".join(in_pieces(dialect, text) for text in pieces))


@pytest.mark.parametrize("client", [MESSAGES, RESPONSES, GEMINI], ids=lambda each: each.name)
def test_thoughts_in_a_translated_text_are_no_answer_either(client: Dialect) -> None:
    steps = [(at, delta(text)) for at, text in [*THINKING, (2.0, "It is noon. ")]]
    thinks = Timetable("thinks", [*steps, (2.1, FINISH), (2.1, usage()), (2.1, DONE), (2.1, None)])
    track = track_in(client, thinks, server=CHAT, win_on=WinOn.ANSWER)
    record = run(track.run())
    assert record.ttft_ms == pytest.approx(2000)
    assert record.attempts[0].ttft_answer_ms == pytest.approx(2000)


def lone(name: str, *, at: float = 0.0) -> Timetable:
    pieces = [(at + 0.1, "Let me see. "), (at + 0.2, "Well, well.\n"), (at + 0.9, "</think>\n\n"), (at + 1.0, "Noon. ")]
    return telling(name, CHAT, *pieces, (at + 1.1, "Bye."))


@pytest.mark.parametrize("win_on", [WinOn.ANSWER, WinOn.SENTENCE])
def test_thoughts_that_a_template_begins_win_once_and_then_no_more(win_on: WinOn) -> None:
    habits = HabitsByDeployment()
    answers = telling("answers", CHAT, (0.5, "It is noon. "), (0.6, "Bye."))
    first = Track(lone("thinks"), answers, win_on=win_on, habits=habits)
    record = run(first.run())
    assert first.outcomes["thinks"] == "won"
    assert record.attempts[0].ttft_answer_ms == pytest.approx(1000)
    second = Track(lone("thinks"), answers, win_on=win_on, habits=habits)
    run(second.run())
    assert second.outcomes == {"thinks": "lost", "answers": "won"}


def test_an_expected_thought_that_was_the_answer_wins_at_its_end_and_later_ones_at_once() -> None:
    habits = HabitsByDeployment()
    run(Track(lone("a"), win_on=WinOn.ANSWER, habits=habits).run())
    plain = telling("a", CHAT, (0.1, "It is "), (0.5, "noon."))
    record = run(Track(plain, win_on=WinOn.ANSWER, habits=habits).run())
    assert record.attempts[0].outcome == "won"
    assert (record.ttft_ms, record.attempts[0].ttft_answer_ms) == (pytest.approx(600), pytest.approx(100))
    assert run(Track(plain, win_on=WinOn.ANSWER, habits=habits).run()).ttft_ms == pytest.approx(100)


def test_thoughts_before_json_do_not_spoil_it() -> None:
    fields = {"response_format": {"type": "json_object"}}
    for pieces in (
        [(0.1, "<think>"), (0.2, "{no json}"), (0.3, "</think>\n"), (0.4, '{"city": '), (0.5, '"Oslo"}')],
        [(0.1, "Hm. "), (0.2, "{no json}"), (0.3, "\n</think>\n"), (0.4, '{"city": '), (0.5, '"Oslo"}')],
        [(0.1, '<think>{no json}</think>{"city": "Oslo"}')],
    ):
        track = Track(telling("a", CHAT, *pieces), win_on=WinOn.VALID, fields=fields)
        record = run(track.run())
        assert (record.attempts[0].outcome, record.attempts[0].flaw) == ("won", None)
    track = Track(telling("a", CHAT, (0.1, "<think>Hm</think>no json")), win_on=WinOn.VALID, fields=fields)
    with pytest.raises(NoValidAnswer, match="bad_json"):
        run(track.run())


def test_an_answer_in_one_read_is_not_taken_again_from_the_last_event_that_repeats_it() -> None:
    text = '{"city": "Oslo"}'
    message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    ended = named("response.completed", response={"id": "r", "status": "completed", "output": [message]})
    steps: list[tuple[float, Step]] = [(0.1, in_pieces(RESPONSES, text) + ended), (0.1, None)]
    fields = {"text": {"format": {"type": "json_object"}}}
    track = track_in(RESPONSES, Timetable("a", steps), win_on=WinOn.VALID, fields=fields, habits=HabitsByDeployment())
    record = run(track.run())
    assert (record.attempts[0].judged_as, record.attempts[0].flaw) == ("json", None)


def test_each_of_several_answers_may_have_thoughts() -> None:
    steps: list[tuple[float, Step]] = [
        (0.1, of(0, "<think>")),
        (0.2, of(1, "<think>")),
        (0.3, of(0, "Hm")),
        (0.4, of(1, "Hm</think>")),
        (0.5, of(0, "</think>")),
        (0.7, of(1, "Noon")),
        (0.8, of(0, "Noon")),
        (0.9, of(0, reason="stop") + of(1, reason="stop")),
        (0.9, DONE),
        (0.9, None),
    ]
    record = run(Track(Timetable("a", steps), win_on=WinOn.ANSWER, fields={"n": 2}).run())
    assert record.ttft_ms == pytest.approx(700)


def test_a_call_ends_the_thoughts_before_it() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    steps: list[tuple[float, Step]] = [
        (0.1, delta("<think>I call it.")),
        (0.3, delta(tool_calls=[call])),
        (0.6, FINISH),
        (0.6, DONE),
        (0.6, None),
    ]
    assert run(Track(Timetable("a", steps), win_on=WinOn.ANSWER).run()).ttft_ms == pytest.approx(300)


def test_an_answer_that_is_all_thoughts_is_used_only_if_no_other_comes() -> None:
    thinks = telling("thinks", CHAT, (0.1, "<think>"), (0.2, "Hm."))
    assert run(Track(thinks, win_on=WinOn.ANSWER).run()).status_code == 200
    track = Track(thinks, telling("answers", CHAT, (0.9, "Noon.")), win_on=WinOn.ANSWER)
    run(track.run())
    assert track.outcomes == {"thinks": "lost", "answers": "won"}


def test_a_whole_answer_with_thoughts_in_its_text_is_gathered_as_it_is() -> None:
    thinks = telling("thinks", CHAT, *THINKING, (2.0, "It is noon. "), (2.1, "Bye."))
    track = Track(thinks, win_on=WinOn.ANSWER, sink=GatheringSink(CHAT), streamed=False)
    record = run(track.run())
    assert record.attempts[0].ttft_answer_ms == pytest.approx(2000)
    assert isinstance(track.sink, GatheringSink)
    content = msgspec.json.decode(track.sink.body())["choices"][0]["message"]["content"]
    assert content == "<think>Let me see. Well.</think>\n\nIt is noon. Bye."
