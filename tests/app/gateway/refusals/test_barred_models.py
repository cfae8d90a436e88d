"""A key that may not ask the model: others answer, and the deployment is left alone meanwhile."""

import pytest

from providers.simulator import Status, answer
from tests.app.gateway.refusals.test_meanings import asked
from tests.app.gateway.refusals.test_told_meanings import openai
from tests.app.gateway.running_gateway import MODEL, Serve

pytestmark = pytest.mark.asyncio(loop_scope="module")
BARRED: Status = openai(403, "Project `proj_1` does not have access to model `m`", "model_not_found")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", ["single", "race"])
async def test_another_deployment_answers_and_is_asked_alone_from_then_on(
    serve: Serve, mode: str, *, stream: bool
) -> None:
    config = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": mode}}}}
    async with serve(alpha=[BARRED], beta=answer("well"), config=config) as running:
        running.prefer("alpha", "beta")
        for _ in range(3):
            assert (await asked(running, "chat", stream=stream))[0] == 200
        assert len(running["alpha"].received) == 1


async def test_a_fallback_answers(serve: Serve) -> None:
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["spare"]},
        "spare": {"deployments": ["beta/m"]},
    }
    async with serve(alpha=[BARRED], beta=answer("well"), config={"models": models}) as running:
        assert (await asked(running, "chat"))[0] == 200
