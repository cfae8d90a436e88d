"""pipecat, with ``holeshot.pipecat``: its own service directly, and raced in this process by the same cases."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import Frame, InterruptionFrame, LLMContextFrame, LLMTextFrame, MetricsFrame
from pipecat.metrics.metrics import LLMUsageMetricsData, TTFBMetricsData
from pipecat.pipeline.worker import PipelineParams
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.tests.utils import SleepFrame, run_test

from holeshot.pipecat import RacedLLMService
from tests.clients.case import Feature, Suite, Target, equal, expect
from tests.clients.racing import racing

suite = Suite("pipecat-raced", "pipecat-ai")
logger.remove()  # it logs much


@asynccontextmanager
async def node(target: Target, model: str | None = None) -> AsyncIterator[Any]:
    """Yield the node: pipecat's own, or the raced one."""
    async with racing(target) as racer:
        if racer is not None:
            yield RacedLLMService(racer, model=model or target.chat)
        else:
            settings = OpenAILLMService.Settings(model=model or target.chat)
            yield OpenAILLMService(api_key=target.key, base_url=target.openai, settings=settings)


async def frames(processor: Any, said: str, tools: Any = None, then: tuple[Frame, ...] = ()) -> list[Frame]:
    """Return what comes out of a pipeline when a user says something."""
    context = LLMContext([{"role": "user", "content": said}], **({"tools": tools} if tools else {}))
    measured = PipelineParams(enable_metrics=True, enable_usage_metrics=True)
    sent = [LLMContextFrame(context), *then]
    down, up = await run_test(processor, frames_to_send=sent, pipeline_params=measured)
    return [*down, *up]


@suite.case(Feature.STREAMING)
async def it_streams_and_measures_what_it_is_to_say(target: Target) -> None:
    async with node(target) as llm:
        found = await frames(llm, "say: It is a quarter past three.")
    equal("".join(each.text for each in found if isinstance(each, LLMTextFrame)), "It is a quarter past three.")
    measured = [data for each in found if isinstance(each, MetricsFrame) for data in each.data]
    expect(any(data.value > 0 for data in measured if isinstance(data, TTFBMetricsData)), measured)
    expect(
        any(data.value.completion_tokens > 3 for data in measured if isinstance(data, LLMUsageMetricsData)), measured
    )


@suite.case(Feature.ANSWERS)
async def it_answers_beside_the_pipeline(target: Target) -> None:
    async with node(target) as llm:
        equal(await llm.run_inference(LLMContext([{"role": "user", "content": "say: hello you"}])), "hello you")


@suite.case(Feature.TOOLS)
async def it_calls_functions(target: Target) -> None:
    asked: list[Any] = []

    async def weather(call: Any) -> None:
        asked.append(call.arguments)
        await call.result_callback({"weather": "rain"})

    city = {"city": {"type": "string"}}
    tools = ToolsSchema([FunctionSchema("weather", "The weather in a city.", city, ["city"])])
    async with node(target) as llm:
        llm.register_function("weather", weather)
        await frames(llm, 'call: weather {"city": "Oslo"}\ncall: weather {"city": "Rome"}', tools)
    equal(asked, [{"city": "Oslo"}, {"city": "Rome"}])


@suite.case(Feature.TASK)
async def an_interruption_ends_an_answer(target: Target) -> None:
    async with asyncio.timeout(60), node(target) as llm:  # what it leaves behind at the upstream is counted there
        found = await frames(llm, "slow: 300", then=(SleepFrame(0.3), InterruptionFrame()))
    equal([each for each in found if isinstance(each, LLMTextFrame)], [])


@suite.case(Feature.ERRORS)
async def an_error_is_a_frame(target: Target) -> None:
    async with node(target, target.troubled_model("chat")) as llm:
        found = await frames(llm, "fail: 400")
    expect(any("400" in str(getattr(each, "error", "")) for each in found), found)


if __name__ == "__main__":
    suite.main()
