"""A refusal of what the model wrote is not the client's fault: another one answers, or programs try again."""

import json
from typing import Any

import pytest

from providers.simulator import Raw, RoleOnly, Status, Step, answer
from tests.app.gateway.refusals.test_meanings import asked
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

WORDS = "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details."
CODES = ["tool_use_failed", "json_validate_failed", "output_parse_failed"]
BUDGETS: dict[str, dict[str, Any]] = {
    "raced": {"mode": "race", "width": 2, "budget": 1.0},
    "raced without money": {"mode": "race", "width": 2, "budget": 0},
    "single": {"mode": "single", "budget": 0},
}


def failed(code: str, *, is_within: bool = False) -> list[Step]:
    said = "<function=get_weather{SAID}</function>"
    error = {"message": WORDS, "type": "invalid_request_error", "code": code, "failed_generation": said}
    if not is_within:
        return [Status(400, {"error": error})]
    return [
        RoleOnly(),
        Raw(b"event: error\ndata: " + json.dumps({"error": {**error, "status_code": 400}}).encode() + b"\n\n"),
    ]


def broken(running: RunningGateway, code: str, *names: str, is_within: bool) -> None:
    for name in names:
        running[name].answers = lambda body: failed(code, is_within=is_within and body.get("stream"))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("is_within", [False, True], ids=["by status", "within"])
@pytest.mark.parametrize("mode", BUDGETS)
async def test_the_third_is_asked_where_two_models_wrote_what_could_not_be_read(
    serve: Serve, mode: str, *, is_within: bool, stream: bool
) -> None:
    models = {MODEL: {"deployments": ["alpha/m", "beta/m", "gamma/m"], "race": BUDGETS[mode]}}
    async with serve(alpha=None, beta=None, gamma=answer("Hello"), config={"models": models}) as running:
        running.prefer("alpha", "beta", "gamma")
        broken(running, CODES[0], "alpha", "beta", is_within=is_within)
        status, said = await asked(running, "chat", stream=stream)
    assert (status, "Hello" in json.dumps(said)) == (200, True)


@pytest.mark.parametrize("api", ["chat", "responses", "messages", "gemini"])
@pytest.mark.parametrize("code", CODES)
async def test_alone_it_is_told_as_what_programs_try_again(serve: Serve, code: str, api: str) -> None:
    async with serve(alpha=failed(code)) as running:
        status, said = await asked(running, api)
        call = await running.call()
    assert status == call["status_code"] == 502
    assert "SAID" not in json.dumps(said)


async def test_nothing_keeps_programs_from_trying_again(serve: Serve) -> None:
    async with serve(alpha=failed(CODES[0])) as running, running.chat() as response:
        assert response.status == 502
        assert "x-should-retry" not in response.headers


async def test_a_fallback_is_asked(serve: Serve) -> None:
    models = {MODEL: {"deployments": ["alpha/m"], "fallbacks": ["spare"]}, "spare": {"deployments": ["beta/m"]}}
    async with serve(alpha=failed(CODES[0]), beta=answer("Hello"), config={"models": models}) as running:
        status, _ = await asked(running, "chat")
        assert status == 200


async def test_it_takes_no_deployment_out(serve: Serve) -> None:
    async with serve(alpha=failed(CODES[0])) as running:
        for _ in range(8):
            await asked(running, "chat")
        assert len(running["alpha"].received) == 8
        running["alpha"].script = answer("Hello")
        assert (await asked(running, "chat"))[0] == 200


async def test_another_wrong_request_is_still_the_clients_fault(serve: Serve) -> None:
    refusal = Status(
        400, {"error": {"message": "tools[0] is wrong", "type": "invalid_request_error", "code": "invalid"}}
    )
    async with serve(alpha=[refusal]) as running:
        assert (await asked(running, "chat"))[0] == 400
