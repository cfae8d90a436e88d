"""The cases, each in each framework. Run by ``python -m tests.clients.voice``, which installs these."""

# They are installed in an environment of their own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from livekit.agents import llm
from loguru import logger
from pipecat.frames.frames import InterruptionFrame, LLMContextFrame, LLMTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.tests.utils import SleepFrame, run_test

from holeshot import Racer
from holeshot.livekit import RacedLLM
from holeshot.pipecat import RacedLLMService
from providers.simulator import Delta, Done, Drop, Finish, Hang, Pause, ScriptedProvider, Status, Step, error
from tests.clients.installs import CHECKOUT

MODEL, NAMES = "speaker", ("ann", "bob")
BEGUN, REST = "Yes. And there", " is more of it."
PATIENCE_S = 60.0  # only ends what hangs
WHOLE: Sequence[Step] = (Delta(BEGUN), Delta(REST), Finish(), Done())
NEVER: Sequence[Step] = (Hang(),)
LATER = Pause(1.0)  # so that the other wins


class Standing(msgspec.Struct, frozen=True):
    """What the two providers do: to a request, and to one that has them continue the answer."""

    ann: Sequence[Step]
    bob: Sequence[Step]
    continuing: Sequence[Step] | None = None  # None: they refuse to
    text: str = BEGUN + REST


CASES: Mapping[str, Standing] = {
    "one is cold": Standing(NEVER, WHOLE),
    "one dribbles before its first clause": Standing((Delta("Well"), Delta(", so"), Hang()), WHOLE),
    "one refuses, and the other is cold at first": Standing((Status(503, error("no room")),), (LATER, *WHOLE)),
    "one stalls, and the other continues its text": Standing(
        (Delta(BEGUN), Hang()), NEVER, (Delta(" there"), Delta(REST), Finish(), Done())
    ),
    "one breaks, and the other continues its text": Standing(
        (Delta(BEGUN), Drop()), NEVER, (Delta(" there"), Delta(REST), Finish(), Done())
    ),
    "one stalls, and the other has said the same": Standing((Delta(BEGUN), Hang()), (LATER, *WHOLE)),
    "both are well": Standing(WHOLE, WHOLE),
}


@asynccontextmanager
async def before(standing: Standing) -> AsyncIterator[tuple[Mapping[str, Any], Sequence[ScriptedProvider]]]:
    """Yield settings of a Racer before the two."""
    providers = [ScriptedProvider(), ScriptedProvider()]
    for provider, usual in zip(providers, (standing.ann, standing.bob), strict=True):
        provider.answers = _scripts(usual, standing.continuing)
    async with providers[0], providers[1]:
        way = "no" if standing.continuing is None else "prefix"
        deployments = [{"deployment": f"{name}/m", "continues": way} for name in NAMES]
        settings = {
            "providers": {
                name: {"base_url": each.base_url, "api_key": "k"} for name, each in zip(NAMES, providers, strict=True)
            },
            "models": {MODEL: {"deployments": deployments, "race": {"profile": "voice"}}},
        }
        yield settings, providers


@asynccontextmanager
async def racing(standing: Standing) -> AsyncIterator[tuple[Racer, Sequence[ScriptedProvider]]]:
    """Yield a Racer before the two."""
    async with before(standing) as (settings, providers), Racer(**settings) as racer:
        yield racer, providers


def _scripts(usual: Sequence[Step], continuing: Sequence[Step] | None) -> Callable[[Any], Sequence[Step]]:
    refused = (Status(400, error("The last message must be the user's.", kind="invalid_request_error")),)

    def script(body: Any) -> Sequence[Step]:
        goes_on = body["messages"][-1]["role"] == "assistant"
        return usual if not goes_on else refused if continuing is None else continuing

    return script


# The frameworks: what a node says to a question, and how a caller interrupts it.


async def pipecat(racer: Racer, *, interrupts: bool = False) -> str:
    """Return what a pipeline is given to say."""
    then = (SleepFrame(1.0), InterruptionFrame()) if interrupts else ()
    asked = LLMContextFrame(LLMContext([{"role": "user", "content": "Is there more?"}]))
    down, _ = await run_test(RacedLLMService(racer, model=MODEL), frames_to_send=[asked, *then])
    return "".join(each.text for each in down if isinstance(each, LLMTextFrame))


async def livekit(racer: Racer, *, interrupts: bool = False) -> str:
    """Return what an agent is given to say."""
    context = llm.ChatContext.empty()
    context.add_message(role="user", content="Is there more?")
    node = RacedLLM(racer, MODEL)
    said = ""
    try:
        async with node.chat(chat_ctx=context) as stream:
            async for chunk in stream:
                said += chunk.delta.content or "" if chunk.delta else ""
                if interrupts:
                    break
    finally:
        await node.aclose()
    return said


FRAMEWORKS: Mapping[str, Callable[..., Awaitable[str]]] = {"pipecat": pipecat, "livekit": livekit}


async def says(framework: str, case: str) -> str | None:
    """Have a framework listen; return what is wrong."""
    standing = CASES[case]
    async with asyncio.timeout(PATIENCE_S), racing(standing) as (racer, _):
        said = await FRAMEWORKS[framework](racer)
    return None if said == standing.text else f"said {said!r}"


async def is_interrupted(framework: str) -> str | None:
    """Have a caller interrupt an answer that stalls; return which provider was not told."""
    standing = Standing((Delta(BEGUN), Hang()), (LATER, Delta(BEGUN), Hang()))
    async with asyncio.timeout(PATIENCE_S), racing(standing) as (racer, providers):
        await FRAMEWORKS[framework](racer, interrupts=True)
        for provider in providers:
            await provider.reach(disconnects=1)
    return None


async def runs_the_guides_program(framework: str) -> str | None:
    """Run the framework's program of the guide, beside a file with the two; return what is wrong."""
    guide = (CHECKOUT / "docs" / "guides" / "voice.md").read_text(encoding="utf-8")
    [program] = [each for each in _PYTHON.findall(guide) if f"from holeshot.{framework} import" in each]
    standing = CASES["one stalls, and the other has said the same"]
    async with asyncio.timeout(PATIENCE_S), before(standing) as (settings, _):
        with TemporaryDirectory() as folder:
            (Path(folder) / "config.yaml").write_text(msgspec.json.encode(settings).decode(), encoding="utf-8")
            ran = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, cwd=folder, stdout=PIPE, stderr=PIPE
            )
            said, complaint = (each.decode() for each in await ran.communicate())
    is_right = ran.returncode == 0 and "".join(said.split()) == "".join(standing.text.split())
    return None if is_right else f"said {said!r}: {complaint[-2000:]}"


_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


async def main() -> int:
    """Try everything; return the exit code."""
    wrong = 0
    for framework in FRAMEWORKS:
        trials = {case: says(framework, case) for case in CASES}
        trials["a caller interrupts"] = is_interrupted(framework)
        trials["the guide's program"] = runs_the_guides_program(framework)
        for case, trial in trials.items():
            try:
                problem = await trial
            except Exception as broken:  # noqa: BLE001 - whatever comes out of a framework
                problem = f"{type(broken).__name__}: {broken}"
            wrong += problem is not None
            sys.stdout.write(f"{framework}: {case}: {'as it must' if problem is None else problem}\n")
            sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    logger.remove()  # pipecat logs much
    sys.exit(asyncio.run(main()))
