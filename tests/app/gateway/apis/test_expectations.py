"""What people expect of a gateway beside the race: parameters, filters, comments while waiting, request ids."""

import asyncio
import copy
import json
from typing import Any

import pytest

from gateway.settings import ConfigurationError
from providers.simulator import Gate, Hang, Status, answer
from tests.app.gateway.running_gateway import MODEL, Serve, read, single


def deployments(*items: Any, **model: Any) -> dict[str, Any]:
    return {"models": {MODEL: {"deployments": list(items), **model}}}


IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("capabilities", "fields"),
    [
        ({"vision": False}, {"messages": IMAGE}),
        ({"tools": False}, {"tools": TOOLS}),
        ({"json_schema": False}, {"response_format": SCHEMA}),
        ({"context_tokens": 50}, {"messages": [{"role": "user", "content": "word " * 200}]}),
        ({"max_output_tokens": 100}, {"max_tokens": 1000}),
    ],
)
async def test_what_a_deployment_cannot_answer_is_never_sent_to_it(
    serve: Serve, capabilities: dict[str, Any], fields: dict[str, Any]
) -> None:
    config = deployments({"deployment": "alpha/m", "capabilities": capabilities}, "beta/m")
    async with serve(alpha=None, beta=None, config=config) as running:
        for _ in range(3):
            async with running.chat(headers={"x-holeshot-plan": "explain"}, **fields) as response:
                assert response.status == 200
                plan = json.loads(response.headers["x-holeshot-plan"])
                assert set(plan["excluded"]) == {"alpha/m"}
        assert len(running["alpha"].received) == 0
        async with running.chat() as response:
            assert response.headers["x-holeshot-launched"] == "2"


async def test_when_nobody_can_answer_each_ones_reason_is_told(serve: Serve) -> None:
    config = deployments(
        *({"deployment": f"{name}/m", "capabilities": {"vision": False}} for name in ("alpha", "beta"))
    )
    async with serve(alpha=None, beta=None, config=config) as running:
        async with running.chat(messages=IMAGE) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"]) == (400, "unsupported_by_deployments")
        assert "alpha/m does not support images" in error["message"]
        assert "beta/m does not support images" in error["message"]


VIDEO = {"type": "video_url", "video_url": {"url": "https://x.test/y.mp4"}}
LINKED = {"type": "image_url", "image_url": {"url": "https://x.test/y.gif"}}
SPOKEN = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
UPLOADED = {"type": "image", "source": {"type": "file", "file_id": "f1"}}


@pytest.mark.parametrize(
    ("api", "path", "part", "reason"),
    [
        ("gemini", "/v1/chat/completions", LINKED, "'messages[0].content[0].image_url': Gemini takes pictures and"),
        ("gemini", "/v1/chat/completions", VIDEO, "'messages[0].content[0]': Gemini"),
        ("messages", "/v1/chat/completions", SPOKEN, "'messages[0].content[0]': Messages has no audio input"),
        ("chat", "/v1/messages", UPLOADED, "'messages[0].content[0]"),
    ],
)
@pytest.mark.parametrize("drop_params", [False, True])
async def test_of_a_message_of_which_nothing_is_left_the_first_reason_is_told(
    serve: Serve, api: str, path: str, part: dict[str, Any], reason: str, *, drop_params: bool
) -> None:
    config = {
        **deployments({"deployment": "alpha/m", "drop_params": drop_params}),
        "providers": {"alpha": {"apis": [api]}},
    }
    body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": [part]}]}
    async with serve(alpha=None, config=config) as running, running.post(body, path=path) as response:
        assert response.status == 400
        message = (await response.json())["error"]["message"]
    assert f"does not support {reason}" in message
    assert "drop_params" not in message  # nothing would be left


async def test_text_that_quotes_a_picture_is_no_picture(serve: Serve) -> None:
    config = deployments({"deployment": "alpha/m", "capabilities": {"vision": False}})
    messages = [{"role": "user", "content": json.dumps(IMAGE)}]
    async with serve(alpha=None, config=config) as running, running.chat(messages=messages) as response:
        assert response.status == 200


async def test_a_parameter_a_vendor_does_not_know_keeps_it_out_or_is_dropped_and_told(serve: Serve) -> None:
    for drop_params in (False, True):
        config = {
            "providers": {"alpha": {"preset": "groq"}},
            **deployments({"deployment": "alpha/m", "drop_params": drop_params}),
        }
        async with serve(alpha=None, config=config) as running:
            async with running.chat(logprobs=True) as response:
                body = await response.json()
            if not drop_params:
                assert (response.status, body["error"]["code"]) == (400, "unsupported_by_deployments")
                assert "logprobs" in body["error"]["message"]
                assert running.requests == 0
            else:
                assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "logprobs")
                assert "logprobs" not in running["alpha"].received[0].body
                assert (await running.call())["dropped"] == '["logprobs"]'


async def test_a_disabled_deployment_is_not_asked(serve: Serve) -> None:
    config = deployments({"deployment": "alpha/m", "enabled": False}, "beta/m")
    async with serve(alpha=None, beta=None, config=config) as running:
        async with running.chat() as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta")
        assert len(running["alpha"].received) == 0


