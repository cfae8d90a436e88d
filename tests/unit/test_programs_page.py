"""The page of programs and vendors: made of what is kept, of which a run replaces only its own cells."""

import datetime as dt
import json
import re
from pathlib import Path

import msgspec
import pytest

from strict_vendors import Served, made
from tests.clients import kept, mixed
from tests.clients.conversation import (
    BROKEN,
    BROKEN_CALL,
    FILTERED,
    LAST,
    LETTERS,
    SHORT,
    STORY,
    UNFINISHED,
    WRONG,
    Lost,
    Turns,
    forecast,
    turns,
    weather,
)
from tests.clients.matrix import Matrix, Talked, page_of
from tests.clients.places import DIRECTLY, MIXED, SETUPS, Exchange, listen, said

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "programs.md"


def talked(client: str, setup: str, day: str, *, place: str = "openai gpt-5", why: str = "") -> Talked:
    at = dt.datetime.fromisoformat(f"{day}T12:30+00:00").timestamp()
    return Talked(
        client, "1.0", "chat", "chat", f"{place}|{setup}", int(bool(why)), refused=False, why=why, began=at, ended=at
    )


def test_a_run_replaces_its_own_cells_and_all_others_stay_with_their_days(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.touch()
    kept.keep([talked("aider", "directly", "2026-01-01"), talked("aider", "alone", "2026-01-01", why="<a|b>")], file)
    kept.keep([talked("codex", "alone", "2026-01-02", place="groq openai/gpt-oss-120b")], file)
    before = file.read_text().splitlines()

    kept.keep([talked("aider", "alone", "2026-01-03")], file)

    page = page_of(kept.read(file))
    assert "| openai | `gpt-5` | ✓✓.. | 2026-01-01 to 2026-01-03 |" in page
    assert "| groq | `openai/gpt-oss-120b` | -✓.. | 2026-01-02 |" in page
    assert file.read_text().splitlines()[1] == before[1]


def test_a_failure_is_kept_in_the_words_of_the_page(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.touch()
    kept.keep([talked("aider", "directly", "2026-01-01"), talked("aider", "alone", "2026-01-01", why="<a|b>")], file)
    once = file.read_bytes()

    kept.keep([], file)

    assert file.read_bytes() == once
    assert "- **aider, chat** (openai gpt-5 alone, turn 1): &lt;a\\|b>" in page_of(kept.read(file))


def test_a_model_that_is_no_longer_tried_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.touch()

    kept.keep([talked("aider", "alone", "2026-01-01", place="openai gpt-2")], file)

    assert kept.read(file) == []


def test_the_page_is_made_of_what_is_kept() -> None:
    assert PAGE.read_text() == page_of(kept.read())


def test_refusals_that_nobody_heard_of_are_told() -> None:
    matrix = Matrix(SETUPS)
    refusal = f"anthropic-a: {said({'type': 'error', 'error': {'message': 'no forced tools'}})}"
    matrix.add([msgspec.structs.replace(talked("codex", "alone", "2026-01-01"), refusals=(refusal, refusal))])
    matrix.add([talked("aider", "alone", "2026-01-01")])
    assert [talk.client for talk in matrix.unheard] == ["codex"]
    assert "codex: chat (openai gpt-5 alone), turn 0: anthropic-a: no forced tools (2)" in matrix.as_text()
    assert "2 refusals behind gateways" in matrix.as_text()


def test_a_refusal_that_another_answer_hid_is_a_mark_and_its_words_are_on_the_page(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.touch()
    hidden = ("openai-a: no <sampling> for req_0123456789", "openai-a: no <sampling> for req_9876543210")
    talk = msgspec.structs.replace(talked("aider", "alone", "2026-01-01"), refusals=hidden)
    matrix = Matrix(SETUPS)
    matrix.add([talk])
    kept.keep([talk, talked("aider", "directly", "2026-01-01")], file)

    assert '"verdict": "unheard"' in json.dumps(matrix.as_json())
    assert not matrix.failed
    page = page_of(kept.read(file))
    assert "| openai | `gpt-5` | ✓!.. | 2026-01-01 |" in page
    assert "- **aider, chat** (openai gpt-5 alone): openai-a: no &lt;sampling> for req_… (2)" in page


def test_a_refusal_on_a_websocket_is_one() -> None:
    exchanges: list[Exchange] = []
    vendor = made("openai")
    listen(Served(vendor, ""), "openai-a", exchanges)

    for fields in ({"temperature": 0.5}, {}):
        vendor.hear({"type": "response.create", "model": "gpt-5", "input": "Hi", **fields}, {})

    assert [each.status for each in exchanges] == [400, 200]
    assert "temperature" in said(exchanges[0].answered)


def test_both_stand_ins_of_a_vendor_are_accounts_of_their_own() -> None:
    assert made("anthropic").account != made("anthropic", key="another").account
    assert made("anthropic", account="one", key="another").account == made("anthropic", account="one").account


def test_a_model_of_several_vendors_has_one_mark(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.touch()
    race, change, *_ = mixed.MIXES
    kept.keep([talked("aider", MIXED, "2026-01-01", place=race.name)], file)
    kept.keep([talked("aider", MIXED, "2026-01-02", place=change.name, why="lost")], file)

    page = page_of(kept.read(file))
    assert f"| four-apis | `{race.model}` | ✓ | 2026-01-01 |" in page
    assert f"| change | `{change.model}` | ✗ | 2026-01-02 |" in page


def test_who_fails_in_some_turns_begins_with_what_follows_the_first_answer() -> None:
    vendor = made("mistral")
    mixed.Outage(Served(vendor, ""), range(2, 4))

    def asked(body: str) -> int:
        return vendor.answer("POST", "/v1/chat/completions", {}, body.encode()).status

    told = [asked("Turn 1: x"), asked("Turn 2: x"), asked("Turn 1: Turn 2: x"), asked("no turn"), asked("Turn 3: x")]
    assert [status == 503 for status in told] == [False, False, True, True, True]
    assert asked("Turn 4: x") != 503
    assert vendor.answer("GET", "/v1/models", {}).status != 503


def test_who_is_seldom_asked_in_a_race_is_told() -> None:
    race, change, *_ = mixed.MIXES
    asked = {"mistral": 30, "anthropic": 15, "openai": 14}
    assert race.seldom(asked) == ["openai: asked 14 times of 30", "google: asked 0 times of 30"]
    assert change.seldom({"mistral": 30}) == []


def test_a_long_session_prints_much_and_has_compacted_by_its_end() -> None:
    session = turns(lambda number: (("sh", {"cmd": f"printf 'rain {number}'"}),) * 2, long=True)
    assert f"printf '%0{LETTERS}d rain 1'" in session[0].text
    assert not any(turn.cut or turn.picture for turn in session)
    session[0].ends_with("turns 1, results 2, pictures 0")
    session[-1].ends_with(f"turns 2, results {LAST}, pictures 0")
    for words in (f"turns {LAST}, results {2 * LAST}, pictures 0", "I am lost."):
        with pytest.raises(Lost):
            session[-1].ends_with(words)


def asked_in_turn(number: int) -> bytes:
    said = [{"role": "user", "content": f"Turn {each}: say: hello"} for each in range(1, number + 1)]
    return json.dumps({"model": "gpt-5", "input": said}).encode()


def test_a_filter_refuses_one_turn_as_its_vendor_does() -> None:
    for name, path, words in (
        ("openai", "/v1/responses", "invalid_prompt"),
        ("anthropic", "/v1/messages", "Output blocked by content filtering policy"),
        ("google", "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse", "PROHIBITED_CONTENT"),
    ):
        mix = next(mix for mix in mixed.MIXES if mix.goes == FILTERED and mix.parts[0].vendor == name)
        vendor = made(name)
        mixed.fail(mix, [Served(vendor, "")])
        told = [str(vendor.answer("POST", path, {}, asked_in_turn(number))) for number in (WRONG - 1, WRONG, WRONG + 1)]
        assert [words in each for each in told] == [False, True, False], name


class Talking:
    """A program that loses the turn in which something goes wrong, ``often`` times, and shows ``words``."""

    def __init__(self, often: int, words: str = "") -> None:
        self.said: list[str] = []
        self._often, self._words = often, words

    def say(self, text: str, **_: bool) -> str:
        number = int(text.removeprefix("Turn ").partition(":")[0])
        self.said.append(text)
        if number != WRONG:
            return f"turns {number}, results 3, pictures 0"
        if self.said.count(text) <= self._often:
            raise Lost(self._words)
        return STORY


def test_a_lost_turn_is_said_again_and_told_at_the_end() -> None:
    for goes in (BROKEN, UNFINISHED, SHORT):
        had = Turns(sees=True, parallel=True, long=False, goes=goes)
        had.hold(weather, Talking(0).say)
        with pytest.raises(Lost, match=f"turn {WRONG} was lost: reset"):
            had.hold(weather, Talking(1, "reset").say)
        assert had.at == LAST
        with pytest.raises(Lost, match="reset"):
            had.hold(weather, Talking(2, "reset").say)
        assert had.at == WRONG


def test_a_program_that_loses_a_turn_gets_back_what_was_said() -> None:
    had = Turns(sees=True, parallel=True, long=False, goes=BROKEN)
    said: list[str] = []
    tried: list[int] = []

    def talk() -> None:
        for turn in had:
            with had.held(said, (ValueError, Lost)):
                said.append(turn.says)
                tried.append(turn.number)
                if tried == list(range(1, WRONG + 1)):
                    raise ValueError("reset")
                turn.ends_with(turn.says)

    with pytest.raises(Lost, match=f"turn {WRONG} was lost: ValueError: reset"):
        talk()
    assert len(said) == LAST
    assert tried.count(WRONG) == 2


def test_a_program_forgets_what_was_said_when_it_is_too_long() -> None:
    had = Turns(sees=True, parallel=True, long=True, goes="")
    said = ["system"]
    refused = []
    for turn in had:
        with had.held(said, ValueError, lambda why: "long" in str(why)):
            said.append(turn.says)
            if len(said) == LAST:
                refused.append(turn.number)
                raise ValueError("too long")
    assert refused == [LAST - 1]
    assert said == ["system", turns()[LAST - 2].says.replace("pictures 1", "pictures 0"), turn.says]
    with pytest.raises(ValueError, match="wrong"), had.held(said, ValueError, lambda why: "long" in str(why)):
        raise ValueError("wrong")


def test_the_tools_of_a_long_session_say_much_without_a_shell_too() -> None:
    asked = re.search(r'"city": "(.*?)"', turns(long=True)[0].text)
    assert asked is not None
    assert len(forecast(asked[1])) == LETTERS
    assert forecast(asked[1]).startswith("rain in Oslo.")


def test_a_call_breaks_off_once_and_the_turn_is_told_as_any_other() -> None:
    turn = turns(goes=BROKEN_CALL)[WRONG - 1]
    vendor = made("mistral")
    asked = {
        "model": "mistral-large-latest",
        "messages": [{"role": "user", "content": turn.text}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
    }
    replies = [
        vendor.answer(
            "POST", "/v1/chat/completions", {"authorization": f"Bearer {vendor.key}"}, json.dumps(asked).encode()
        )
        for _ in range(2)
    ]
    assert [reply.breaks for reply in replies] == [True, False]
    assert all(reply.body["choices"][0]["message"]["tool_calls"] for reply in replies)
    turn.ends_with(f"turns {WRONG}, results {2 * WRONG}, pictures 0")


def test_what_was_filtered_is_shown_and_not_said_again() -> None:
    program = Talking(9, "your prompt was flagged")
    had = Turns(sees=True, parallel=True, long=False, goes=FILTERED)
    had.hold(weather, program.say)
    assert len(program.said) == LAST
    with pytest.raises(Lost, match="does not show"):
        had.hold(weather, Talking(9, "something is wrong").say)


@pytest.mark.parametrize(
    ("directly", "behind", "is_defect"),
    [(0, LAST, True), (LAST, LAST, False), (LAST, WRONG, True), (WRONG, LAST, False)],
)
def test_what_ends_earlier_than_directly_is_a_defect(directly: int, behind: int, is_defect: bool) -> None:
    mix = next(mix for mix in mixed.MIXES if mix.goes)
    matrix = Matrix(SETUPS)
    for setup, turn in ((DIRECTLY, directly), (MIXED, behind)):
        talk = talked("pi", setup, "2026-01-01", place=mix.name, why="lost" if turn else "")
        matrix.add([msgspec.structs.replace(talk, turn=turn)])
    assert bool(matrix.defects) == is_defect


def test_a_turn_that_is_lost_where_the_api_is_another_is_measured_at_the_vendor_that_has_it() -> None:
    its, other = [mix for mix in mixed.MIXES if mix.goes == BROKEN][:2]
    for why, ended in (("lost", LAST), ("lost", WRONG), ("lost", 1), ("", LAST)):
        matrix = Matrix(SETUPS)
        for place, setup, words, turn in ((its, DIRECTLY, why, ended), (other, MIXED, "lost", LAST)):
            talk = talked("pi", setup, "2026-01-01", place=place.name, why=words)
            matrix.add([msgspec.structs.replace(talk, turn=turn)])
        assert bool(matrix.defects) == (not why or ended < WRONG)


def test_what_a_small_context_does_not_hold_is_refused_on_purpose() -> None:
    for context, seen in ((0, [200]), (1, [])):
        exchanges: list[Exchange] = []
        vendor = made("openai", context=context)
        listen(Served(vendor, ""), "openai", exchanges)
        vendor.hear({"type": "response.create", "model": "gpt-5", "input": "Hello"}, {})
        body = b'{"model": "gpt-5", "input": "Hello"}'
        vendor.answer("POST", "/v1/responses", {"authorization": f"Bearer {vendor.key}"}, body)
        assert [each.status for each in exchanges] == seen * 2
        assert len(vendor.refusals) == (0 if seen else 2)


def test_a_gateway_that_is_told_the_context_refuses_by_itself() -> None:
    small, stated = (next(mix for mix in mixed.MIXES if mix.vendor == word) for word in (mixed.SMALL, mixed.STATED))
    assert (small.holds, stated.holds) == (mixed.CONTEXT, 0)
    served = [Served(made("openai"), "")]
    told = mixed.configuration(stated, served, Path())["models"]["gpt-5.5"]["deployments"]
    assert told == [{"deployment": "openai/gpt-5.5", "capabilities": {"context_tokens": stated.context}}]


def test_a_refused_program_has_to_stop_and_to_show_why(tmp_path: Path) -> None:
    mix = next(mix for mix in mixed.MIXES if mix.vendor == mixed.UNKNOWN)
    assert mix.stopped("Lost: Invalid API key", 1) == ""
    assert mix.stopped("Lost: Invalid API key", 2)
    assert mix.stopped("", 10)
    matrix = Matrix(SETUPS)
    matrix.add([talked("codex", MIXED, "2026-01-01", place=mix.name)])
    log = tmp_path / mix.name.replace(" ", "-") / "log"
    log.parent.mkdir()
    for count, is_too_many in ((mixed.MOST_REFUSED, False), (1, True)):
        with log.open("a") as file:
            file.write(json.dumps({"event": "request.refused", "count": count}) + "\n")
        assert bool(matrix.asked_again(log)) == is_too_many
