"""Where no other could go on with it, a spoken answer that breaks off ends with a clause, and says that it broke."""

import asyncio
from typing import Any

import pytest

from providers.simulator import Delta, Done, Drop, Finish, Gate, JsonEvent, Step
from tests.app.gateway.running_gateway import Serve
from tests.app.gateway.takeover.test_spoken_rival import Heard, spoken
from tests.patience import until

SAID = "It is noon, and this takes the voice so long to say that nothing has to be hurried."
PIECES = [Delta(SAID), Delta(" And"), Delta(" the"), Delta(" next tr")]
ALONE = {"provider": {"order": ["alpha", "beta"]}}


@pytest.fixture(autouse=True)
def for_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold a clause until the test has looked: its machine may be busy."""
    monkeypatch.setattr("gateway.racing.rescue.CLAUSE_S", 600.0)
    monkeypatch.setattr("gateway.racing.rescue.LEAD_S", -600.0)


async def heard_of(serve: Serve, first: list[Step], config: Any = None, **fields: Any) -> Heard:
    config = spoken(mode="single") if config is None else config
    async with serve(alpha=first, beta=None, config=config) as running:
        return await Heard().listen(running, **ALONE, **fields)


TOOLS = [{"type": "function", "function": {"name": "trains"}}]


@pytest.mark.parametrize(
    ("config", "fields"), [(None, {}), (spoken(mode="single", continues="final_message"), {"tools": TOOLS})]
)
async def test_it_ends_with_a_clause_and_an_error(serve: Serve, config: Any, fields: Any) -> None:
    """Where no deployment continues a text, and where the request has tools, with which none is continued."""
    heard = await heard_of(serve, [*PIECES, Drop()], config, **fields)
    assert heard.text == SAID
    assert b'"error"' in heard.came
    assert b"[DONE]" not in heard.came


async def test_a_clause_that_has_ended_is_sent_before_the_error(serve: Serve) -> None:
    heard = await heard_of(serve, [*PIECES, Delta("ain leaves."), Drop()])
    assert heard.text == f"{SAID} And the next train leaves."
    assert b'"error"' in heard.came


@pytest.mark.parametrize(
    "config",
    [
        spoken(mode="single", whole_sentences=False),
        spoken(mode="single", takeover="never"),
        spoken(mode="single", continues="final_message"),
        spoken(profile="chat", mode="single", win_on="sentence", takeover="always"),
    ],
)
async def test_else_text_is_sent_as_it_comes(serve: Serve, config: Any) -> None:
    ends = asyncio.Event()
    heard = Heard()
    first = [*PIECES, Gate(ends), Delta("ain."), Finish(), Done()]
    async with serve(alpha=first, beta=None, config=config) as running:
        listening = asyncio.ensure_future(heard.listen(running, **ALONE))
        await until(lambda: heard.came and heard.text.endswith("next tr"))
        ends.set()
        await listening
        assert heard.is_whole


async def test_of_a_whole_answer_nothing_is_missing(serve: Serve) -> None:
    usage = {"stream_options": {"include_usage": True}}
    heard = await heard_of(serve, [*PIECES, Delta("ain leaves"), Finish(), Done()], **usage)
    assert (heard.text, heard.is_whole) == (f"{SAID} And the next train leaves", True)
    assert heard.came.count(b'finish_reason":"stop') == 1


async def test_a_call_of_a_tool_comes_behind_what_was_said(serve: Serve) -> None:
    call = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "trains", "arguments": "{}"}}
    calls = JsonEvent(
        {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}],
        }
    )
    heard = await heard_of(serve, [*PIECES, calls, Finish("tool_calls"), Done()])
    assert heard.text.endswith("next tr")
    assert heard.came.index(b"next tr") < heard.came.index(b"tool_calls")
    assert heard.is_whole


async def test_while_a_voice_has_nothing_else_to_say_text_waits_for_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What speaks a clause knows by the next word that it has ended."""
    monkeypatch.setattr("gateway.racing.rescue.LEAD_S", 1.0)
    monkeypatch.setattr("gateway.racing.rescue.SPOKEN_TICK_S", 600.0)
    ends, goes_on, heard = asyncio.Event(), asyncio.Event(), Heard()
    first = [Delta(SAID), Gate(ends), Delta(" And"), Gate(goes_on), Finish(), Done()]
    async with serve(alpha=first, beta=None, config=spoken(mode="single")) as running:
        listening = asyncio.ensure_future(heard.listen(running, **ALONE))
        await until(lambda: heard.came and heard.text == SAID)
        ends.set()
        await until(lambda: heard.text.endswith(" And"))
        goes_on.set()
        await listening


@pytest.mark.parametrize("fields", [{}, {"tools": TOOLS}])
async def test_an_unfinished_clause_is_sent_when_the_voice_needs_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, fields: Any
) -> None:
    monkeypatch.setattr("gateway.racing.rescue.SPOKEN_TICK_S", 0.02)
    ends, heard = asyncio.Event(), Heard()
    first = [*PIECES, Gate(ends), Delta("ain."), Finish(), Done()]
    async with serve(alpha=first, beta=None, config=spoken(mode="single")) as running:
        listening = asyncio.ensure_future(heard.listen(running, **ALONE, **fields))
        await until(lambda: heard.came and heard.text == SAID)
        monkeypatch.setattr("gateway.racing.rescue.LEAD_S", 600.0)
        await until(lambda: heard.text.endswith("next tr"))
        ends.set()
        await listening
        assert (heard.text, heard.is_whole) == (f"{SAID} And the next train.", True)
