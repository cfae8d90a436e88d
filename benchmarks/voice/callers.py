"""Callers, and the providers behind the gateway that they call: what is heard of each answer, and when."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import aiohttp
import msgspec

from gateway.racing.speech import Speech
from providers.simulator import (
    Delta,
    Done,
    Drop,
    Finish,
    Headers,
    Pause,
    RoleOnly,
    ScriptedProvider,
    Status,
    Step,
    UsageChunk,
    error,
)

FIRST_S, SIGMA, WORD_S = 0.55, 0.3, 0.025  # a first token, lognormal, and between two words
LATE, DRIBBLES, CRAWLS, RESETS = 0.04, 0.03, 0.02, 0.01  # shares of requests, each provider by itself
LATE_S, DRIBBLES_S, CRAWL_S = (5.0, 10.0), (3.7, 8.9), 1.6  # until the first token, the fifth word, between two words
SENTENCES, SHORT = 5, 0.12  # in an answer; the share of answers that begin with one of two words
LIMIT_S = 120.0
_WORDS = ("the", "train", "coast", "leaves", "at", "nine", "from", "an", "old", "platform", "passes", "some", "towns")


def said(number: int, provider: str) -> list[str]:
    """Return the words of a provider's own answer to a question."""
    dice = Random(f"{number} {provider}")
    words: list[str] = []
    for sentence in range(SENTENCES):
        length = 1 if not sentence and dice.random() < SHORT else dice.randint(7, 14)
        its = [f"{provider.capitalize()}{number}", *(dice.choice(_WORDS) for _ in range(length))]
        words += [*its[:-1], f"{its[-1]}."]
    return words


def script(words: Sequence[str], dice: Random, begun: int = 0) -> list[Step]:
    """Return an answer of these words from the one numbered ``begun`` on, with what is drawn to go wrong."""
    first_s, gaps_s, breaks_at = FIRST_S * dice.lognormvariate(0.0, SIGMA), [WORD_S] * len(words), len(words)
    drawn = dice.random()
    if drawn < LATE:
        first_s = dice.uniform(*LATE_S)
    elif drawn < LATE + DRIBBLES:
        gaps_s[1:5] = [dice.uniform(*DRIBBLES_S) / 4] * 4
    elif drawn < LATE + DRIBBLES + CRAWLS:
        crawls_at = dice.randint(1, 20)
        gaps_s[crawls_at:] = [CRAWL_S] * (len(words) - crawls_at)
    elif drawn < LATE + DRIBBLES + CRAWLS + RESETS:
        breaks_at = dice.randint(1, len(words) - 1)
    steps: list[Step] = [Headers(), Pause(first_s), RoleOnly()]
    for number, word in enumerate(words[begun:breaks_at]):
        spaced = word if begun + number == 0 else f" {word}"
        steps += [Pause(gaps_s[number]), Delta(spaced)] if number else [Delta(spaced)]
    return [*steps, Drop()] if breaks_at < len(words) else [*steps, Finish(), UsageChunk(), Done()]


class Provider(ScriptedProvider):
    """One of the two behind a model; the last message of the user is the number of a question."""

    def __init__(
        self, name: str, others: Sequence[str], *, continues: bool, seed: str, says_as: str | None = None
    ) -> None:
        """``others``: whose answers it may go on with, if it ``continues`` a text; ``says_as``: whose are its own."""
        super().__init__()
        self.answers = self._script
        self.asked = 0
        self._name, self._others, self._continues = says_as or name, others, continues
        self._dice = Random(seed)

    def _script(self, body: Any) -> Sequence[Step]:
        self.asked += 1
        last, number = body["messages"][-1], int(body["messages"][0]["content"])
        if last["role"] != "assistant":
            return script(said(number, self._name), self._dice)
        begun = last["content"].split()
        texts = [said(number, name) for name in self._others]
        found = next((words for words in texts if words[: len(begun)] == begun), None)
        if found is None or not self._continues:
            return [Status(400, error("The last message must not be an assistant's.", kind="invalid_request"))]
        return script(found, self._dice, len(begun))


class Heard(msgspec.Struct, frozen=True):
    """What one caller heard. Seconds from the request."""

    clause_s: float | None  # when the voice could begin
    silence_s: float  # the longest after that, until the answer's end
    is_whole: bool
    is_told: bool  # of an answer that is not whole: that it is not
    is_wrong: bool  # a word twice, or of two answers
    is_within: bool = False  # it is not whole, and ends within a sentence


class Caller:
    """The calls of one model."""

    def __init__(self, url: str, model: str, providers: Sequence[str], headers: Mapping[str, str]) -> None:
        self._url, self._model, self._providers = url, model, providers
        self._headers = dict(headers)

    async def run(self, http: aiohttp.ClientSession, calls: int, beside: int, seed: str) -> list[Heard]:
        """Make so many calls, so many ``beside`` each other."""
        dice, numbers, heard = Random(seed), iter(range(calls)), []

        async def call_on() -> None:
            for number in numbers:
                await asyncio.sleep(dice.uniform(0.0, 1.0))
                heard.append(await self._call(http, number))

        async with asyncio.TaskGroup() as group:
            for _ in range(beside):
                group.create_task(call_on())
        return heard

    async def _call(self, http: aiohttp.ClientSession, number: int) -> Heard:
        body = {"model": self._model, "stream": True, "messages": [{"role": "user", "content": str(number)}]}
        began_s, text, is_told, finished, done = time.monotonic(), "", False, False, False
        speech = Speech(lambda _: (), 12)
        try:
            async with (
                asyncio.timeout(LIMIT_S),
                http.post(f"{self._url}/v1/chat/completions", json=body, headers=self._headers) as response,
            ):
                is_told = response.status != 200
                async for line in response.content:
                    data = line.removeprefix(b"data: ").strip()
                    done = done or data == b"[DONE]"
                    if not data.startswith(b"{"):
                        continue
                    chunk = msgspec.json.decode(data)
                    is_told = is_told or "error" in chunk
                    for choice in chunk.get("choices", ()):
                        finished = finished or choice["finish_reason"] is not None
                        if piece := choice["delta"].get("content"):
                            text += piece
                            speech.add((piece,))
                    speech.came(time.monotonic(), is_over=finished, is_spoken=True)
        except (TimeoutError, aiohttp.ClientError):
            is_told = True
        ended_s = time.monotonic()
        texts = [" ".join(said(number, name)) for name in self._providers]
        is_whole = finished and done and not is_told
        return Heard(
            clause_s=None if speech.began_at is None else speech.began_at - began_s,
            silence_s=max(
                speech.listener.pause_s, 0.0 if is_whole or speech.began_at is None else ended_s - speech.listener.until
            ),
            is_whole=is_whole,
            is_told=is_told,
            is_within=not is_whole and bool(text) and not text.endswith("."),
            is_wrong=text not in texts if is_whole else not any(each.startswith(text) for each in texts),
        )
