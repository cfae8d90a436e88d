"""A prompt that is too long for some deployments is answered by one that it is not too long for."""

import json
from typing import Any

import pytest

from providers.simulator import Raw, Status, answer
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_unforced import text_in
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

LONG = [{"role": "user", "content": "word " * 2000}]
SHORT = [{"role": "user", "content": "Hi"}]
TOO_LONG = Status(
    400,
    {
        "error": {
            "message": "This model's maximum context length is 1024 tokens. However, your messages resulted in 2001.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    },
)


def limit(running: RunningGateway, *providers: str) -> None:
    """Have these providers refuse long prompts."""
    for name in providers:
        running[name].answers = lambda body: [TOO_LONG] if len(json.dumps(body)) > 4000 else answer("Hello")


def config(mode: str, **contexts: int) -> dict[str, Any]:
    deployments = [
        {
            "deployment": f"{name}/m",
            **({"capabilities": {"context_tokens": contexts[name]}} if name in contexts else {}),
        }
        for name in ("alpha", "beta", "gamma", "delta")
    ]
    return {"models": {MODEL: {"deployments": deployments, "race": {"mode": mode, "width": 2}}}}


def counts(running: RunningGateway) -> dict[str, int]:
    return {name: len(each.received) for name, each in running.providers.items()}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", ["single", "race", "hedge"])
async def test_the_third_is_asked_where_two_are_too_short_and_alone_from_then_on(
    serve: Serve, mode: str, *, stream: bool
) -> None:
    async with serve(alpha=None, beta=None, gamma=None, delta=None, config=config(mode)) as running:
        running.prefer("alpha", "beta", "gamma", "delta", first_s=5.0)  # none is late on a busy machine
        limit(running, "alpha", "beta", "gamma")
        for number in range(2):
            async with running.chat(messages=LONG, stream=stream) as response:
                said = await response.text()
            assert (response.status, "Hello" in said) == (200, True)
            assert counts(running) == {"alpha": 1, "beta": 1, "gamma": 1, "delta": 1 + number}
        async with running.chat(messages=SHORT) as response:
            assert response.status == 200
        assert counts(running)["alpha"] == 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("code", [{"code": 400}, {"code": 500}, {}], ids=["wrong", "fault", "no code"])
async def test_a_length_is_learnt_from_an_error_within_an_answer_too(
    serve: Serve, code: dict[str, int], *, stream: bool
) -> None:
    said = "This model's maximum context length is 1024 tokens. However, your messages resulted in 2001."
    event = Raw(b"data: " + json.dumps({"error": {"message": said, **code}}).encode() + b"\n\n")
    async with serve(alpha=None, beta=None, gamma=None, delta=None, config=config("single")) as running:
        running.prefer("alpha", "beta", "gamma", "delta", first_s=5.0)  # none is late on a busy machine
        for name in ("alpha", "beta", "gamma"):
            running[name].answers = lambda body: [event] if len(json.dumps(body)) > 4000 else answer("Hello")
        for number in range(2):
            async with running.chat(messages=LONG, stream=stream) as response:
                text = await response.text()
            assert (response.status, "Hello" in text) == (200, True)
            assert counts(running) == {"alpha": 1, "beta": 1, "gamma": 1, "delta": 1 + number}
        async with running.chat(messages=SHORT, stream=stream) as response:
            assert response.status == 200
        assert counts(running)["alpha"] == 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_prompt_that_all_have_refused_is_sent_with_an_answer_that_is_known_to_fit(
    serve: Serve, *, stream: bool
) -> None:
    def refusing(body: Any) -> Any:
        said = "prompt is too long: 2001 tokens > 1024 maximum" if len(json.dumps(body)) > 4000 else ""
        if body["max_tokens"] > 4000:
            said = (
                f"max_tokens: {body['max_tokens']} > 4000, which is the maximum allowed number of output tokens for m"
            )
        error = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
        return [Status(400, error)] if said else text_in("messages", "Hello")

    settings = {"providers": {"alpha": speaking("messages")}}
    async with serve(alpha=None, config=settings) as running:
        running["alpha"].answers = refusing
        for messages, requests in ((SHORT, 2), (LONG, 1), (LONG, 1), (SHORT, 1)):
            before = len(running["alpha"].received)
            async with running.chat(messages=messages, max_tokens=9000, stream=stream) as response:
                await response.read()
            assert response.status == (200 if messages is SHORT else 400)
            assert len(running["alpha"].received) - before == requests


async def test_the_longest_is_asked_next_and_those_that_are_no_longer_not_at_all(serve: Serve) -> None:
    settings = config("single", alpha=8000, beta=8000, gamma=16000, delta=32000)
    async with serve(alpha=None, beta=None, gamma=None, delta=None, config=settings) as running:
        running.prefer("alpha", "beta", "gamma", "delta", first_s=5.0)  # none is late on a busy machine
        limit(running, "alpha", "beta", "gamma")
        async with running.chat(messages=LONG) as response:
            assert response.status == 200
        assert counts(running) == {"alpha": 1, "beta": 0, "gamma": 0, "delta": 1}


@pytest.mark.parametrize("mode", ["single", "race"])
async def test_where_all_are_too_short_the_vendors_words_are_told_each_time(serve: Serve, mode: str) -> None:
    async with serve(alpha=None, beta=None, gamma=None, delta=None, config=config(mode)) as running:
        limit(running, "alpha", "beta", "gamma", "delta")
        for _ in range(2):
            async with running.chat(messages=LONG) as response:
                error = (await response.json())["error"]
            assert (response.status, error["code"]) == (400, "context_length_exceeded")
            assert "maximum context length is 1024 tokens" in error["message"]


async def test_where_the_longest_is_down_that_is_told_and_not_the_length(serve: Serve) -> None:
    async with serve(alpha=None, beta=[Status(503)], gamma=None, delta=None, config=config("single")) as running:
        running.prefer("alpha", "beta", "gamma", "delta", first_s=5.0)  # none is late on a busy machine
        limit(running, "alpha", "gamma", "delta")
        async with running.chat(messages=LONG) as response:
            assert response.status == 502


async def test_another_wrong_request_is_still_asked_at_most_once_more(serve: Serve) -> None:
    wrong = Status(400, {"error": {"message": "'messages' is wrong", "type": "invalid_request_error"}})
    scripts: dict[str, Any] = {name: [wrong] for name in ("alpha", "beta", "gamma", "delta")}
    async with serve(**scripts, config=config("single")) as running:
        async with running.chat(messages=LONG) as response:
            assert response.status == 400
        assert sum(counts(running).values()) == 2


# Refusals in which it is not the prompt's own length that is too much.

ANSWER_TOO_LONG = (
    "This model's maximum context length is 8192 tokens. However, you requested 9002 tokens (2 in the messages,"
    " 9000 in the completion). Please reduce the length of the messages or completion."
)
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
OTHERWISE_LONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "a large limit of the answer": ({"messages": SHORT, "max_tokens": 9000}, 400, ANSWER_TOO_LONG),
    "the same without figures": ({"messages": SHORT, "max_tokens": 9000}, 400, "Input is too long"),
    "a large picture": ({"messages": [{"role": "user", "content": [PICTURE]}]}, 413, "Request too large"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("why", OTHERWISE_LONG)
async def test_a_short_prompt_that_is_refused_for_something_else_keeps_no_others_away(
    serve: Serve, why: str, *, stream: bool
) -> None:
    asked, status, said = OTHERWISE_LONG[why]
    refusal = Status(status, {"error": {"message": said, "type": "invalid_request_error"}})
    async with serve(alpha=None, beta=None, gamma=None, delta=None, config=config("single")) as running:
        running.prefer("alpha", "beta", "gamma", "delta", first_s=5.0)  # none is late on a busy machine
        is_odd = "max_tokens" in asked
        running["alpha"].answers = lambda body: (
            [refusal] if (body.get("max_tokens") if is_odd else "image_url" in json.dumps(body)) else answer("Hello")
        )
        async with running.chat(**asked, stream=stream) as response:
            assert response.status == 200
        async with running.chat(messages=LONG, stream=stream) as response:
            assert response.status == 200
        assert counts(running)["alpha"] == 2
