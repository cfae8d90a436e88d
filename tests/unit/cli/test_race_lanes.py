"""Lanes: what is seen of a race, and how it is drawn."""

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from gateway.cli.race_lanes import Lanes, PrintedLane, read_text, verdict
from gateway.cli.race_run import RacePrompt
from gateway.cli.race_view import PlainView, RacePicture, rows, summary
from gateway.core.attempts import AttemptRecord, AttemptStart, Narrowed, Outcome, Role
from gateway.core.calls import Mode
from gateway.core.prompt_classes import answer_class
from gateway.racing import Block, ClientGone, Winner
from gateway.racing.reader import WholeEvents
from tests.unit.ledger.records import NOON, call, failed, lost, start_of, won

FAST, SLOW = "groq/llama", "together/llama"
NOT_LOOKED_AT: Any = None  # the call of an attempt


class Diary:
    """A spectator that remembers."""

    def __init__(self) -> None:
        self.said_: list[str] = []
        self.deaf = False

    def changed(self, lane: PrintedLane, at_ms: float) -> None:
        """Nothing to remember."""

    def text_added(self, text: str) -> None:
        if self.deaf:
            raise BrokenPipeError
        self.said_.append(text)


class VirtualRace:
    """Two lanes, and a clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.diary = Diary()
        self.lanes = Lanes(lambda: self.now_s, self.diary)
        self.fast = won("call", 1, id="1", deployment=FAST)
        self.slow = lost("call", 2, id="2", deployment=SLOW)
        self.record = call(self.fast, self.slow)
        starts = tuple(
            AttemptStart(each.id, each.number, NOON, each.role, each.provider, each.deployment, 0.0)
            for each in (self.fast, self.slow)
        )
        self.lanes.call_started(msgspec.structs.replace(start_of(self.record), attempts=starts))
        for each in starts:
            self.lanes.attempt_started(NOT_LOOKED_AT, each)

    async def claim(self, after_s: float = 0.2) -> None:
        """Let the first lane win."""
        self.now_s += after_s
        self.lanes.first_token("llama", answer_class(0), self.lanes.lanes[0].start, after_s, 0.0)
        self.lanes.attempt_ended("llama", answer_class(0), self.slow, 0.0)
        nothing: Any = None  # not looked at
        winner = Winner("groq", FAST, 2, after_s * 1000, 0.1, nothing, nothing)
        await self.lanes.begin(winner)

    async def say(self, *tokens: str, kind: str = "content") -> None:
        """Let the winner say something."""
        for token in tokens:
            data = b"data: " + msgspec.json.encode({"choices": [{"index": 0, "delta": {kind: token}}]}) + b"\n\n"
            await self.lanes.write(Block(data, (WholeEvents(data, None),)))

    def finish(self) -> None:
        """End the call."""
        self.lanes.attempt_ended("llama", answer_class(0), self.fast, 0.0)
        self.lanes.call_finished(self.record)

    def drawn(self, width: int = 100, height: int = 20, encoding: str = "utf-8", shown: Any = "tail") -> list[str]:
        """Return the picture, line by line."""
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        console = Console(file=file, width=width, height=height, color_system=None, legacy_windows=False)
        console.print(RacePicture(self.lanes, shown))
        file.flush()
        buffer: Any = file.buffer
        return [line.rstrip() for line in buffer.getvalue().decode(encoding).splitlines()]


def test_a_lane_runs_from_its_launch_until_it_is_cut() -> None:
    race = VirtualRace()
    race.now_s += 0.1

    first, second, *_ = race.drawn()

    assert first.startswith("groq/llama      primary  ━")
    assert first.endswith("100 ms  launched")
    assert second.startswith("together/llama  race     ━")


async def test_the_winner_runs_on_and_the_loser_shows_where_it_was_cancelled() -> None:
    race = VirtualRace()
    await race.claim()
    race.now_s += 0.05

    first, second, *_ = race.drawn()

    assert "●━" in first
    assert "200 ms  won" in first
    assert "✕" in second
    assert second.endswith("200 ms  cancelled")


async def test_the_speed_of_the_winner_is_estimated_until_its_row_says_it() -> None:
    race = VirtualRace()
    await race.claim()
    await race.say(*["word "] * 21)
    race.now_s += 0.5

    assert race.drawn()[0].endswith("won, ~40 tok/s")
    race.finish()
    assert race.drawn()[0].endswith("won, 60 tok/s")


async def test_the_answer_follows_and_of_a_long_one_the_end_is_shown() -> None:
    race = VirtualRace()
    await race.claim()
    await race.say(*(f"line {number}\n" for number in range(30)), "the end")

    picture = race.drawn(height=12)

    assert picture[-1] == "the end"
    assert len(picture) < 12
    assert "line 0" not in picture
    assert "line 0" in race.drawn(height=12, shown="whole")


async def test_a_narrow_terminal_loses_the_bar_before_the_facts() -> None:
    race = VirtualRace()
    await race.claim()

    first, second, *_ = race.drawn(width=44)

    assert all(len(line) <= 44 for line in (first, second))
    assert "━" not in first
    assert "200 ms" in first
    assert second.endswith("cancelled")


async def test_a_terminal_without_unicode_gets_letters() -> None:
    race = VirtualRace()
    await race.claim()

    first, second, *_ = race.drawn(encoding="ascii")

    assert "-o" in first
    assert "-x" in second


def test_a_failed_lane_names_its_cause() -> None:
    race = VirtualRace()
    race.lanes.attempt_ended("llama", answer_class(0), failed("call", 2, id="2", deployment=SLOW), 0.0)

    assert race.drawn()[1].endswith("server_error 503")


def test_a_hedge_starts_where_it_was_launched() -> None:
    race = VirtualRace()
    race.now_s += 0.1
    hedge = AttemptStart("3", 3, NOON, Role.HEDGE, "openai", "openai/gpt", 100.0)
    race.lanes.attempt_started(NOT_LOOKED_AT, hedge)
    race.now_s += 0.05

    line = race.drawn()[2]

    assert line.startswith("openai/gpt      hedge         ")
    assert line.endswith("50 ms  launched")


async def test_a_model_cannot_steer_the_terminal() -> None:
    race = VirtualRace()
    await race.claim()
    await race.say("\x1b[2J", "\x9b", "safe\ttext")

    assert "\x1b" not in "".join(race.drawn())


async def test_reasoning_is_shown_but_is_no_part_of_the_answer() -> None:
    race = VirtualRace()
    await race.claim()
    await race.say("Hm.", kind="reasoning_content")
    await race.say("Yes.")

    assert (race.lanes.thoughts, race.lanes.answer) == ("Hm.", "Yes.")
    assert race.diary.said_ == ["Yes."]
    assert race.drawn()[-3:] == ["Hm.", "", "Yes."]


async def test_a_spectator_that_left_is_a_client_that_is_gone() -> None:
    race = VirtualRace()
    await race.claim()
    race.diary.deaf = True

    with pytest.raises(ClientGone):
        await race.say("Hello")


async def test_racing_against_itself_the_lane_with_the_token_wins() -> None:
    race = VirtualRace()
    for lane in race.lanes.lanes:
        lane.start = msgspec.structs.replace(lane.start, deployment=FAST)
    first, second = race.lanes.lanes
    second.first_token_ms = 50.0

    nothing: Any = None  # not looked at
    await race.lanes.begin(Winner("groq", FAST, 2, 50.0, 0.1, nothing, nothing))

    assert (first.won, second.won) == (False, True)


def test_text_is_found_in_parts_and_refusals_too() -> None:
    def event(delta: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"choices": [{"delta": delta}]})

    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    assert read_text(event({"content": parts})) == ("", "yes")
    assert read_text(event({"refusal": "no"})) == ("", "no")
    assert read_text(event({"reasoning": "a", "reasoning_content": "a"})) == ("a", "")
    assert read_text(b'{"choices": []}') == ("", "")


def test_the_summary_has_the_figures_that_are_known() -> None:
    record = call(won("c", 1), lost("c", 2), ttft_ms=123.4, total_ms=12_345.0, completion_tokens=80, launched=2)

    assert summary(record) == "TTFT 123 ms · total 12.3 s · 60.0 tok/s · 80 tokens · 2 launched"
    priced = msgspec.structs.replace(record, cost_usd=0.00012, duplicate_cost_usd=0.00002)
    assert summary(priced).endswith("2 launched · $0.000120, losers $0.000020")


def ended(*attempts: AttemptRecord, ttft_ms: float, still_running: int = 0, **facts: Any) -> Lanes:
    """Lanes of a call that has ended; the first ``still_running`` attempts are audited and run on."""
    lanes = Lanes(lambda: 100.0, Diary())
    starts = tuple(
        AttemptStart(each.id, each.number, NOON, each.role, each.provider, each.deployment, each.launch_offset_ms)
        for each in attempts
    )
    done = attempts[still_running:]
    record = call(*done, ttft_ms=ttft_ms, launched=len(attempts), **facts)
    lanes.call_started(msgspec.structs.replace(start_of(record), attempts=starts))
    for each in starts:
        lanes.attempt_started(NOT_LOOKED_AT, each)
    lanes.call_finished(record)
    return lanes


def test_a_race_ends_with_what_it_was_worth_against_the_first_choice_alone() -> None:
    watched = lost("c", 1, outcome=Outcome.SUPERSEDED, ttft_ms=823.0, censored_at_ms=None)
    fast = won("c", 2, ttft_ms=410.0)
    assert verdict(ended(watched, fast, ttft_ms=410.0)) == "413 ms sooner than the first choice alone"
    silent = "more than 490 ms sooner than the first choice alone, which has no token yet"
    assert verdict(ended(watched, fast, ttft_ms=410.0, still_running=1)) == silent
    cut = "the first choice was overtaken, and cancelled before its first token: by how much is not known"
    assert verdict(ended(lost("c", 1), fast, ttft_ms=410.0)) == cut


def test_a_race_that_its_first_choice_won_or_lost_by_a_failure_says_so() -> None:
    next_one = lost("c", 2, outcome=Outcome.SUPERSEDED, ttft_ms=320.0, launch_offset_ms=3.0, censored_at_ms=None)
    assert verdict(ended(won("c", 1), next_one, ttft_ms=200.0)) == "the first choice answered, 123 ms before the next"
    assert verdict(ended(won("c", 1), lost("c", 2), ttft_ms=200.0)) == "the first choice answered"
    broken, other = failed("c", 1), won("c", 2, ttft_ms=300.0)
    assert verdict(ended(broken, other, ttft_ms=300.0, alone_ms=450.0)) == (
        "the first choice failed: 150 ms sooner than asking another only then"
    )
    assert verdict(ended(broken, other, ttft_ms=300.0, alone_ms=300.0)) == (
        "the first choice failed, and another answered"
    )


def test_a_call_with_one_attempt_is_not_called_a_race_and_one_without_an_answer_was_worth_nothing() -> None:
    assert verdict(ended(won("c", 1), ttft_ms=200.0)) == "one attempt: nobody raced"
    narrowed = ended(won("c", 1), ttft_ms=200.0, narrowed=Narrowed.NO_RIVAL_WORTH_IT)
    assert verdict(narrowed) == "one attempt: nobody raced (no rival worth it)"
    assert verdict(ended(failed("c", 1), failed("c", 2), ttft_ms=0.0)) is None
    assert verdict(VirtualRace().lanes) is None


def test_the_podium_counts_wins_and_takes_the_ttft_of_all_calls_last() -> None:
    calls = [
        call(won("a", 1, deployment=FAST, ttft_ms=100.0), lost("a", 2, deployment=SLOW), ttft_ms=110.0),
        call(won("b", 1, deployment=FAST, ttft_ms=300.0), lost("b", 2, deployment=SLOW), ttft_ms=310.0),
        call(failed("c", 1, deployment=FAST), won("c", 2, deployment=SLOW, ttft_ms=200.0), ttft_ms=900.0),
        call(failed("d", 1, deployment=FAST), ttft_ms=None),
    ]

    assert [row[:6] for row in rows(calls)] == [
        (FAST, 4, 2, 0, 2, 200.0),
        (SLOW, 3, 1, 2, 0, 200.0),
        ("all", 7, 3, 2, 2, 310.0),
    ]


def test_a_question_is_a_streamed_chat_completion() -> None:
    body = RacePrompt("llama", "Why?", system="Be brief.", max_tokens=9, width=3).request()

    assert (body.stream, body.model, body.race.mode, body.race.width) == (True, "llama", Mode.RACE, 3)
    assert msgspec.json.decode(body.fields["messages"]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]
    assert bytes(body.fields["max_tokens"]) == b"9"


def test_a_question_leaves_to_the_model_what_is_not_said() -> None:
    body = RacePrompt("llama", "Why?").request()

    assert (body.race.mode, body.race.width) == (None, None)
    assert "max_tokens" not in body.fields


def test_a_call_that_its_client_left_says_so() -> None:
    race = VirtualRace()
    gone = lost("call", 1, id="1", deployment=FAST, outcome=Outcome.CLIENT_GONE)
    race.lanes.attempt_ended("llama", answer_class(0), gone, 0.0)

    assert race.drawn()[0].endswith("left")


def test_no_time_is_shown_of_a_failed_attempt_that_only_its_row_tells_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lanes = ended(failed("c", 1, deployment=FAST), won("c", 2, deployment=SLOW), ttft_ms=300.0, total_ms=9_000.0)
    lanes.lanes[1].first_token_ms = 300.0
    race = VirtualRace()
    race.lanes = lanes
    view = PlainView(progress=True)
    view.begins(lanes)

    assert "–  server_error 503" in race.drawn()[0]  # noqa: RUF001 - as printed
    assert race.drawn()[0].index("✕") == race.drawn()[1].index("●")  # where it was launched: the scale is 20 s
    view.changed(lanes.lanes[0], 0.0)
    assert capsys.readouterr().err.endswith("server_error 503\n")


def test_no_line_of_progress_stands_within_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    race = VirtualRace()
    fast, slow = race.lanes.lanes
    view = PlainView(progress=True)
    view.begins(race.lanes)
    view.changed(fast, 1.0)
    assert FAST in capsys.readouterr().err

    view.text_added("Hel")
    view.changed(slow, 2.0)
    view.text_added("lo")
    assert capsys.readouterr() == ("Hello", "")

    view.ends(race.lanes)
    assert SLOW in capsys.readouterr().err
