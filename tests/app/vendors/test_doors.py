"""Claude is sold at several doors: each takes the same conversation, in its own form, and refuses nothing."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]

# By stand-in: the preset, and what the model is called there.
DOORS = {
    "anthropic": ("anthropic", "claude-opus-4-6"),
    "foundry": ("foundry", "claude-opus-4-6"),
    "vertex": ("vertex", "claude-opus-4-6@default"),
    "claude_aws": ("claude_aws", "claude-opus-4-6"),
    "claude_google": ("claude_google", "claude-opus-4-6"),
    "invoke": ("bedrock_invoke", "global.anthropic.claude-opus-4-6-v1"),
}
NEEDED = {"claude_aws": {"anthropic-workspace-id": "wrkspc_1"}}
TOOL: Json = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}


class Place:
    """The doors, each a model and all of them one, and a gateway before them."""

    def __init__(self, running: RunningGateway, doors: Mapping[str, Served]) -> None:
        self.running, self.doors = running, doors

    async def said(self, body: Json, path: str = "/v1/messages", **headers: str) -> tuple[Json, Mapping[str, str]]:
        """Return a whole answer, which was given, and its headers."""
        async with self.running.post(body, path=path, headers=headers) as response:
            assert response.status == 200, (await response.text(), [each.said for each in self.doors.values()])
            return await response.json(), response.headers

    async def streamed(self, body: Json, path: str = "/v1/messages") -> bytes:
        """Return the events of an answer, which was given."""
        async with self.running.post({**body, "stream": True}, path=path) as response:
            assert response.status == 200, (await response.text(), [each.said for each in self.doors.values()])
            events: bytes = await response.read()
            return events

    def all_took(self) -> None:
        """Fail where a door has refused a request."""
        assert [each.said for each in self.doors.values() if each.refusals] == []


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        doors = {name: await stack.enter_async_context(running_vendor(name)) for name in DOORS}
        providers = {
            name: {"preset": DOORS[name][0], "base_url": door.base_url, "api_key": door.key}
            for name, door in doors.items()
        }
        models: Json = {
            name: {"deployments": [{"deployment": f"{door}/{model}", "extra_headers": NEEDED.get(door, {})}]}
            for door, (_, of_4_6) in DOORS.items()
            for name, model in ((door, of_4_6), (f"{door}-5.5", of_4_6.replace("4-6", "5-5").removesuffix("-v1")))
        }
        models["claude"] = {"deployments": [each["deployments"][0] for name, each in models.items() if name in DOORS]}
        running = await stack.enter_async_context(
            serving(tmp_path, {"unused": None}, providers=providers, models=models)
        )
        yield Place(running, doors)


def asked(model: str, *turns: Json, **more: Any) -> Json:
    return {"model": model, "max_tokens": 4000, "messages": list(turns), **more}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


@pytest.mark.parametrize("door", DOORS)
async def test_a_door_answers_clients_of_each_api_whole_and_streamed(place: Place, door: str) -> None:
    body = asked(door, user("say: well"), thinking={"type": "enabled", "budget_tokens": 2000})
    whole, headers = await place.said(
        body, **{"anthropic-version": "2023-06-01", "anthropic-beta": "effort-2025-11-24"}
    )
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    assert whole["content"][1]["text"] == "well"
    assert "x-holeshot-dropped" not in headers
    assert b"event: message_stop" in await place.streamed(body)
    chat: Json = {"model": door, "messages": [user("say: well")]}
    told, _ = await place.said(chat, "/v1/chat/completions")
    assert told["choices"][0]["message"]["content"] == "well"
    assert b"[DONE]" in await place.streamed(chat, "/v1/chat/completions")
    response, _ = await place.said({"model": door, "input": "say: well", "store": False}, "/v1/responses")
    assert response["status"] == "completed"
    place.all_took()


async def test_one_conversation_goes_through_all_doors_with_its_thoughts(place: Place) -> None:
    """Signatures of these models are for every platform: no thought is lost, and none is told as lost."""
    turns = [user("call: read {}")]
    more: Json = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "tools": [TOOL]}
    for door in (*DOORS, *DOORS):
        answer, headers = await place.said(asked(door, *turns, **more))
        assert "x-holeshot-dropped" not in headers
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "done"} for call in calls]
        turns += [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": [*results, {"type": "text", "text": "call: read {}"}]},
        ]
    place.all_took()
    rows = await place.running.rows(
        "select provider, count(*) n, count(cost_usd) priced from attempts group by provider"
    )
    assert {row["provider"]: (row["n"], row["priced"]) for row in rows} == dict.fromkeys(DOORS, (2, 2))
    for served in place.doors.values():
        sent = [
            block for turn in served.seen[-1].body["messages"] for block in turn["content"] if isinstance(block, dict)
        ]
        assert sum(block["type"] == "thinking" for block in sent) >= 4


@pytest.mark.parametrize(("name", "more"), [("vertex", {}), ("ours", {"kind": "vertex"})], ids=["row", "kind"])
async def test_vertex_ai_is_asked_in_the_api_of_the_model_s_maker(tmp_path: Path, name: str, more: Json) -> None:
    """Claude in Messages and Gemini in its own API, whatever API a client has; a name that says no maker in either."""
    async with running_vendor("vertex") as vendor:
        providers = {name: {"base_url": vendor.base_url, "api_key": vendor.key, **more}}
        models = {"claude": {"deployments": [f"{name}/claude-opus-4-6"]}}
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
            asked_by_google: Json = {"contents": [{"role": "user", "parts": [{"text": "say: well"}]}]}
            for method in ("generateContent", "streamGenerateContent", "countTokens"):
                async with running.post(asked_by_google, path=f"/v1beta/models/claude:{method}") as response:
                    assert response.status == 200, await response.text()
        assert vendor.refusals == [], vendor.said


async def test_another_api_at_a_cloud_that_is_called_as_its_door_is_asked_as_it_was_before(tmp_path: Path) -> None:
    async with running_vendor("groq") as vendor:  # at .../openai/v1, as Foundry has OpenAI's API
        providers = {"foundry": {"base_url": vendor.base_url, "api_key": vendor.key}}
        models = {"m": {"deployments": ["foundry/openai/gpt-oss-120b"]}}
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
            for path in ("/v1/chat/completions", "/v1/messages"):
                async with running.post(asked("m", user("say: well")), path=path) as response:
                    assert response.status == 200, await response.text()
        assert vendor.refusals == [], vendor.said


async def test_doors_race_as_deployments_of_one_model_do(place: Place) -> None:
    body = asked("claude", user("say: well"))
    async with place.running.post(body, path="/v1/messages", headers={"x-holeshot-mode": "race"}) as response:
        assert response.status == 200, await response.text()
    place.all_took()


async def test_what_fails_at_a_door_is_told_as_anthropic_tells_it(place: Place) -> None:
    for door in DOORS:
        async with place.running.post(asked(door, user("fail: 529")), path="/v1/messages") as response:
            assert (await response.json())["error"]["type"] in {"overloaded_error", "api_error"}, door
        async with place.running.post(
            {**asked(door, user("fail: 429")), "stream": True}, path="/v1/messages"
        ) as response:
            assert response.status == 429, door


async def test_a_model_without_sampling_is_asked_for_none_at_each_door(place: Place) -> None:
    for door in DOORS:
        body = asked(f"{door}-5.5", user("say: well"), temperature=0.3, top_p=0.9, top_k=20)
        for path in ("/v1/messages", "/v1/chat/completions"):
            sampled = body if path == "/v1/messages" else {k: v for k, v in body.items() if k != "top_k"}
            _, headers = await place.said(sampled, path)
            assert headers["x-holeshot-dropped"].startswith("temperature, top_p"), door
    place.all_took()


async def test_a_model_that_takes_one_way_of_sampling_is_asked_for_one_at_each_door(place: Place) -> None:
    for door in DOORS:
        for sampled, sent, told in (
            ({"temperature": 0.3, "top_p": 0.9}, {"temperature": 0.3}, "top_p"),
            ({"temperature": 1, "top_p": 0.9}, {"top_p": 0.9}, None),  # the default is no wish
            ({"temperature": 0.3, "top_p": 0}, {"top_p": 0}, "temperature"),
            ({"temperature": 0.3}, {"temperature": 0.3}, None),
            ({"top_p": 0.9}, {"top_p": 0.9}, None),
        ):
            _, headers = await place.said(asked(door, user("say: well"), **sampled))
            assert headers.get("x-holeshot-dropped") == told, door
            body = place.doors[door].seen[-1].body
            assert {name: body[name] for name in ("temperature", "top_p") if name in body} == sent, door
    place.all_took()


async def test_who_takes_both_ways_of_sampling_answers_before_who_takes_one(tmp_path: Path) -> None:
    async with running_vendor("anthropic") as vendor:
        providers: Json = {
            "claude": {"preset": "anthropic", "base_url": vendor.base_url, "api_key": vendor.key},
        }
        models: Json = {"m": {"deployments": ["claude/claude-opus-4-6", "alpha/m"], "race": {"mode": "single"}}}
        async with serving(tmp_path, {"alpha": None}, providers=providers, models=models) as running:
            for _ in range(4):
                body = asked("m", user("say: well"), temperature=0.3, top_p=0.9)
                async with running.post(body, path="/v1/messages") as response:
                    assert response.status == 200, await response.text()
                    assert "x-holeshot-dropped" not in response.headers
            assert (len(running["alpha"].received), vendor.seen) == (4, [])


async def test_counting_asks_a_door_that_counts(place: Place) -> None:
    for door in ("anthropic", "foundry", "vertex", "invoke"):
        body: Json = {"model": door, "messages": [user("say: well")], "tools": [TOOL]}
        for more in ({}, {"thinking": {"type": "enabled", "budget_tokens": 2000}}):
            counted, headers = await place.said({**body, **more}, "/v1/messages/count_tokens")
            assert (counted["input_tokens"] > 0, headers.get("x-holeshot-estimated")) == (True, None)
    place.all_took()
