"""Who edits a history loses the bound thoughts that stood behind the edit, in one request, by Claude's own switch.

platform.claude.com/docs/en/build-with-claude/preserved-thinking, read on 2026-11-29.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from strict_vendors import Refused, Request, Served, running_vendor, served
from strict_vendors.known import bedrock as bedrocks
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_signed_loops import FIRST, PATHS, answered, gone_on

Json = dict[str, Any]
Gateway = tuple[RunningGateway, Served]
# This autumn's, one of a name that nobody has seen, and one of before.
BOUND = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2")
OLDER = "claude-sonnet-5"
STEPS = 4
BETA = "thinking-binding-controls-2026-08-01"
SWITCH = {"prefix_mismatch_behavior": "drop_block"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway before Anthropic's stand-in, each model alone; once by its row and once by its kind."""
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(running_vendor("anthropic"))
        at: Json = {"base_url": vendor.base_url, "api_key": vendor.key}
        providers: Json = {"anthropic": {"preset": "anthropic", **at}, "own": {"kind": "anthropic", **at}}
        models: Json = {name: {"deployments": [f"anthropic/{name}"]} for name in (*BOUND, OLDER)}
        models["own"] = {"deployments": ["own/claude-opus-5-5"]}
        models["beta"] = {
            "deployments": [
                {
                    "deployment": "anthropic/claude-opus-5-5",
                    "as": "with-beta",
                    "extra_headers": {"anthropic-beta": "compact-2026-01-12"},
                }
            ]
        }
        yield (
            await stack.enter_async_context(serving(tmp_path, {"unused": None}, providers=providers, models=models)),
            vendor,
        )


def begun(api: str) -> Json:
    """Return a request whose tools are called in each of the steps."""
    calls = "\n".join(f'{"then" if number else "call"}: look {{"city": "city {number}"}}' for number in range(STEPS))
    told = json.dumps(FIRST[api]).replace('"twice"', json.dumps(f"Look.\n{calls}"))
    return cast("Json", json.loads(told))


def at_time(api: str, body: Json, time: str) -> Json:
    """Return the request with the time in its system prompt."""
    match api:
        case "chat":
            said = [each for each in body["messages"] if each["role"] != "system"]
            return {**body, "messages": [{"role": "system", "content": time}, *said]}
        case "responses":
            return {**body, "instructions": time}
        case "messages":
            return {**body, "system": time}
        case _:
            return {**body, "systemInstruction": {"parts": [{"text": time}]}}


def with_second_result_shortened(body: Json) -> Json:
    """Return the request with the result of its second call shortened."""
    first, second, *rest = json.dumps(body).split('"rain"')
    return cast("Json", json.loads('"rain"'.join([first, f'{second}"cut"{rest[0]}', *rest[1:]])))


def lost(vendor: Served) -> list[str]:
    """Return the thoughts that were sent, and that no model was shown, since this was asked."""
    dropped = cast("Any", vendor.vendor).dropped
    found = [f"{each.path} {each.reason}" for each in dropped]
    dropped.clear()
    return found


def thoughts(body: Json) -> int:
    """Return how many thoughts a request has."""
    return sum(
        block["type"] == "thinking"
        for turn in body["messages"]
        for block in turn["content"]
        if turn["role"] == "assistant"
    )


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("model", [*BOUND, "own"])
async def test_the_time_in_the_system_prompt_costs_no_refusal(
    gateway: Gateway, model: str, api: str, stream: bool
) -> None:
    running, vendor = gateway
    body = begun(api)
    for step in range(STEPS):
        body = at_time(api, body, f"It is {step} o'clock.")
        body = gone_on(api, body, await answered(running, api, model, body, stream=stream))
        assert len(lost(vendor)) == thoughts(vendor.seen[-1].body) == step
    assert (len(vendor.seen), vendor.said) == (STEPS, "")


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("model", BOUND)
async def test_only_what_stood_behind_the_edit_is_lost(gateway: Gateway, model: str, api: str) -> None:
    running, vendor = gateway
    body = begun(api)
    for _ in range(3):
        body = gone_on(api, body, await answered(running, api, model, body, stream=True))
    assert lost(vendor) == []
    body = with_second_result_shortened(body)
    answer = await answered(running, api, model, body, stream=True)
    assert lost(vendor) == ["messages.5.content.0 prefix_binding_mismatch"]
    body = gone_on(api, body, answer)
    await answered(running, api, model, body, stream=True)
    assert lost(vendor) == [
        "messages.5.content.0 prefix_binding_mismatch",
        "messages.7.content.0 prefix_binding_mismatch",
    ]
    assert (len(vendor.seen), vendor.said) == (5, "")


