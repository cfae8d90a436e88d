"""What goes wrong reaches users of the openai package as its own exception classes."""

import asyncio
import hashlib

import openai
import pytest

from providers.simulator.script import Delta, ErrorEvent, Gate, Hang, RoleOnly, Status
from tests.app.gateway.stage import MODEL, PROMPT, Serve, Stage

KEY = "hs-a-gateway-key"
CLIENTS = {"clients": {"me": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest()}}}


async def ask(stage: Stage, model: str = MODEL) -> None:
    await stage.sdk.chat.completions.create(model=model, messages=PROMPT)


async def test_the_clients_own_mistake_is_a_bad_request_in_the_providers_words(serve: Serve) -> None:
    error = {"message": "temperature is too high", "type": "invalid_request_error", "param": "temperature", "code": "x"}
    async with serve(alpha=[Status(400, {"error": error})], beta=[Status(400, {"error": error})]) as stage:
        with pytest.raises(openai.BadRequestError, match="temperature is too high") as caught:
            await ask(stage)
    assert (caught.value.param, caught.value.code) == ("temperature", "x")


async def test_a_request_called_unprocessable_keeps_its_422(serve: Serve) -> None:
    async with serve(alpha=[Status(422)]) as stage:
        with pytest.raises(openai.UnprocessableEntityError):
            await ask(stage)


async def test_a_wrong_key_is_an_authentication_error(serve: Serve) -> None:
    async with serve(config=CLIENTS, key="hs-wrong") as stage:
        with pytest.raises(openai.AuthenticationError) as caught:
            await ask(stage)
        assert stage.requests == 0
    assert caught.value.code == "invalid_api_key"


async def test_a_model_nobody_has_is_not_found_with_near_names(serve: Serve) -> None:
    async with serve() as stage:
        with pytest.raises(openai.NotFoundError, match="did you mean 'llama'") as caught:
            await ask(stage, "lama")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_all_rate_limited_is_a_rate_limit_error_with_the_least_wait(serve: Serve) -> None:
    async with serve(
        alpha=[Status(429, headers={"retry-after": "9"})], beta=[Status(429, headers={"retry-after": "3"})]
    ) as stage:
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(stage)
    assert caught.value.response.headers["retry-after"] == "3"
    assert caught.value.code == "rate_limit_exceeded"


async def test_all_failing_is_an_internal_server_error_that_names_each_with_its_cause(serve: Serve) -> None:
    async with serve(alpha=[Status(503)], beta=[Status(500)]) as stage:
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(stage)
        call = await stage.call()
    assert caught.value.status_code == 502
    assert "alpha/m: server_error: Status 503" in caught.value.message
    assert "beta/m: server_error: Status 500" in caught.value.message
    assert caught.value.response.headers["x-holeshot-call-id"] == call["id"]


async def test_all_silent_beyond_their_clock_is_a_504(serve: Serve) -> None:
    config = {"timeouts": {"ttft_timeout_s": 0.05}}
    async with serve(alpha=[Hang()], beta=[RoleOnly(), Hang()], config=config) as stage:
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(stage)
        outcomes = await stage.outcomes()
    assert (caught.value.status_code, caught.value.code) == (504, "all_providers_timed_out")
    assert outcomes == {"alpha": "timeout", "beta": "timeout"}


async def test_the_providers_own_401_is_our_502_and_never_the_clients(serve: Serve) -> None:
    async with serve(alpha=[Status(401)]) as stage:
        with pytest.raises(openai.APIStatusError) as caught:
            await ask(stage)
    assert (caught.value.status_code, caught.value.code) == (502, "provider_auth")


async def test_an_error_in_the_middle_of_a_stream_raises_where_it_happens(serve: Serve) -> None:
    seen = asyncio.Event()
    async with serve(alpha=[RoleOnly(), Delta("half"), Gate(seen), ErrorEvent("out of memory")]) as stage:
        stream = await stage.sdk.chat.completions.create(model=MODEL, messages=PROMPT, stream=True)
        assert (await anext(stream)).choices[0].delta.role == "assistant"
        assert (await anext(stream)).choices[0].delta.content == "half"
        seen.set()
        with pytest.raises(openai.APIError, match="out of memory"):
            await anext(stream)
        call = await stage.call()
    assert (call["status_code"], call["error_kind"]) == (200, "server_error")


async def test_embeddings_raise_the_same_errors(serve: Serve) -> None:
    async with serve(alpha=[Status(503)], beta=[Status(503)]) as stage:
        with pytest.raises(openai.InternalServerError, match="alpha/m: server_error"):
            await stage.sdk.embeddings.create(model=MODEL, input="one")
        assert set((await stage.outcomes()).values()) == {"failed"}
