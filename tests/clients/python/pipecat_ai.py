"""pipecat, a framework for voice agents: its node for language models, and how its sentences reach the voice."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import asyncio
import json
import urllib.request
from typing import Any

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import Frame, LLMContextFrame, LLMTextFrame, TextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.sentence import SentenceAggregator
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.tests.utils import run_test

from tests.clients.case import Feature, Suite, Target, equal, expect

suite = Suite("pipecat", "pipecat-ai")
logger.remove()  # it logs much

SENTENCE = {"x-holeshot-race": '{"mode": "race", "win_on": "sentence"}'}
SPEECH = "It is a quarter past three. Dr. Smith waits since 2.30 p.m. already! Shall we go?"


def node(target: Target, **options: Any) -> Any:
    """Return the node that speaks chat completions."""
    settings = OpenAILLMService.Settings(model=target.chat)
    return OpenAILLMService(
        **{
            "api_key": target.key,
            "base_url": target.openai,
            "settings": settings,
            "default_headers": SENTENCE,
            **options,
        }
    )


async def frames(processor: Any, said: str, tools: Any = None) -> tuple[list[Frame], list[Frame]]:
    """Return what comes out of a pipeline, downstream and upstream, when a user says something."""
    context = LLMContext([{"role": "user", "content": said}], **({"tools": tools} if tools else {}))
    down, up = await run_test(processor, frames_to_send=[LLMContextFrame(context)])
    return list(down), list(up)


def text_of(found: list[Frame], kind: type[Any] = LLMTextFrame) -> list[str]:
    """Return the texts of such frames."""
    return [frame.text for frame in found if isinstance(frame, kind)]


def leaderboard(target: Target) -> Any:
    """Return what the gateway publishes of the model's deployments."""
    address = f"{target.url}/leaderboard?model={target.chat}"
    request = urllib.request.Request(address, headers={"authorization": f"Bearer {target.key}"})
    with urllib.request.urlopen(request, timeout=20) as response:
        [board] = json.load(response)["models"]
    return board["deployments"]


@suite.case(Feature.STREAMING)
async def it_streams_what_it_is_to_say(target: Target) -> None:
    for name in ("nobody", "a", "b"):
        down, _ = await frames(node(target), f"say: {SPEECH}\nmumble: {name}")
        pieces = text_of(down)
        equal("".join(pieces), SPEECH)
        expect(len(pieces) > 3, pieces)


@suite.case(Feature.STREAMING)
async def its_voice_is_given_sentences(target: Target) -> None:
    down, _ = await frames(Pipeline([node(target), SentenceAggregator()]), f"say: {SPEECH}")
    sentences = text_of(down, TextFrame)
    equal(" ".join(each.strip() for each in sentences), SPEECH)
    equal(sentences[0].strip(), "It is a quarter past three.")


@suite.case(Feature.STREAMING)
async def the_time_to_its_first_sentences_is_measured(target: Target) -> None:
    for _ in range(3):
        await frames(node(target), f"say: {SPEECH}")
    if target.gateway:
        rows = await asyncio.to_thread(leaderboard, target)
        expect(sum(row["n_sentence"] for row in rows) >= 3, rows)
        expect(any(row["sentence_p50_ms"] for row in rows), rows)


@suite.case(Feature.TOOLS)
async def it_calls_a_function(target: Target) -> None:
    asked: list[Any] = []

    async def weather(call: Any) -> None:
        asked.append(call.arguments)
        await call.result_callback({"weather": "rain"})

    llm = node(target)
    llm.register_function("weather", weather)
    city = {"city": {"type": "string"}}
    tools = ToolsSchema([FunctionSchema("weather", "The weather in a city.", city, ["city"])])
    await frames(llm, 'call: weather {"city": "Oslo"}', tools)
    equal(asked, [{"city": "Oslo"}])


@suite.case(Feature.ERRORS)
async def a_wrong_key_is_an_error_frame(target: Target) -> None:
    _, up = await frames(node(target, api_key=target.wrong_key), "say: hi")
    expect(any("401" in str(getattr(frame, "error", "")) for frame in up), up)


if __name__ == "__main__":
    suite.main()
