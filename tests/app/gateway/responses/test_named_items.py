"""Conversations whose turns name what was said before by its id, at vendors as strict as the real ones."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from providers.simulator import ProviderTally
from providers.simulator import serve as serve_routes
from strict_vendors import Served, running_vendor
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.apis.test_dialects import RESPONSE, event
from tests.app.gateway.responses.test_responses_socket import connected
from tests.app.gateway.running_gateway import RunningGateway, Serve

NAME = "mixed"
TOOLS = [
    {
        "type": "function",
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
]
OPENAI, CHAT = ("openai", "gpt-5"), ("mistral", "mistral-small-latest")
VLLM = ("vllm", "Qwen/Qwen3.5-27B")  # takes ``store: true``, and keeps nothing
MODELS: dict[str, Sequence[tuple[str, str]]] = {
    "one at OpenAI": [OPENAI],
    "two that race": [OPENAI, OPENAI],
    "one that races a chat server": [OPENAI, CHAT],
    "a chat server alone": [CHAT],
}


@asynccontextmanager
async def at(
    serve: Serve,
    kinds: Sequence[tuple[str, str]],
    *,
    account: str | None = "one",
    provider: Mapping[str, Any] = {},
    **config: Any,
) -> AsyncIterator[tuple[RunningGateway, list[Served]]]:
    """Serve a gateway with one model, a deployment at each of these vendors; ``provider`` is said of each besides."""
    async with AsyncExitStack() as stack:
        vendors, providers, deployments = [], {}, []
        for number, (vendor, model) in enumerate(kinds):
            served = await stack.enter_async_context(
                running_vendor(vendor, seed=str(number), account=account or str(number))
            )
            vendors.append(served)
            name = f"{vendor}{number}"
            providers[name] = {"preset": vendor, "base_url": served.base_url, "api_key": served.key, **provider}
            deployments.append(f"{name}/{model}")
        models = {NAME: {"deployments": deployments, "race": {"mode": "race", "width": len(kinds)}}}
        whole = {"providers": providers, "models": models, **config}
        running = await stack.enter_async_context(serve(config=whole, key="unused"))
        yield running, vendors


class Talk:
    """A client of Responses: over HTTP, whole or streamed, or over a socket."""

    def __init__(self, running: RunningGateway, way: str, key: str | None = None) -> None:
        self.running, self.way = running, way
        self.headers = {} if key is None else key_of(key)
        self.told: list[dict[str, str]] = []  # the headers of each answer
        self.always: dict[str, Any] = {}  # fields of each request

    async def ask(self, given: Any, **fields: Any) -> dict[str, Any]:
        status, said = await self.tried(given, **fields)
        assert status == 200, said
        answer: dict[str, Any] = said
        return answer

    async def tried(self, given: Any, **fields: Any) -> tuple[int, Any]:
        body = {"model": NAME, "input": given, "tools": TOOLS, **self.always, **fields}
        if self.way == "socket":
            async with connected(self.running, headers=self.headers) as socket:
                await socket.wire.send_json({"type": "response.create", **body})
                while (event := await socket.event())["type"] not in {"response.completed", "error"}:
                    pass
            return (200, event["response"]) if "response" in event else (event["status"], event)
        body["stream"] = self.way == "streamed"
        async with self.running.post(body, path="/v1/responses", headers=self.headers) as response:
            self.told.append(dict(response.headers))
            said = await response.text()
        if response.status != 200 or self.way == "whole":
            return response.status, json.loads(said)
        last = [json.loads(line[5:]) for line in said.splitlines() if line.startswith("data:")][-1]
        assert last["type"] == "response.completed", last
        return 200, last["response"]


def calls_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of the calls in an answer."""
    calls = [item for item in answer["output"] if item["type"] == "function_call"]
    assert calls, answer["output"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": "rain"} for call in calls]


def text_of(answer: dict[str, Any]) -> str:
    return "".join(part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"])


async def guide(talk: Talk) -> None:
    """OpenAI's guide to functions: ``input += response.output``."""
    history: list[Any] = []
    for turn in range(3):
        history.append({"role": "user", "content": f"parallel: weather in {turn}?"})
        answer = await talk.ask(history)
        history += [*answer["output"], *calls_of(answer)]
        answer = await talk.ask(history)
        history += answer["output"]
        assert text_of(answer)


async def bare(talk: Talk) -> None:
    """The same, by a client that keeps of reasoning what it knows: no encrypted content."""
    history: list[Any] = []
    for _ in range(2):
        history.append({"role": "user", "content": "weather?"})
        for _ in range(2):
            answer = await talk.ask(history)
            kept = [{k: v for k, v in item.items() if k != "encrypted_content"} for item in answer["output"]]
            history += kept
            if any(item["type"] == "function_call" for item in kept):
                history += calls_of(answer)


async def chain(talk: Talk) -> None:
    """Ten turns by ``previous_response_id``."""
    answer = await talk.ask("weather?")
    answer = await talk.ask(calls_of(answer), previous_response_id=answer["id"])
    for turn in range(8):
        answer = await talk.ask(f"say: {turn}", previous_response_id=answer["id"])
        assert str(turn) in text_of(answer)


async def references(talk: Talk) -> None:
    """The AI SDK's default: each item of an answer by its id."""
    history: list[Any] = []
    for turn in range(3):
        history.append({"role": "user", "content": f"weather in {turn}?"})
        answer = await talk.ask(history)
        history += [{"type": "item_reference", "id": item["id"]} for item in answer["output"]]
        history += calls_of(answer)
        answer = await talk.ask(history)
        history += [{"type": "item_reference", "id": item["id"]} for item in answer["output"]]
        assert text_of(answer)


@pytest.mark.parametrize("way", ["whole", "streamed", "socket"])
@pytest.mark.parametrize("loop", [guide, bare, chain, references])
@pytest.mark.parametrize("kinds", MODELS.values(), ids=MODELS)
async def test_a_conversation_goes_on(
    serve: Serve, kinds: Sequence[tuple[str, str]], loop: Callable[[Talk], Any], way: str
) -> None:
    async with at(serve, kinds) as (running, vendors):
        await loop(Talk(running, way))
        assert [vendor.refusals for vendor in vendors] == [[]] * len(vendors)


@pytest.mark.parametrize("way", ["whole", "streamed"])
async def test_a_chain_goes_on_at_another_vendor_in_each_turn(serve: Serve, way: str) -> None:
    async with at(serve, [OPENAI, CHAT]) as (running, vendors):
        talk, names = Talk(running, way), ["openai0", "mistral1"]
        answer = await talk.ask("weather?", provider={"only": names[1:]})
        answer = await talk.ask(calls_of(answer), previous_response_id=answer["id"], provider={"only": names[:1]})
        for turn in range(4):
            only = {"only": [names[turn % 2]]}
            answer = await talk.ask("weather?", previous_response_id=answer["id"], provider=only)
            answer = await talk.ask(calls_of(answer), previous_response_id=answer["id"], provider=only)
        assert [vendor.refusals for vendor in vendors] == [[], []]
        assert {told["x-holeshot-provider"] for told in talk.told} == set(names)


async def test_a_chain_that_the_client_has_stored_stays_with_its_vendor(serve: Serve) -> None:
    async with at(serve, [OPENAI, OPENAI]) as (running, vendors):
        talk = Talk(running, "whole")
        answer = await talk.ask("say: one", store=True)
        for _ in range(3):
            answer = await talk.ask("say: more", previous_response_id=answer["id"])
        assert [vendor.refusals for vendor in vendors] == [[], []]
        assert {told["x-holeshot-launched"] for told in talk.told} == {"1"}
        assert [told.get("x-holeshot-store") for told in talk.told] == [None, "true", "true", "true"]


async def test_a_chat_server_alone_goes_on_from_what_was_to_be_stored(serve: Serve) -> None:
    async with at(serve, [CHAT]) as (running, _):
        talk = Talk(running, "whole")
        answer = await talk.ask("weather?", store=True)
        assert talk.told[0]["x-holeshot-dropped"] == "store"
        await talk.ask(calls_of(answer), previous_response_id=answer["id"], store=True)


# Beside a server that answers ``store: true`` and keeps nothing.
STORING: dict[str, Sequence[tuple[str, str]]] = {
    "who stores first": [OPENAI, VLLM],
    "who does not first": [VLLM, OPENAI],
    "nobody stores": [VLLM],
}


@pytest.mark.parametrize("mode", ["auto", "race"])
@pytest.mark.parametrize("way", ["whole", "streamed", "socket"])
@pytest.mark.parametrize("loop", [guide, bare, chain, references])
@pytest.mark.parametrize("kinds", STORING.values(), ids=STORING)
async def test_what_the_client_has_stored_goes_on_where_not_all_servers_store(
    serve: Serve, kinds: Sequence[tuple[str, str]], loop: Callable[[Talk], Any], way: str, mode: str
) -> None:
    async with at(serve, kinds) as (running, vendors):
        for _ in range(4):
            talk = Talk(running, way)
            talk.always = {"store": True, "race": {"mode": mode}}
            await loop(talk)
            assert {told["x-holeshot-launched"] for told in talk.told} <= {"1"}
        assert [vendor.refusals for vendor in vendors] == [[]] * len(vendors)


@pytest.mark.parametrize("mode", ["auto", "race"])
@pytest.mark.parametrize("way", ["whole", "streamed", "socket"])
@pytest.mark.parametrize("kinds", [STORING["who stores first"], STORING["who does not first"]], ids=[*STORING][:2])
async def test_without_a_memory_what_is_to_be_stored_goes_to_who_stores(
    serve: Serve, kinds: Sequence[tuple[str, str]], way: str, mode: str
) -> None:
    async with at(serve, kinds, responses_memory="off") as (running, vendors):
        for _ in range(4):
            talk = Talk(running, way)
            talk.always = {"store": True, "race": {"mode": mode}}
            await chain(talk)
            assert {told["x-holeshot-provider"] for told in talk.told} <= {"openai0", "openai1"}
        assert [vendor.refusals for vendor in vendors] == [[], []]
        only = {"only": [f"vllm{kinds.index(VLLM)}"]}
        await Talk(running, "whole").ask("say: hi", store=True, provider=only)  # better answered than kept


async def test_what_a_vendor_stores_is_not_kept_here_as_well(serve: Serve) -> None:
    async with at(serve, [OPENAI, VLLM]) as (running, vendors):
        talk, memory = Talk(running, "whole"), running.gateway.context.memory
        stored = await talk.ask("say: one", store=True, provider={"only": ["openai0"]})
        assert not memory.size
        await talk.ask("say: two", store=True, previous_response_id=stored["id"])
        assert vendors[0].seen[-1].body["previous_response_id"] == stored["id"]
        assert not memory.size
        await talk.ask("say: one", store=True, provider={"only": ["vllm1"]})
        assert memory.size


async def test_what_was_to_be_stored_is_read_and_deleted_though_its_server_keeps_nothing(serve: Serve) -> None:
    async with at(serve, [VLLM]) as (running, _):
        talk = Talk(running, "whole")
        answer = await talk.ask("say: hi", store=True)
        url = f"{running.url}/v1/responses/{answer['id']}"
        async with running.http.get(url) as response:
            assert (response.status, text_of(await response.json())) == (200, "hi"), await response.text()
        async with running.http.delete(url) as response:
            assert (response.status, (await response.json())["deleted"]) == (200, True)
        assert not running.gateway.context.memory.size
        async with running.http.get(url) as response:
            assert response.status == 404
        async with running.http.delete(url) as response:
            assert response.status == 404


async def test_a_turn_of_a_socket_goes_on_over_http_and_the_other_way_round(serve: Serve) -> None:
    async with at(serve, [OPENAI]) as (running, _):
        answer = await Talk(running, "socket").ask("weather?")
        answer = await Talk(running, "whole").ask(calls_of(answer), previous_response_id=answer["id"])
        await Talk(running, "socket").ask("say: bye", previous_response_id=answer["id"])


async def test_nobody_else_goes_on_from_an_answer(serve: Serve) -> None:
    async with at(serve, [OPENAI], **clients(plain={}, guest={})) as (running, [vendor]):
        mine, other = Talk(running, "whole", "plain"), Talk(running, "whole", "guest")
        answer = await mine.ask("weather?")
        asked = len(vendor.seen)
        status, told = await other.tried("And?", previous_response_id=answer["id"])
        assert (status, told["error"]["code"]) == (400, "previous_response_not_found")
        for item in answer["output"]:
            status, told = await other.tried([{"type": "item_reference", "id": item["id"]}])
            assert (status, told["error"]["code"]) == (404, "not_stored_for_this_key")
            assert "responses_memory" in told["error"]["message"]
        assert len(vendor.seen) == asked
        await mine.ask(calls_of(answer), previous_response_id=answer["id"])


@pytest.mark.parametrize("setting", ["off", False, {"max_mb": 0}])
async def test_what_is_not_kept_says_by_which_setting_it_would_be(serve: Serve, setting: Any) -> None:
    async with at(serve, [OPENAI], responses_memory=setting) as (running, _):
        talk = Talk(running, "whole")
        answer = await talk.ask("weather?")
        status, told = await talk.tried(calls_of(answer), previous_response_id=answer["id"])
        assert (status, told["error"]["code"]) == (400, "previous_response_not_found")
        assert "(responses_memory: off)" in told["error"]["message"]
        history = [{"role": "user", "content": "weather?"}, *answer["output"], *calls_of(answer)]
        await talk.ask(history)  # its reasoning is encrypted, as the gateway has asked for
        assert not running.gateway.context.memory.size


async def test_what_is_gone_says_for_how_long_it_was_kept(serve: Serve) -> None:
    async with at(serve, [OPENAI]) as (running, _):
        talk = Talk(running, "whole")
        answer = await talk.ask("weather?")
        running.gateway.context.memory.close()  # as a restart does
        status, told = await talk.tried(calls_of(answer), previous_response_id=answer["id"])
        assert (status, told["error"]["param"]) == (400, "previous_response_id")
        assert "keeps, for 60 minutes, as far as 'responses_memory' allows" in told["error"]["message"]


async def test_reasoning_without_content_that_nobody_knows_is_left_out_and_told(serve: Serve) -> None:
    async with at(serve, [OPENAI], responses_memory="off") as (running, [vendor]):
        talk = Talk(running, "whole")
        answer = await talk.ask("weather?")
        kept = [{k: v for k, v in item.items() if k != "encrypted_content"} for item in answer["output"]]
        await talk.ask([{"role": "user", "content": "weather?"}, *kept, *calls_of(answer)])
        assert talk.told[-1]["x-holeshot-dropped"] == "input[1]"
        assert vendor.refusals == []


async def test_an_item_that_the_vendor_does_not_know_is_the_requests_fault(serve: Serve) -> None:
    async with at(serve, [OPENAI]) as (running, [vendor]):
        talk = Talk(running, "whole")
        for _ in range(5):
            status, told = await talk.tried([{"type": "item_reference", "id": "msg_0123456789"}])
            assert (status, told["error"]["param"]) == (404, "input")
            assert told["error"]["message"].startswith("Item with id 'msg_0123456789' not found.")
        assert len(vendor.seen) == 5
        assert (await talk.ask("say: still here"))["output"]


async def test_an_answer_that_breaks_off_is_not_kept(serve: Serve) -> None:
    async with at(serve, [OPENAI]) as (running, _):
        body = {"model": NAME, "input": "cut: now", "stream": True}
        async with running.post(body, path="/v1/responses") as response:
            said = await response.text()
        assert "response.completed" not in said
        assert not running.gateway.context.memory.size


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_client_does_not_want_stored_is_not_kept(serve: Serve, stream: bool) -> None:
    async with at(serve, [OPENAI]) as (running, _):
        talk = Talk(running, "streamed" if stream else "whole")
        answer = await talk.ask("say: hi", store=False)
        assert not running.gateway.context.memory.size
        status, _ = await talk.tried("And?", previous_response_id=answer["id"])
        assert status == 400


@pytest.mark.parametrize("way", ["whole", "streamed", "socket"])
@pytest.mark.parametrize("kinds", MODELS.values(), ids=MODELS)
async def test_an_answer_that_no_vendor_stores_can_be_read_again(
    serve: Serve, way: str, kinds: Sequence[tuple[str, str]]
) -> None:
    async with at(serve, kinds) as (running, _):
        talk = Talk(running, way)
        answer = await talk.ask("weather?", instructions="Be brief.")
        answer = await talk.ask(calls_of(answer), previous_response_id=answer["id"], metadata={"a": "b"})
        async with running.get(f"/v1/responses/{answer['id']}") as response:
            assert response.status == 200, await response.text()
            found = await response.json()
        # The client knows its instructions and tools; they are not kept.
        assert found == {name: value for name, value in answer.items() if name not in {"instructions", "tools"}}
        assert (await running.sdk.responses.retrieve(answer["id"])).output_text == text_of(answer)


@pytest.mark.parametrize("what", ["input_items", "cancel"])
async def test_what_is_not_kept_of_an_answer_that_no_vendor_stores_is_told(serve: Serve, what: str) -> None:
    async with at(serve, MODELS["two that race"]) as (running, _):
        answer = await Talk(running, "whole").ask("weather?")
        method, url = ("POST" if what == "cancel" else "GET"), f"{running.url}/v1/responses/{answer['id']}/{what}"
        async with running.http.request(method, url, json={} if what == "cancel" else None) as response:
            assert response.status == 404
            said = (await response.json())["error"]["message"]
        assert f"GET /v1/responses/{answer['id']}" in said
        assert "store: true" in said


async def test_an_answer_that_no_vendor_stores_is_read_by_its_client_alone(serve: Serve) -> None:
    async with at(serve, MODELS["a chat server alone"], **clients(plain={}, guest={})) as (running, _):
        answer = await Talk(running, "whole", "plain").ask("weather?")
        for name, status in (("guest", 404), ("plain", 200)):
            async with running.get(f"/v1/responses/{answer['id']}", headers=key_of(name)) as response:
                assert response.status == status


async def test_a_deleted_response_is_forgotten(serve: Serve) -> None:
    async with at(serve, [OPENAI]) as (running, _):
        talk = Talk(running, "whole")
        answer = await talk.ask("say: hi")
        url = f"{running.url}/v1/responses/{answer['id']}"
        async with running.http.delete(url) as response:
            assert (response.status, await response.json()) == (
                200,
                {"id": answer["id"], "object": "response", "deleted": True},
            )
        status, _ = await talk.tried("And?", previous_response_id=answer["id"])
        assert (status, running.gateway.context.memory.size) == (400, 0)
        async with running.http.delete(url) as response:
            assert response.status == 404


@pytest.mark.parametrize("loop", [guide, chain, references])
async def test_a_conversation_goes_on_at_two_accounts_that_cannot_read_each_others_reasoning(
    serve: Serve, loop: Callable[[Talk], Any]
) -> None:
    async with at(serve, [OPENAI, OPENAI], account=None) as (running, _):
        await loop(Talk(running, "whole"))


async def test_the_tokens_of_a_turn_count_with_what_it_names(serve: Serve) -> None:
    async with at(serve, [OPENAI]) as (running, [vendor]):
        talk = Talk(running, "whole")
        answer = await talk.ask("say: " + "many words " * 50)
        body = {"model": NAME, "input": "And?", "previous_response_id": answer["id"]}
        async with running.post(body, path="/v1/responses/input_tokens") as response:
            counted = await response.json()
            assert response.status == 200, counted
        assert counted["input_tokens"] > 100
        assert vendor.refusals == []


@pytest.mark.parametrize("client", ["plain", None])
@pytest.mark.parametrize("loop", [guide, bare, chain, references])
async def test_what_the_client_has_stored_is_named_at_the_account_that_has_it(
    serve: Serve, loop: Callable[[Talk], Any], client: str | None
) -> None:
    known = {} if client is None else clients(plain={})
    async with at(serve, [OPENAI, OPENAI], account=None, **known) as (running, vendors):
        talk = Talk(running, "whole", client)
        talk.always = {"store": True}
        await loop(talk)
        assert [vendor.refusals for vendor in vendors] == [[], []]
        assert {told["x-holeshot-launched"] for told in talk.told} == {"1"}
        assert not running.gateway.context.memory.size


PICTURE = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBORw0KGgo="}


@asynccontextmanager
async def painter() -> AsyncIterator[tuple[str, list[Any]]]:
    """Serve a provider that paints, and stores nothing; yield its base URL, and the inputs that it was sent."""
    inputs: list[Any] = []

    async def paint(request: web.Request) -> web.Response:
        inputs.append((await request.json())["input"])
        done = {**RESPONSE, "output": [PICTURE]}
        said = event("response.created", response=RESPONSE) + event("response.completed", response=done)
        return web.Response(body=said, headers={"content-type": "text/event-stream"})

    async with serve_routes([web.post("/v1/responses", paint)], ProviderTally()) as base_url:
        yield base_url, inputs


@pytest.mark.parametrize("way", ["whole", "streamed"])
@pytest.mark.parametrize("named", [{}, {"result": None}, {"result": "", "status": "completed"}])
async def test_a_picture_that_is_named_by_its_id_is_put_in_its_place(
    serve: Serve, way: str, named: dict[str, Any]
) -> None:
    async with painter() as (base_url, inputs):
        provider = {"base_url": base_url, "api_key": "k", "apis": ["responses"]}
        models = {NAME: {"deployments": ["painter/m"]}}
        config = {"providers": {"painter": provider}, "models": models, **clients(plain={}, guest={})}
        async with serve(config=config) as running:
            mine, other = Talk(running, way, "plain"), Talk(running, way, "guest")
            mine.always = {"tools": [{"type": "image_generation"}]}
            await mine.ask("a cat")
            then = [{"role": "user", "content": "blue"}, {"type": "image_generation_call", "id": "ig_1", **named}]
            await mine.ask(then)
            assert inputs[-1] == [then[0], PICTURE]
            whole = [then[0], {**PICTURE, "result": "AAAA"}]
            await mine.ask(whole)
            assert inputs[-1] == whole
            status, told = await other.tried(then)
            assert (status, told["error"]["code"], len(inputs)) == (404, "not_stored_for_this_key", 3)