async def test_without_any_enabled_deployment_a_model_says_so(serve: Serve) -> None:
    config = deployments({"deployment": "alpha/m", "enabled": False})
    async with serve(alpha=None, config=config) as running, running.chat() as response:
        assert (response.status, (await response.json())["error"]["code"]) == (503, "no_deployment_enabled")


@pytest.mark.parametrize(
    ("preference", "expected"),
    [
        ({"zdr": True}, "alpha"),
        ({"quantizations": ["fp8"]}, "beta"),
        ({"regions": ["eu"]}, "beta"),
        ({"only": ["beta"]}, "beta"),
    ],
)
async def test_a_request_is_shown_only_to_who_it_may_be_shown_to(
    serve: Serve, preference: dict[str, Any], expected: str
) -> None:
    config = deployments(
        {"deployment": "alpha/m", "zdr": True, "quantization": "fp16"},
        {"deployment": "beta/m", "quantization": "fp8", "region": "eu"},
    )
    async with serve(alpha=None, beta=None, config=config) as running:
        async with running.chat(provider=preference) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, expected)
        other = "beta" if expected == "alpha" else "alpha"
        assert len(running[other].received) == 0


async def test_defaults_maximums_and_the_system_prefix_are_the_operators(serve: Serve) -> None:
    model = {
        "defaults": {"temperature": 0.2, "max_tokens": 50},
        "maximums": {"max_tokens": 100},
        "system_prefix": "Be brief.",
    }
    async with serve(alpha=None, config=deployments("alpha/m", **model)) as running:
        async with running.chat() as response:
            assert "x-holeshot-lowered" not in response.headers
        async with running.chat(max_completion_tokens=5000, temperature=1) as response:
            assert response.headers["x-holeshot-lowered"] == "max_completion_tokens"
        unsaid, said = (received.body for received in running["alpha"].received)
    assert (unsaid["temperature"], unsaid["max_tokens"]) == (0.2, 50)
    assert unsaid["messages"][0] == {"role": "system", "content": "Be brief."}
    assert unsaid["messages"][1]["role"] == "user"
    assert (said["temperature"], said["max_completion_tokens"], "max_tokens" in said) == (1, 100, False)


