"""What goes wrong reaches users of the openai package as its own exception classes."""

import asyncio
import hashlib
import re

import openai
import pytest

from providers.simulator import Delta, ErrorEvent, Gate, Hang, RoleOnly, Status
from tests.app.gateway.running_gateway import MODEL, PROMPT, RunningGateway, Serve

KEY = "hs-a-gateway-key"
CLIENTS = {"clients": {"me": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest()}}}


async def ask(running: RunningGateway, model: str = MODEL) -> None:
    await running.sdk.chat.completions.create(model=model, messages=PROMPT)


async def test_the_clients_own_mistake_is_a_bad_request_in_the_providers_words(serve: Serve) -> None:
    error = {"message": "temperature is too high", "type": "invalid_request_error", "param": "temperature", "code": "x"}
    async with serve(alpha=[Status(400, {"error": error})], beta=[Status(400, {"error": error})]) as running:
        with pytest.raises(openai.BadRequestError, match="temperature is too high") as caught:
            await ask(running)
    assert (caught.value.param, caught.value.code) == ("temperature", "x")


async def test_a_request_called_unprocessable_keeps_its_422(serve: Serve) -> None:
    async with serve(alpha=[Status(422)]) as running:
        with pytest.raises(openai.UnprocessableEntityError):
            await ask(running)


async def test_a_wrong_key_is_an_authentication_error(serve: Serve) -> None:
    async with serve(config=CLIENTS, key="hs-wrong") as running:
        with pytest.raises(openai.AuthenticationError) as caught:
            await ask(running)
        assert running.requests == 0
    assert caught.value.code == "invalid_api_key"


async def test_a_model_nobody_has_is_not_found_with_near_names(serve: Serve) -> None:
    async with serve() as running:
        with pytest.raises(openai.NotFoundError, match="did you mean 'llama'") as caught:
            await ask(running, "lama")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_all_rate_limited_is_a_rate_limit_error_with_the_least_wait(serve: Serve) -> None:
    async with serve(
        alpha=[Status(429, headers={"retry-after": "9"})], beta=[Status(429, headers={"retry-after": "3"})]
    ) as running:
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(running)
    assert caught.value.response.headers["retry-after"] == "3"
    assert caught.value.code == "rate_limit_exceeded"


async def test_all_failing_is_an_internal_server_error_that_names_each_with_its_cause(serve: Serve) -> None:
    async with serve(alpha=[Status(503)], beta=[Status(500)]) as running:
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(running)
        call = await running.call()
    assert caught.value.status_code == 502
    assert "alpha/m: server_error: Status 503" in caught.value.message
    assert "beta/m: server_error: Status 500" in caught.value.message
    assert caught.value.response.headers["x-holeshot-call-id"] == call["id"]


async def test_all_silent_beyond_their_clock_is_a_504(serve: Serve) -> None:
    config = {"timeouts": {"ttft_timeout_s": 0.05}}
    async with serve(alpha=[Hang()], beta=[RoleOnly(), Hang()], config=config) as running:
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(running)
        outcomes = await running.outcomes()
    assert (caught.value.status_code, caught.value.code) == (504, "all_providers_timed_out")
    assert outcomes == {"alpha": "timeout", "beta": "timeout"}


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ((401, 401), "provider_auth"),
        ((403, 401), "provider_auth"),
        ((404, 404), "provider_not_found"),
        ((401, 404), "provider_misconfigured"),
    ],
)
async def test_what_only_the_operator_can_mend_is_not_retried_and_not_blamed_on_the_client(
    serve: Serve, statuses: tuple[int, int], code: str
) -> None:
    first, second = statuses
    async with serve(alpha=[Status(first)], beta=[Status(second)]) as running:
        with pytest.raises(openai.APIStatusError) as caught:
            await running.sdk.with_options(max_retries=3).chat.completions.create(model=MODEL, messages=PROMPT)
        [call] = await running.rows("select * from calls")
    assert (caught.value.status_code, caught.value.code, caught.value.type) == (
        424, code, "provider_configuration_error",
    )  # fmt: skip
    assert not isinstance(caught.value, openai.AuthenticationError | openai.NotFoundError | openai.InternalServerError)
    assert "your request and your key are not at fault" in caught.value.message
    assert (call["status_code"], call["error_kind"]) == (424, code)


