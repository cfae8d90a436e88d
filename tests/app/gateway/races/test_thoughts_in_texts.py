"""Thoughts within the text, over real sockets: whose text still thinks has not answered."""

import asyncio
import json

import pytest

from providers.simulator import Delta, Gate, Hang, answer
from tests.app.gateway.races.test_racing import hold
from tests.app.gateway.running_gateway import Serve

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
RACE = {"mode": "race", "win_on": "answer"}


@BOTH
async def test_who_still_thinks_in_the_text_loses_to_who_answers(serve: Serve, stream: bool) -> None:
    async with serve(thinks=[Delta("\n<th"), Delta("ink>"), Delta("Hm."), Hang()], answers=None) as running:
        running["answers"].script = [Gate(running["thinks"].requested), *answer("Noon.")]
        assert b"Noon." in await hold(running.chat(stream=stream, race=RACE))
        assert await running.outcomes() == {"thinks": "lost", "answers": "won"}


async def test_the_answer_is_timed_behind_the_thoughts_and_all_of_the_text_passes(serve: Serve) -> None:
    go_on = asyncio.Event()
    script = [Delta("<th"), Delta("ink>Hm."), Gate(go_on), Delta("</think>\n\n"), Delta("No"), *answer("on.")]
    async with serve(thinks=script) as running:
        async with running.chat(stream=True) as response:
            told = await response.content.readline()
            go_on.set()
            told += await response.read()
        events = [line[6:] for line in told.split(b"\n") if line.startswith(b"data: {")]
        texts = [choice["delta"].get("content") for line in events for choice in json.loads(line)["choices"]]
        assert [text for text in texts if text] == ["<th", "ink>Hm.", "</think>\n\n", "No", "on."]
        (attempt,) = await running.rows("select ttft_ms, ttft_answer_ms from attempts")
        assert attempt["ttft_answer_ms"] > attempt["ttft_ms"]


@BOTH
async def test_thoughts_that_a_template_begins_are_known_after_one_answer(serve: Serve, stream: bool) -> None:
    async with serve(thinks=[Delta("Hm, hm.\n"), Delta("</think>\n\n"), *answer("Noon.")], answers=[Hang()]) as running:
        assert b"Noon." in await hold(running.chat(stream=stream, race=RACE))
        running["thinks"].script = [Delta("Hm, hm.\n"), Hang()]
        asked = running["thinks"].requested
        asked.clear()
        running["answers"].script = [Gate(asked), *answer("It is noon.")]
        assert b"It is noon." in await hold(running.chat(stream=stream, race=RACE))