async def test_the_system_prefix_comes_first_in_every_dialect(serve: Serve) -> None:
    config = {
        "providers": {"alpha": {"apis": ["messages", "responses"]}},
        **deployments("alpha/m", system_prefix="Be brief."),
    }
    async with serve(alpha=[Status(500)], config=config) as running:
        message = {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
        for path, body in [
            ("/v1/messages", message),
            ("/v1/messages", {**message, "system": "Be kind."}),
            ("/v1/messages", {**message, "system": [{"type": "text", "text": "Be kind."}]}),
            ("/v1/responses", {"model": MODEL, "input": "Hi", "instructions": "Be kind."}),
            ("/v1/messages/count_tokens", {"model": MODEL, "messages": message["messages"], "system": "Be kind."}),
            ("/v1/responses/input_tokens", {"model": MODEL, "input": "Hi"}),
        ]:
            async with running.post(body, path=path) as response:
                await response.read()
        asked = [received.body for received in running["alpha"].received]
    assert asked[0]["system"] == "Be brief."
    assert asked[1]["system"] == "Be brief.\n\nBe kind."
    assert [block["text"] for block in asked[2]["system"]] == ["Be brief.", "Be kind."]
    assert asked[3]["instructions"] == "Be brief.\n\nBe kind."
    assert (asked[4]["system"], asked[5]["instructions"]) == ("Be brief.\n\nBe kind.", "Be brief.")


async def test_the_system_prefix_is_counted_at_google_too(serve: Serve) -> None:
    config = {"providers": {"alpha": {"kind": "gemini"}}, **deployments("alpha/m", system_prefix="Be brief.")}
    asked = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    async with serve(alpha=[Status(500)], config=config) as running:
        for body in (asked, {"generateContentRequest": {"model": "models/m", **asked}}):
            async with running.post(body, path=f"/v1beta/models/{MODEL}:countTokens") as response:
                await response.read()
        plain, whole = (each.body for each in running["alpha"].received)
    assert [turn["parts"][0]["text"] for turn in plain["contents"]] == ["Be brief.", "Hi"]
    assert whole["generateContentRequest"]["systemInstruction"] == {"parts": [{"text": "Be brief."}]}


async def test_headers_of_a_deployment_are_sent_with_its_requests(serve: Serve) -> None:
    config = deployments({"deployment": "alpha/m", "extra_headers": {"X-Team": "search"}})
    async with serve(alpha=None, config=config) as running:
        async with running.chat() as response:
            assert response.status == 200
        assert running["alpha"].received[0].headers["x-team"] == "search"


async def test_a_request_id_is_taken_passed_on_returned_and_written_down(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        async with running.chat(headers={"x-request-id": "order-66"}) as response:
            assert response.headers["x-request-id"] == "order-66"
        assert running["alpha"].received[0].headers["x-request-id"] == "order-66"
        assert (await running.call())["request_id"] == "order-66"
        async with running.chat(headers={"x-request-id": "order-67"}, model="nobody") as response:
            assert (response.status, response.headers["x-request-id"]) == (404, "order-67")


async def test_comments_are_sent_until_the_first_token(serve: Serve) -> None:
    go = asyncio.Event()
    config = deployments("alpha/m", keepalive_s=0.02)
    async with serve(alpha=[Gate(go), *answer("Hi")], config=config) as running:
        async with running.chat(stream=True) as response:
            first = await response.content.readline()
            assert (response.status, first) == (200, b": keep-alive\n")
            go.set()
            rest = await response.read()
        assert rest.endswith(b"data: [DONE]\n\n")
        assert b'"Hi"' in rest


async def test_after_a_comment_an_error_comes_in_the_stream(serve: Serve) -> None:
    go = asyncio.Event()
    config = {"timeouts": {"ttft_timeout_s": 5}, **deployments("alpha/m", keepalive_s=0.02)}
    async with serve(alpha=[Gate(go), Status(500)], config=config) as running:
        async with running.chat(stream=True) as response:
            await response.content.readline()
            go.set()
            rest = await response.read()
        last = json.loads(rest.rstrip().rpartition(b"data: ")[2])
        assert "alpha/m" in last["error"]["message"]
        assert b"[DONE]" not in rest
        assert (await running.call())["status_code"] == 502


async def test_a_client_that_hangs_up_during_comments_stops_the_provider(serve: Serve) -> None:
    async with serve(alpha=[Hang()], config=deployments("alpha/m", keepalive_s=0.02)) as running:
        async with running.chat(stream=True) as response:
            await response.content.readline()
            await running["alpha"].requested.wait()  # a comment may come before the provider has the request
        await running["alpha"].reach(disconnects=1)
        assert (await running.call())["status_code"] == 499


async def test_several_keys_of_a_provider_take_over_from_each_other(serve: Serve) -> None:
    config = {"providers": {"alpha": {"api_key": None, "api_keys": ["key-one", "key-two"]}}, **single()}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].once([Status(429, headers={"retry-after": "30"})])
        for _ in range(3):
            async with running.chat() as response:
                assert response.status == 200
        keys = [received.headers["authorization"] for received in running["alpha"].received]
        attempts = await running.rows("select sends, key_name from attempts order by started_at")
    assert len(keys) == 4
    assert keys[0] != keys[1]
    assert set(keys[1:]) == {keys[1]}
    names = ["#1" if key.endswith("one") else "#2" for key in keys]
    assert [(row["sends"], row["key_name"]) for row in attempts] == [(1, name) for name in names]


async def test_a_deployments_own_headers_are_over_its_providers_and_its_clients(serve: Serve) -> None:
    own = {"Authorization": "Bearer of-the-team", "User-Agent": "ours", "traceparent": "00-ours"}
    config = deployments({"deployment": "alpha/m", "extra_headers": own})
    async with serve(alpha=None, config=config) as running:
        async with running.chat(headers={"traceparent": "00-theirs"}) as response:
            assert response.status == 200
        [received] = running["alpha"].received
    assert {name: received.headers[name.lower()] for name in own} == own


@pytest.mark.parametrize("header", [{"x team": "a"}, {"x-team": "a\r\nx: b"}, {"Content-Length": "5"}, {"te": "x"}])
async def test_headers_that_cannot_be_sent_stop_the_start(serve: Serve, header: dict[str, str]) -> None:
    config = deployments({"deployment": "alpha/m", "extra_headers": header})
    with pytest.raises(ConfigurationError, match="cannot be sent as a header field"):
        async with serve(alpha=None, config=config):
            pass


async def test_a_comma_list_is_charged_to_its_first_model(serve: Serve) -> None:
    price = {"input": 1000, "output": 1000}
    limited = {"race": {"mode": "race", "width": 2, "budget": 1, "usd_per_day": 0.0}}
    items = [{"deployment": f"{name}/m", "price_per_mtok": price} for name in ("alpha", "beta")]
    async with serve(alpha=None, beta=None, config=deployments(*items, **limited)) as running:
        for model in (MODEL, f"{MODEL},{MODEL}", f"{MODEL}, {MODEL}"):
            async with running.chat(model=model) as response:
                assert (response.status, response.headers["x-holeshot-launched"]) == (200, "1")
        running.gateway.reload(read(daily(running.config, 0.8), running.folder))
        launched = []
        for copies in range(1, 9):
            async with running.chat(model=",".join([MODEL] * copies)) as response:
                launched.append(response.headers["x-holeshot-launched"])
        assert launched[-1] == "1"
        assert launched == sorted(launched, reverse=True)
        assert launched[0] == "2"


def daily(config: dict[str, Any], usd: float) -> dict[str, Any]:
    """Return ``config`` with another limit on what extra attempts may cost in a day."""
    changed = copy.deepcopy(config)
    changed["models"][MODEL]["race"]["usd_per_day"] = usd
    return changed