# Beside ``between_tools``, for which there is no switch: the vendor refuses, and names where the first stands.
NOTES: dict[str, Json] = {
    "chat": {"reasoning_effort": "none"},
    "responses": {"reasoning": {"effort": "none"}, "include": ["reasoning.encrypted_content"]},
    "messages": {"thinking": {"type": "between_tools"}},
}


@pytest.mark.parametrize("api", NOTES)
async def test_between_tools_a_request_is_refused_once_and_loses_only_what_stood_behind_the_edit(
    gateway: Gateway, api: str
) -> None:
    running, vendor = gateway
    body = {**begun(api), **NOTES[api]}
    for _ in range(STEPS):
        body = gone_on(api, body, await answered(running, api, "claude-sonnet-5-5", body, stream=True))
    assert vendor.said == ""
    assert vendor.seen[-1].body["thinking"] == {"type": "between_tools"}
    before = thoughts(vendor.seen[-1].body)
    body = with_second_result_shortened(body)
    await answered(running, api, "claude-sonnet-5-5", body, stream=True)
    assert [each.rule for each in vendor.refusals] == ["bound to another conversation"]
    assert 0 < thoughts(vendor.seen[-1].body) < before
    body = at_time(api, body, "It is noon.")
    await answered(running, api, "claude-sonnet-5-5", body, stream=True)
    assert (len(vendor.refusals), thoughts(vendor.seen[-1].body)) == (2, 0)
    assert len(vendor.seen) == STEPS + 4
    again = await running.rows("select role, counts_as, is_extra, replaces is null from attempts where number > 1")
    assert [tuple(each.values()) for each in again] == [("bare", "failover", 0, 0)] * 2
    learnt = running.gateway.engine.fleets.learnt("anthropic")
    assert learnt is None or learnt.models == {}


async def sent(gateway: Gateway, model: str, body: Json, **headers: str) -> tuple[Json, str]:
    """Return what the vendor got for a request, and the betas with which."""
    running, vendor = gateway
    async with running.post({**body, "model": model}, path="/v1/messages", headers=headers) as response:
        assert response.status == 200, await response.text()
    asked = vendor.seen[-1]
    return asked.body, asked.headers.get("anthropic-beta", "")


async def second_turn(gateway: Gateway, model: str) -> Json:
    """Return a request with a thought in its history, that says nothing of thinking."""
    body = {name: value for name, value in begun("messages").items() if name != "thinking"}
    body["output_config"] = {"effort": "low"}
    return gone_on("messages", body, await answered(gateway[0], "messages", model, body, stream=False))


async def test_nothing_is_said_without_thoughts_nor_to_older_models(gateway: Gateway) -> None:
    first = {**begun("messages"), "thinking": {"type": "adaptive"}}
    for model, body in (("claude-opus-5-5", first), (OLDER, await second_turn(gateway, OLDER))):
        assert await sent(gateway, model, body) == ({**body, "model": model, "stream": True}, "")
    second = await second_turn(gateway, OLDER)
    assert thoughts(second) == 1


@pytest.mark.parametrize(
    ("thinking", "told"),
    [
        (None, {"type": "adaptive", "block_binding": SWITCH}),
        (
            {"type": "adaptive", "display": "omitted"},
            {"type": "adaptive", "display": "omitted", "block_binding": SWITCH},
        ),
        ({"type": "between_tools"}, {"type": "between_tools"}),
    ],
)
async def test_the_switch_is_added_where_the_way_of_thinking_has_it(
    gateway: Gateway, thinking: Json | None, told: Json
) -> None:
    second = await second_turn(gateway, "claude-sonnet-5-5")
    body = second if thinking is None else {**second, "thinking": thinking}
    said, betas = await sent(gateway, "claude-sonnet-5-5", body)
    assert said == {**body, "thinking": told, "model": "claude-sonnet-5-5", "stream": True}
    assert betas == (BETA if "block_binding" in told else "")


FORCED: Json = {"type": "tool", "name": "look"}


async def test_nothing_is_said_where_a_tool_is_forced_and_nobody_asks_for_thinking(gateway: Gateway) -> None:
    second = await second_turn(gateway, "claude-haiku-5-5")
    forced = {**second, "tool_choice": FORCED}
    assert await sent(gateway, "claude-haiku-5-5", forced) == (
        {**forced, "model": "claude-haiku-5-5", "stream": True},
        "",
    )
    said, betas = await sent(gateway, "claude-haiku-5-5", {**second, "tool_choice": {"type": "auto"}})
    assert (said["thinking"], betas) == ({"type": "adaptive", "block_binding": SWITCH}, BETA)
    assert gateway[1].said == ""


