"""A refusal is told in the words of the client's own API, by which its programs know what it means."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from providers.simulator import Gate, Status
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOOGLES = "The input token count (40021) exceeds the maximum number of tokens allowed (32768)."
# How vendors say that a prompt is too long: the provider's API, and its answer.
TOO_LONG: Mapping[str, tuple[str, Status]] = {
    "OpenAI": (
        "responses",
        Status(
            400,
            {
                "error": {
                    "message": "Your input exceeds the context window of this model. Please adjust it and try again.",
                    "type": "invalid_request_error",
                    "param": "input",
                    "code": "context_length_exceeded",
                }
            },
        ),
    ),
    "vLLM": (
        "chat",
        Status(
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 32768 tokens. However, your messages resulted in"
                " 40021 tokens. Please reduce the length of the messages.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
        ),
    ),
    "llama.cpp": (
        "chat",
        Status(
            400,
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 40021,
                    "n_ctx": 32768,
                }
            },
        ),
    ),
    "Mistral": (
        "chat",
        Status(
            422,
            {"message": "Prompt contains 40021 tokens, too large for model with 32768 maximum context length"},
        ),
    ),
    "Anthropic": (
        "messages",
        Status(
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 40021 tokens > 32768 maximum",
                },
            },
        ),
    ),
    "Google": ("gemini", Status(400, {"error": {"code": 400, "message": GOOGLES, "status": "INVALID_ARGUMENT"}})),
    "Interactions": ("interactions", Status(400, {"error": {"code": "invalid_request", "message": GOOGLES}})),
    "TabbyAPI": ("chat", Status(400, {"detail": "Prompt length 40021 is greater than max_seq_len 32768"})),
    "GitHub Models": (
        "chat",
        Status(
            413,
            {
                "error": {
                    "code": "tokens_limit_reached",
                    "message": "Request body too large for gpt-4o model of 40021 tokens. Max size: 32768 tokens.",
                }
            },
        ),
    ),
    "Zhipu": (
        "chat",
        Status(400, {"error": {"code": "1261", "message": "输入长度 40021 超过模型上限,最大支持 32768 tokens"}}),
    ),
}
HI = [{"role": "user", "content": "Hi"}]
ASKED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": HI}),
    "responses": ("/v1/responses", {"input": "Hi", "store": False}),
    "messages": ("/v1/messages", {"max_tokens": 100, "messages": HI}),
    "gemini": ("/v1beta/models/{model}:{method}", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
    "interactions": ("/v1/interactions", {"input": "Hi", "store": False}),
}
KNOWN = {
    "chat": r"maximum context length is \d+ tokens|exceeds the context window",
    "responses": r"maximum context length is \d+ tokens|exceeds the context window",
    "messages": r"prompt is too long: ",
    "gemini": r"input token count.*exceeds the maximum number of tokens",
    "interactions": r"input token count.*exceeds the maximum number of tokens",
}


async def asked(
    running: RunningGateway, api: str, *, model: str = MODEL, stream: bool = False, words: str = "Hi"
) -> tuple[int, Any]:
    """Return the status and the body of a call."""
    path, fields = ASKED[api]
    model += running.suffix
    method = "streamGenerateContent" if stream else "generateContent"
    body = json.loads(json.dumps(fields).replace('"Hi"', json.dumps(words)))
    body |= {} if api == "gemini" else {"model": model, "stream": stream}
    async with running.http.post(running.url + path.format(model=model, method=method), json=body) as response:
        text = await response.text()
    found = json.loads(text) if text[:1] in "{[" else text
    return response.status, found[0] if isinstance(found, list) else found


def is_too_long(api: str, status: int, body: Any) -> bool:
    """Whether programs of this API know that the prompt was too long."""
    error = body["error"]
    codes = {
        "messages": error.get("type") == "invalid_request_error" and body.get("type") == "error",
        "gemini": (error.get("status"), error.get("code")) == ("INVALID_ARGUMENT", 400),
        "interactions": error.get("code") == "invalid_request",
    }
    is_coded = codes.get(api, error.get("code") == "context_length_exceeded")
    return status == 400 and is_coded and re.search(KNOWN[api], error["message"]) is not None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("vendor", TOO_LONG)
@pytest.mark.parametrize("api", ASKED)
async def test_a_prompt_that_is_too_long_is_told_in_the_words_of_the_clients_api(
    shared: SharedGateways, api: str, vendor: str, *, stream: bool
) -> None:
    spoken, refusal = TOO_LONG[vendor]
    config = {"providers": {name: speaking(spoken) for name in ("alpha", "beta")}}
    async with shared.row(alpha=[refusal], beta=[refusal], config=config) as running:
        status, body = await asked(running, api, stream=stream)
        call = await running.call()
    assert is_too_long(api, status, body), body
    assert call["status_code"] == 400
    if vendor not in {"OpenAI", "llama.cpp"}:
        assert {"40021", "32768"} <= set(re.findall(r"\d+", body["error"]["message"]))


@pytest.mark.parametrize("api", ASKED)
async def test_what_the_vendor_of_that_api_says_passes_as_it_is(serve: Serve, api: str) -> None:
    own = {"chat": "OpenAI", "responses": "OpenAI", "messages": "Anthropic", "gemini": "Google"}.get(
        api, "Interactions"
    )
    refusal = TOO_LONG[own][1]
    async with serve(alpha=[refusal], config={"providers": {"alpha": speaking(api)}}) as running:
        _, body = await asked(running, api)
    assert isinstance(refusal.body, dict)
    said = refusal.body["error"]
    assert said.items() <= body["error"].items()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ASKED)
async def test_the_gateways_own_refusal_of_a_long_prompt_is_told_so_too(
    serve: Serve, api: str, *, stream: bool
) -> None:
    deployments = [{"deployment": "alpha/m", "capabilities": {"context_tokens": 2000}}]
    async with serve(alpha=None, config={"models": {MODEL: {"deployments": deployments}}}) as running:
        status, body = await asked(running, api, stream=stream, words="word " * 30_000)
        assert not running["alpha"].received
    assert is_too_long(api, status, body), body
    message = body["error"]["message"]
    assert re.search(r"(?:maximum context length is |> |allowed \()2000\b", message)
    assert "alpha/m holds 2000 tokens" in message


VLLMS_BESIDE = (
    "This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your prompt"
    " contains at least 30769 input tokens, for a total of at least 62769 tokens."
)


async def test_an_answer_that_does_not_fit_beside_the_prompt_is_told_as_claude_code_reads_it(serve: Serve) -> None:
    refusal = Status(400, {"message": VLLMS_BESIDE, "type": "BadRequestError", "code": 400})
    async with serve(alpha=[refusal]) as running:
        status, body = await asked(running, "messages")
    found = re.search(
        r"input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)", body["error"]["message"]
    )
    assert status == 400
    assert found is not None
    assert found.groups() == ("30769", "32000", "32768")


BEGUN: Mapping[str, tuple[str, str | int]] = {
    "chat": ("code", "context_length_exceeded"),
    "responses": ("code", "context_length_exceeded"),
    "messages": ("type", "invalid_request_error"),
    "gemini": ("code", 400),
    "interactions": ("code", "invalid_request"),
}


async def errors_behind_a_comment(serve: Serve, api: str, spoken: str, refusal: Status) -> list[str]:
    """Return the events that tell of a ``refusal``, where the response has begun with a comment before it."""
    go = asyncio.Event()
    models = {MODEL: {"deployments": ["alpha/m"], "keepalive_s": 0.02}}
    config = {"providers": {"alpha": speaking(spoken)}, "models": models}
    path, fields = ASKED[api]
    url = path.format(model=MODEL, method="streamGenerateContent") + "?alt=sse" * (api == "gemini")
    body = fields | ({} if api == "gemini" else {"model": MODEL, "stream": True})
    async with (
        serve(alpha=[Gate(go), refusal], config=config) as running,
        running.http.post(running.url + url, json=body) as response,
    ):
        await response.content.readline()  # a comment
        go.set()
        rest = await response.text()
    found: list[str] = re.findall(r"^data: (\{.*error.*\})\r?$", rest, re.MULTILINE)
    return found


@pytest.mark.parametrize("vendor", ["vLLM", "Anthropic", "Google"])
@pytest.mark.parametrize("api", BEGUN)
async def test_a_response_that_has_begun_is_told_so_in_its_stream(serve: Serve, api: str, vendor: str) -> None:
    spoken, refusal = TOO_LONG[vendor]
    data, *more = await errors_behind_a_comment(serve, api, spoken, refusal)
    failed = [json.loads(each)["response"]["error"]["code"] for each in more]
    assert failed == ["context_length_exceeded"] * (api == "responses")  # Codex looks there alone
    error = json.loads(data)["error"]
    name, value = BEGUN[api]
    assert error[name] == value
    assert re.search(KNOWN[api], error["message"]) is not None


# Only if all who could answer refuse for length.

CHATS = TOO_LONG["vLLM"][1]
WRONG_KEY = Status(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})


@pytest.mark.parametrize(
    ("other", "status"), [(Status(503), 502), (Status(429), 429), (WRONG_KEY, 400)], ids=["down", "limited", "no key"]
)
async def test_it_is_told_only_if_nobody_else_could_answer(serve: Serve, other: Status, status: int) -> None:
    config = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}}}
    async with serve(alpha=[CHATS], beta=[other], config=config) as running:
        running.prefer("alpha", "beta")
        told, body = await asked(running, "chat")
    assert told == status
    assert (body["error"]["code"] == "context_length_exceeded") is (status == 400)


@pytest.mark.parametrize(
    ("other", "is_told"), [(Status(503), False), (WRONG_KEY, True), (CHATS, True)], ids=["down", "no key", "short"]
)
async def test_nor_if_a_fallback_could(serve: Serve, other: Status, *, is_told: bool) -> None:
    fallback = {"model": "spare", "causes": ["context"]}
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": [fallback]},
        "spare": {"deployments": ["beta/m"]},
    }
    async with serve(alpha=[CHATS], beta=[other], config={"models": models}) as running:
        status, body = await asked(running, "chat")
        assert len(running["beta"].received) == 1
    assert (body["error"]["code"] == "context_length_exceeded") is is_told
    assert status == (400 if is_told else 502)


async def test_a_large_body_is_not_told_as_a_long_prompt(serve: Serve) -> None:
    said = {"type": "request_too_large", "message": "Request exceeds the maximum size"}
    async with serve(alpha=[Status(413, {"type": "error", "error": said})]) as running:
        status, body = await asked(running, "chat")
    assert (status, body["error"]["type"]) == (413, "request_too_large")