async def test_a_model_the_request_names_itself_may_be_the_requests_mistake(serve: Serve) -> None:
    async with serve(alpha=[Status(404)]) as running:
        with pytest.raises(openai.APIStatusError, match="the provider lacks the requested model or API") as caught:
            await running.sdk.chat.completions.create(model="alpha/x", messages=PROMPT)
    assert (caught.value.status_code, caught.value.code) == (424, "provider_not_found")


async def test_a_later_error_names_who_was_not_asked_and_why(serve: Serve) -> None:
    refused, unknown = {"error": {"message": "Invalid API key"}}, {"error": {"message": "no model m"}}
    scripts = {"alpha": [Status(401, refused)], "beta": [Status(404, unknown)], "gamma": [Status(503)]}
    async with serve(**scripts) as running:
        with pytest.raises(openai.InternalServerError):
            await ask(running)
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(running)
        with pytest.raises(openai.InternalServerError) as relayed:
            await running.sdk.embeddings.create(model=MODEL, input="one")
        async with running.get("/leaderboard") as response:
            [model] = (await response.json())["models"]
    for error in (caught.value, relayed.value):
        assert "gamma/m: server_error: Status 503" in error.message
        assert "alpha/m: not asked, out: provider_auth (401): Invalid API key" in error.message
        assert "beta/m: not asked, out: not_found (404): no model m" in error.message
    states = {row["deployment"]: (row["state"], row["reason"]) for row in model["deployments"]}
    assert states == {
        "alpha/m": ("out", "provider_auth (401): Invalid API key"),
        "beta/m": ("out", "not_found (404): no model m"),
        "gamma/m": ("failing", "server_error (503): Status 503, as scripted."),
    }


async def test_when_all_cool_down_or_are_out_the_error_says_why(serve: Serve) -> None:
    limited = Status(429, {"error": {"message": "too many"}}, headers={"retry-after": "30"})
    async with serve(alpha=[limited], beta=[Status(401)]) as running:
        with pytest.raises(openai.InternalServerError):
            await ask(running)
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(running)
        with pytest.raises(openai.RateLimitError) as relayed:
            await running.sdk.embeddings.create(model=MODEL, input="one")
    for error in (caught.value, relayed.value):
        assert re.search(r"alpha/m: not asked, cooling \d+\.\d s: rate_limited \(429\): too many", error.message)
        assert "beta/m: not asked, out: provider_auth (401)" in error.message


async def test_an_error_in_the_middle_of_a_stream_raises_where_it_happens(serve: Serve) -> None:
    seen = asyncio.Event()
    async with serve(alpha=[RoleOnly(), Delta("half"), Gate(seen), ErrorEvent("out of memory")]) as running:
        stream = await running.sdk.chat.completions.create(model=MODEL, messages=PROMPT, stream=True)
        assert (await anext(stream)).choices[0].delta.role == "assistant"
        assert (await anext(stream)).choices[0].delta.content == "half"
        seen.set()
        with pytest.raises(openai.APIError, match="out of memory"):
            await anext(stream)
        call = await running.call()
    assert (call["status_code"], call["error_kind"]) == (200, "server_error")


async def test_embeddings_raise_the_same_errors(serve: Serve) -> None:
    async with serve(alpha=[Status(503)], beta=[Status(503)]) as running:
        with pytest.raises(openai.InternalServerError, match="alpha/m: server_error"):
            await running.sdk.embeddings.create(model=MODEL, input="one")
        assert set((await running.outcomes()).values()) == {"failed"}