# At Bedrock: docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-thinking-block-binding.html, the same day.
AT_BEDROCK = {"type": "adaptive", "display": "summarized", "block_binding": {"mismatch_behavior": "drop_block"}}


@pytest.fixture
async def bedrock(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway before Bedrock's stand-in, each model alone."""
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(running_vendor("bedrock"))
        providers: Json = {
            "bedrock": {"preset": "bedrock_converse", "base_url": vendor.base_url, "api_key": vendor.key}
        }
        models: Json = {name: {"deployments": [f"bedrock/us.anthropic.{name}"]} for name in BOUND}
        models[OLDER] = {"deployments": ["bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0"]}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"unused": None}, providers=providers, models=models)),
            vendor,
        )


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("model", BOUND)
async def test_in_converse_too_the_time_in_the_system_prompt_costs_no_refusal(
    bedrock: Gateway, model: str, api: str
) -> None:
    running, vendor = bedrock
    body = begun(api)
    for step in range(STEPS):
        body = at_time(api, body, f"It is {step} o'clock.")
        body = gone_on(api, body, await answered(running, api, model, body, stream=step % 2 == 0))
        assert len(lost(vendor)) == step
    assert (len(vendor.seen), vendor.said) == (STEPS, "")


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("model", BOUND)
async def test_in_converse_too_only_what_stood_behind_the_edit_is_lost(bedrock: Gateway, model: str, api: str) -> None:
    running, vendor = bedrock
    body = begun(api)
    for _ in range(3):
        body = gone_on(api, body, await answered(running, api, model, body, stream=True))
    assert lost(vendor) == []
    body = with_second_result_shortened(body)
    await answered(running, api, model, body, stream=True)
    assert lost(vendor) == ["messages.5.content.0 prefix_binding_mismatch"]
    assert (len(vendor.seen), vendor.said) == (4, "")


async def test_in_converse_nothing_is_said_without_thoughts_nor_to_older_models(bedrock: Gateway) -> None:
    running, vendor = bedrock
    told = {"thinking": AT_BEDROCK, "anthropic_beta": [BETA]}
    for model, extra in ((BOUND[0], told), (OLDER, {"thinking": {"type": "enabled", "budget_tokens": 1024}})):
        first = begun("messages")
        second = gone_on("messages", first, await answered(running, "messages", model, first, stream=True))
        await answered(running, "messages", model, second, stream=True)
        before, after = (request.body["additionalModelRequestFields"] for request in vendor.seen[-2:])
        assert "block_binding" not in before["thinking"]
        assert "anthropic_beta" not in before
        assert {name: after[name] for name in extra} == extra
        assert ("anthropic_beta" in after) == (model != OLDER)
    assert vendor.said == ""


async def test_in_converse_nothing_is_said_where_a_tool_is_forced_and_nobody_asks_for_thinking(
    bedrock: Gateway,
) -> None:
    running, vendor = bedrock
    body = begun("messages")
    body = gone_on("messages", body, await answered(running, "messages", "claude-haiku-5-5", body, stream=True))
    assert thoughts(body) == 1
    del body["thinking"]
    for choice in (FORCED, {"type": "auto"}):
        await answered(running, "messages", "claude-haiku-5-5", {**body, "tool_choice": choice}, stream=True)
    forced, free = (request.body.get("additionalModelRequestFields", {}) for request in vendor.seen[-2:])
    assert ("thinking" in forced, "anthropic_beta" in forced) == (False, False)
    assert free["anthropic_beta"] == [BETA]
    assert vendor.said == ""


class WithoutSwitch(bedrocks.VENDOR):
    """Bedrock in a region that binds no thoughts yet: it refuses the switch, or its beta."""

    said = ""

    def admit(self, request: Request) -> None:
        super().admit(request)
        extra = request.body.get("additionalModelRequestFields", {})
        if "block_binding" in extra.get("thinking", {}) or "anthropic_beta" in extra:
            raise Refused(400, f"The model returned the following errors: {self.said}", rule="no such switch")


@pytest.mark.parametrize(
    "said", ["thinking.adaptive.block_binding: Extra inputs are not permitted", "invalid beta flag"]
)
@pytest.mark.parametrize("api", PATHS)
async def test_a_region_that_refuses_the_switch_is_asked_without_from_then_on(
    tmp_path: Path, api: str, said: str
) -> None:
    at = WithoutSwitch()
    at.said = said
    async with served(at) as vendor:
        providers: Json = {
            "bedrock": {"preset": "bedrock_converse", "base_url": vendor.base_url, "api_key": vendor.key}
        }
        models: Json = {"m": {"deployments": [f"bedrock/us.anthropic.{BOUND[0]}"]}}
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
            body = begun(api)
            for _ in range(STEPS):
                body = gone_on(api, body, await answered(running, api, "m", body, stream=True))
            learnt = running.gateway.engine.fleets.learnt("bedrock")
        assert len(vendor.refusals) == 1, vendor.said
        last = vendor.seen[-1].body
        assert sum("reasoningContent" in block for turn in last["messages"] for block in turn["content"]) == STEPS - 1
        assert learnt is not None
        assert [fact.field for facts in learnt.models.values() for fact in facts] == [
            "additionalModelRequestFields.thinking.block_binding"
        ]


async def test_an_edited_history_is_counted_as_well(gateway: Gateway) -> None:
    running, vendor = gateway
    body = await second_turn(gateway, "claude-opus-5-5")
    counted = {name: value for name, value in body.items() if name != "max_tokens"}
    for said in (counted, {**counted, "thinking": {"type": "adaptive"}}, at_time("messages", counted, "It is noon.")):
        asked = {**said, "model": "claude-opus-5-5"}
        async with running.post(asked, path="/v1/messages/count_tokens") as response:
            assert (response.status, "x-holeshot-estimated" in response.headers) == (200, False), await response.text()
        sent = vendor.seen[-1]
        assert sent.body == {**asked, "thinking": {"type": "adaptive", "block_binding": SWITCH}}
        assert sent.headers["anthropic-beta"] == BETA
    assert (len(vendor.seen), vendor.said) == (4, "")


async def test_to_count_without_thoughts_or_for_an_older_model_nothing_is_added(gateway: Gateway) -> None:
    running, vendor = gateway
    older = await second_turn(gateway, OLDER)
    for model, body in (("claude-opus-5-5", begun("messages")), (OLDER, older)):
        asked = {name: body[name] for name in ("messages", "tools")} | {"model": model}
        async with running.post(asked, path="/v1/messages/count_tokens") as response:
            assert response.status == 200
        assert vendor.seen[-1].body == asked
        assert "anthropic-beta" not in vendor.seen[-1].headers


@pytest.mark.parametrize("own", [{"prefix_mismatch_behavior": "error"}, SWITCH, {}], ids=str)
async def test_what_a_client_says_itself_stays(gateway: Gateway, own: Json) -> None:
    body = {**await second_turn(gateway, "claude-opus-5-5"), "thinking": {"type": "adaptive", "block_binding": own}}
    said, betas = await sent(gateway, "claude-opus-5-5", body, **{"anthropic-beta": BETA})
    assert (said["thinking"], betas) == (body["thinking"], BETA)


async def test_the_header_has_what_clients_and_operators_say_besides(gateway: Gateway) -> None:
    body = await second_turn(gateway, "claude-opus-5-5")
    _, betas = await sent(gateway, "claude-opus-5-5", body, **{"anthropic-beta": "context-management-2025-06-27"})
    assert betas == f"context-management-2025-06-27, {BETA}"
    _, betas = await sent(gateway, "beta", body, **{"anthropic-beta": "context-management-2025-06-27"})
    assert betas == f"compact-2026-01-12, {BETA}"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", PATHS)
async def test_the_client_is_told_what_was_dropped(gateway: Gateway, api: str, stream: bool) -> None:
    running, _ = gateway
    body = begun(api)
    for _ in range(2):
        body = gone_on(api, body, await answered(running, api, "claude-opus-5-5", body, stream=stream))
    path = PATHS[api].format(model="claude-opus-5-5")
    path = path if stream else path.replace(":streamGenerateContent?alt=sse", ":generateContent")

    async def told(asked: Json) -> set[str]:
        said = asked if api == "gemini" else {**asked, "model": "claude-opus-5-5", "stream": stream}
        async with running.post(said, path=path) as response:
            assert response.status == 200
            return set(response.headers.get("x-holeshot-dropped", "").split(", "))

    unedited = await told(body)
    assert await told(at_time(api, body, "It is noon.")) - unedited == {
        "messages[1].content[0]",
        "messages[3].content[0]",
    }
