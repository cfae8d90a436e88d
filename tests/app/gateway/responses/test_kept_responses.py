"""A stored response can be looked at, cancelled and deleted where it is kept, by the client it was made for."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import openai
import pytest
from aiohttp import web
from openai.types.responses import ResponseIncludable

from gateway.app.left_running import LeftRunning
from gateway.core.calls import Level
from gateway.core.records import Unended
from providers import events
from providers.simulator import ProviderTally, json_response, serve
from tests.app.gateway.apis.test_dialects import RESPONSE, RESPONSE_BYTES, event
from tests.app.gateway.limits.test_overload import empty, reload
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.patience import eventually

if TYPE_CHECKING:
    from gateway.ledger import LedgerNames

INCLUDED: tuple[ResponseIncludable, ...] = ("reasoning.encrypted_content", "message.output_text.logprobs")
KEPT = {**RESPONSE, "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "created_at": 1}


@asynccontextmanager
async def keeper(go: asyncio.Event | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve a provider that makes one response and keeps it; yield its base URL, and what it was asked.

    It tells of that one only after ``go``.
    """
    asked: list[str] = []

    async def make(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=RESPONSE_BYTES, headers={"content-type": "text/event-stream"})

    async def look(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path_qs}")
        if go is not None:
            await go.wait()
        if request.match_info["id"] != "resp_abc":
            return json_response({"error": {"message": "no such response", "type": "not_found"}}, status=404)
        return json_response(KEPT)

    routes = [
        web.post("/v1/responses", make),
        web.route("*", "/v1/responses/{id}", look),
        web.route("*", "/v1/responses/{id}/{rest}", look),
    ]
    async with serve(routes, ProviderTally()) as base_url:
        yield base_url, asked


def kept_at(base_url: str, **settings: Any) -> dict[str, Any]:
    return {
        "providers": {"keeper": {"base_url": base_url, "api_key": "k", "apis": ["responses"]}},
        "models": {MODEL: {"deployments": ["keeper/m"]}},
        **settings,
    }


async def stored(running: RunningGateway, **headers: str) -> None:
    body = {"model": MODEL, "input": "Hi", "store": True}
    async with running.post(body, path="/v1/responses", headers=headers) as response:
        assert response.status == 200


async def test_a_stored_response_is_looked_at_where_it_is_kept(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url)) as running:
        await stored(running)
        found = await running.sdk.responses.retrieve("resp_abc", include=list(INCLUDED))
        assert found.id == "resp_abc"
        await running.sdk.responses.cancel("resp_abc")
        await running.sdk.responses.delete("resp_abc")
        await running.sdk.responses.input_items.list("resp_abc")
        assert [each.partition("?")[0] for each in asked] == [
            "GET /v1/responses/resp_abc",
            "POST /v1/responses/resp_abc/cancel",
            "DELETE /v1/responses/resp_abc",
            "GET /v1/responses/resp_abc/input_items",
        ]
        assert all(name in asked[0] for name in INCLUDED)
        assert len(await running.rows("select * from calls")) == 1


async def test_a_deleted_response_is_forgotten_here_and_where_it_is_kept(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url)) as running:
        await stored(running)
        memory = running.gateway.context.memory
        assert memory.size  # that its server keeps it is not known
        await running.sdk.responses.delete("resp_abc")
        assert (asked, memory.size) == (["DELETE /v1/responses/resp_abc"], 0)


async def test_a_head_is_answered_without_a_body_and_asked_of_the_provider_as_get(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url)) as running:
        await stored(running)
        async with running.http.head(f"{running.url}/v1/responses/resp_abc") as response:
            assert (response.status, await response.read()) == (200, b"")
    assert asked == ["GET /v1/responses/resp_abc"]


async def test_a_provider_that_does_not_answer_about_a_stored_response_is_not_waited_for_for_good(serve: Serve) -> None:
    go = asyncio.Event()
    async with keeper(go) as (base_url, asked), serve(config=kept_at(base_url)) as running:
        await stored(running)
        reload(running, timeouts={"ttft_timeout_s": 0.05})
        async with running.get("/v1/responses/resp_abc") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (504, "all_providers_timed_out")
        assert len(asked) == 1
        go.set()


async def test_what_nobody_made_is_asked_of_nobody(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url)) as running:
        for response_id in ("resp_zzz", "..%2Fmodels", "resp_abc"):
            with pytest.raises(openai.NotFoundError):
                await running.sdk.responses.retrieve(response_id)
        assert asked == []


async def test_a_response_is_shown_to_its_own_client_only(serve: Serve) -> None:
    clients = {name: {"key_sha256": hashlib.sha256(name.encode()).hexdigest()} for name in ("ann", "bob")}
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url, clients=clients)) as running:
        await stored(running, authorization="Bearer ann")
        for name, status in (("bob", 404), ("ann", 200)):
            async with running.get("/v1/responses/resp_abc", headers={"authorization": f"Bearer {name}"}) as response:
                assert response.status == status
        assert len(asked) == 1


async def test_requests_for_stored_responses_count_in_the_limits_of_their_client(serve: Serve) -> None:
    clients = {"ann": {"key_sha256": hashlib.sha256(b"ann").hexdigest(), "rpm": 3}}
    async with (
        keeper() as (base_url, asked),
        serve(config=kept_at(base_url, clients=clients), in_one_minute=True) as running,
    ):
        await stored(running, authorization="Bearer ann")
        found = []
        for _ in range(3):
            async with running.get("/v1/responses/resp_abc", headers={"authorization": "Bearer ann"}) as response:
                found.append(response.status)
    assert found == [200, 200, 429]
    assert len(asked) == 2


async def test_requests_for_stored_responses_need_no_seat(serve: Serve) -> None:
    overload = {"max_in_flight": 1, "queue": 0}
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url, overload=overload)) as running:
        await stored(running)
        intake = running.gateway.context.intake
        assert intake.enter()
        assert intake.is_full
        async with running.get("/v1/responses/resp_abc") as response:
            assert response.status == 200
        intake.leave()
    assert len(asked) == 1


QUEUED = {**KEPT, "status": "queued", "background": True, "usage": None}
USAGE = {"input_tokens": 1_000, "output_tokens": 2_000, "total_tokens": 3_000}
DONE = {**QUEUED, "status": "completed", "usage": USAGE}
BEGINNING = event("response.created", sequence_number=0, response=QUEUED) + event(
    "response.queued", sequence_number=1, response=QUEUED
)
REST = (
    event("response.in_progress", sequence_number=2, response={**QUEUED, "status": "in_progress"})
    + event("response.output_text.delta", sequence_number=3, output_index=0, content_index=0, delta="Hi")
    + event("response.completed", sequence_number=4, response=DONE)
)


class Worker:
    """A provider that runs responses in the background."""

    def __init__(self, go: asyncio.Event) -> None:
        self.go = go  # before it, nothing but the beginning is said
        self.accepts = asyncio.Event()
        self.accepts.set()
        self.asked = asyncio.Event()
        self.is_done = False
        self.breaks = False
        self.is_of_another_key = False  # it cannot read the request's reasoning
        self.rest = REST
        self.bodies: list[dict[str, Any]] = []
        self.looked: list[str] = []
        self.left = asyncio.Event()  # a stream that goes on has ended, or was left

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        routes = [web.post("/v1/responses", self._make), web.get("/v1/responses/{id}", self._look)]
        routes.append(web.post("/v1/responses/{id}/cancel", self._look))
        async with serve(routes, ProviderTally()) as base_url:
            yield base_url

    async def _make(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.asked.set()
        await self.accepts.wait()
        if self.breaks:
            assert request.transport is not None
            request.transport.abort()
        if self.is_of_another_key and b"encrypted_content" in json.dumps(body).encode():
            code = "invalid_encrypted_content"
            return json_response({"error": {"message": "It could not be verified.", "code": code}}, status=400)
        if not body.get("stream"):
            return json_response(QUEUED)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(BEGINNING)
        await self.go.wait()
        await response.write(self.rest)
        return response

    async def _look(self, request: web.Request) -> web.StreamResponse:
        self.looked.append(request.path_qs)
        if request.query.get("stream") != "true":
            return json_response(DONE if self.is_done else QUEUED)
        after = int(request.query.get("starting_after", -1))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            await response.write(BEGINNING if after < 0 else b"")
            await self.go.wait()
            await response.write(REST[: REST.index(b"event: response.completed")] if self.breaks else self.rest)
            if self.breaks:
                assert request.transport is not None
                request.transport.abort()
        finally:
            self.left.set()
        return response


@asynccontextmanager
async def workers(
    serve_gateway: Serve, *, limits: Mapping[str, float] | None = None, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, list[Worker]]]:
    """Run a gateway before two such providers, with ``limits`` of their model."""
    both = [Worker(asyncio.Event()) for _ in range(2)]
    async with both[0].serving() as one, both[1].serving() as other:
        price = {"price_per_mtok": {"input": 1.0, "output": 10.0}}
        config = {
            "providers": {
                name: {"base_url": url, "api_key": "k", "apis": ["responses"]}
                for name, url in (("one", one), ("two", other))
            },
            "models": {
                MODEL: {
                    "deployments": [{"deployment": f"{name}/m", **price} for name in ("one", "two")],
                    **(limits or {}),
                }
            },
            "timeouts": {"ttft_timeout_s": 0.05, "stall_timeout_s": 0.05},
            **settings,
        }
        async with serve_gateway(config=config) as running:
            yield running, both
            for worker in both:
                worker.go.set()
                worker.accepts.set()
                worker.asked.set()


PATIENT: dict[str, Any] = {"timeouts": {}}  # what is looked at may take its time on a busy machine
IN_BACKGROUND = {"model": MODEL, "input": "Hi", "background": True, "max_output_tokens": 10_000}


async def test_a_response_in_the_background_is_queued_at_once_and_started_once(serve: Serve) -> None:
    async with workers(serve) as (running, both):
        async with running.post({**IN_BACKGROUND, "race": {"mode": "race"}}, path="/v1/responses") as response:
            said = await response.json()
        assert (response.status, said) == (200, QUEUED)
        assert response.headers["x-holeshot-launched"] == "1"
        assert "x-holeshot-cost-usd" not in response.headers
        [body] = [*both[0].bodies, *both[1].bodies]
        assert body["stream"] is False
        assert "store" not in body
        call = await running.call()
        assert (call["status_code"], call["cost_usd"], call["ttft_ms"]) == (200, None, None)
        assert (call["finish_reason"], call["launched"]) == ("queued", 1)


async def test_what_one_may_have_started_is_not_asked_of_another_without_its_reasoning(serve: Serve) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "made elsewhere"}
    asked = [thought, {"role": "user", "content": "Go on."}]
    async with workers(serve, **PATIENT) as (running, both):
        running.prefer("one", "two")
        both[0].is_of_another_key = both[1].breaks = True
        async with running.post({**IN_BACKGROUND, "input": asked}, path="/v1/responses") as response:
            assert response.status >= 400, await response.text()
        assert [len(worker.bodies) for worker in both] == [1, 1]
        both[1].breaks, both[1].is_of_another_key = False, True  # both have refused it: nobody runs it
        async with running.post({**IN_BACKGROUND, "input": asked}, path="/v1/responses") as response:
            assert response.status == 200, await response.text()
        assert sum("rs_1" not in str(body) for worker in both for body in worker.bodies) == 1


async def test_what_this_process_has_begun_was_not_left_by_another_however_late_the_ledger_tells(serve: Serve) -> None:
    async with workers(serve, **PATIENT) as (running, both):
        async with running.post(IN_BACKGROUND, path="/v1/responses") as response:
            await response.read()
        [row] = await running.rows("select client, known from stored_names where sealed is not null")

        class Late:
            async def unended(self) -> list[Unended]:
                return [Unended("0", row["client"], row["known"], "resp_abc")]

        await LeftRunning(running.gateway.context, cast("LedgerNames", Late()), clock=monotonic).run()
        assert [*both[0].looked, *both[1].looked] == []


async def test_its_cost_is_told_with_the_answer_that_has_its_end(serve: Serve) -> None:
    async with workers(serve, **PATIENT) as (running, both):
        async with running.post(IN_BACKGROUND, path="/v1/responses") as response:
            await response.read()
        async with running.get("/v1/responses/resp_abc") as response:
            assert ((await response.json())["status"], "x-holeshot-cost-usd" in response.headers) == ("queued", False)
        for worker in both:
            worker.is_done = True
        async with running.get("/v1/responses/resp_abc") as response:
            assert (await response.json())["status"] == "completed"
            assert float(response.headers["x-holeshot-cost-usd"]) == pytest.approx(0.021)


async def test_the_first_look_that_shows_its_end_is_a_row_with_its_cost(serve: Serve) -> None:
    clients = {"ann": {"key_sha256": hashlib.sha256(b"ann").hexdigest(), "usd_per_day": 1.0}}
    headers = {"authorization": "Bearer ann", "x-holeshot-tags": "job=night"}
    async with workers(serve, clients=clients, **PATIENT) as (running, both):
        async with running.post(IN_BACKGROUND, path="/v1/responses", headers=headers) as response:
            await response.read()
        for is_done in (False, True, True):
            for worker in both:
                worker.is_done = is_done
            async with running.get("/v1/responses/resp_abc", headers=headers) as response:
                assert response.status == 200
        started, ended = await running.rows("select * from calls order by started_at")
        attempts = await running.rows("select * from attempts order by started_at")
    assert (started["api"], started["cost_usd"], started["finish_reason"]) == ("responses", None, "queued")
    assert (ended["api"], ended["cost_usd"]) == ("responses.retrieve", pytest.approx(0.021))
    assert (ended["finish_reason"], ended["ttft_ms"], ended["tags"]) == ("completed", None, started["tags"])
    assert (ended["model"], ended["client"], ended["completion_tokens"]) == (MODEL, "ann", 2000)
    assert [each["continues"] for each in attempts] == [None, attempts[0]["id"]]
    assert [each["call_id"] for each in attempts] == [started["id"], ended["id"]]


async def test_a_cancelled_response_costs_what_it_says(serve: Serve) -> None:
    async with workers(serve, **PATIENT) as (running, both):
        async with running.post(IN_BACKGROUND, path="/v1/responses") as response:
            await response.read()
        for worker in both:
            worker.is_done = True
        async with running.post({}, path="/v1/responses/resp_abc/cancel") as response:
            assert response.status == 200
        costs = await running.rows("select cost_usd from calls order by started_at")
    assert [each["cost_usd"] for each in costs] == [None, pytest.approx(0.021)]


async def test_a_response_in_the_background_is_not_bounded_by_its_first_token(serve: Serve) -> None:
    async with workers(serve) as (running, both):
        for worker in both:
            worker.accepts.clear()
        asking = asyncio.ensure_future(running.sdk.responses.create(model=MODEL, input="Hi", background=True))
        await asyncio.wait([asyncio.ensure_future(each.asked.wait()) for each in both], return_when="FIRST_COMPLETED")
        asked = [*both[0].bodies, *both[1].bodies]
        async with running.post({"model": MODEL, "input": "Hi"}, path="/v1/responses") as response:
            assert response.status == 504  # its time is over, which began later
        assert not asking.done()
        assert [body for worker in both for body in worker.bodies if body.get("background")] == asked
        for worker in both:
            worker.accepts.set()
        assert (await asking).status == "queued"
        assert [body for worker in both for body in worker.bodies if body.get("background")] == asked


async def test_a_streamed_response_in_the_background_begins_with_its_id_and_may_then_be_silent(serve: Serve) -> None:
    async with workers(serve) as (running, both):
        async with running.post({**IN_BACKGROUND, "stream": True}, path="/v1/responses") as response:
            assert response.status == 200
            begun = await response.content.readexactly(len(BEGINNING))
            assert begun == BEGINNING

            async def is_seen() -> bool:
                async with running.get("/v1/responses/resp_abc") as looked:
                    return bool(looked.status == 200)  # on a busy machine a look may be too late for the limit

            assert await eventually(is_seen)
            for worker in both:
                worker.go.set()
            assert await response.read() == REST
        assert len([*both[0].bodies, *both[1].bodies]) == 1
        call = await running.call()
        assert (call["cost_usd"], call["ttft_ms"]) == (pytest.approx(0.021), None)


async def left_and_resumed(running: RunningGateway) -> Any:
    """Leave a stream in the background at its beginning, and ask for the rest."""
    async with running.post({**IN_BACKGROUND, "stream": True}, path="/v1/responses") as response:
        await response.content.readexactly(len(BEGINNING))
        response.close()
    return running.get("/v1/responses/resp_abc?stream=true&starting_after=1")


async def test_a_stream_in_the_background_goes_on_where_its_client_has_left_it(serve: Serve) -> None:
    async with workers(serve) as (running, both):
        async with await left_and_resumed(running) as response:  # which may be silent for as long as it runs
            assert (response.status, response.content_type) == (200, "text/event-stream")
            for worker in both:
                worker.go.set()
            assert await response.read() == REST
            assert response.headers["x-holeshot-provider"] in {"one", "two"}
        looked = [
            each for each in (*both[0].looked, *both[1].looked) if "?" in each
        ]  # the gateway may look for its end
        assert looked == ["/v1/responses/resp_abc?stream=true&starting_after=1"]
        await empty(running)
        costs = await running.rows("select cost_usd from calls order by started_at")
    assert [each["cost_usd"] for each in costs] == [None, pytest.approx(0.021)]


FAILED = {
    "context_length_exceeded": "Your input exceeds the context window of this model. Please adjust your input.",
    "server_is_overloaded": "Our servers are currently overloaded. Please try again later.",
    "invalid_prompt": "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
}


@pytest.mark.parametrize("is_left", [False, True], ids=["read to its end", "left and resumed"])
@pytest.mark.parametrize("code", FAILED)
async def test_a_response_in_the_background_that_fails_says_why_in_its_vendors_words(
    serve: Serve, code: str, is_left: bool
) -> None:
    failed = {**QUEUED, "status": "failed", "error": {"code": code, "message": FAILED[code]}, "usage": USAGE}
    async with workers(serve) as (running, both):
        for worker in both:
            worker.rest = event("response.failed", sequence_number=2, response=failed)
        if is_left:
            reading = await left_and_resumed(running)
        else:
            reading = running.post({**IN_BACKGROUND, "stream": True}, path="/v1/responses")
        async with reading as response:
            for worker in both:
                worker.go.set()
            told = [json.loads(each.data) for each in events(await response.read()) if each.data]
        *_, last = told
        error = last["response"]["error"] if last["type"] == "response.failed" else last["error"]
        assert (error["code"], error["message"]) == (code, FAILED[code])
        # As in every stream: Codex takes an overload in ``response.failed`` for an end, else it asks again.
        assert (last["type"] == "response.failed") is (is_left or code != "server_is_overloaded")
        assert len([*both[0].bodies, *both[1].bodies]) == 1  # it is not started again


async def test_a_stream_that_went_on_and_breaks_off_says_so_in_an_event(serve: Serve) -> None:
    async with workers(serve) as (running, both):
        resumed = await left_and_resumed(running)
        for worker in both:
            worker.go.set()
            worker.breaks = True
        async with resumed as response:
            said = await response.read()
        *_, error, _ = said.split(b"\n\n")
        assert error.startswith(b"event: error\n")
        assert b'"sequence_number":4' in error


async def test_a_client_that_leaves_again_leaves_the_provider_too(serve: Serve) -> None:
    async with workers(serve) as (running, both):
        async with await left_and_resumed(running) as response:
            assert response.status == 200
            response.close()
        first, *_ = [each for each in both if each.looked]
        await first.left.wait()
        await empty(running)


async def test_only_what_is_streamed_again_is_asked_for_in_events(serve: Serve) -> None:
    async with workers(serve, **PATIENT) as (running, both):
        async with running.post(IN_BACKGROUND, path="/v1/responses") as response:
            await response.read()
        async with running.get("/v1/responses/resp_abc?stream=false") as response:
            assert (response.status, (await response.json())["status"]) == (200, "queued")
        async with running.post({}, path="/v1/responses/resp_abc/cancel?stream=true") as response:
            assert (response.status, (await response.json())["status"]) == (200, "queued")
        assert [*both[0].looked, *both[1].looked] == [
            "/v1/responses/resp_abc?stream=false",
            "/v1/responses/resp_abc/cancel",
        ]


async def test_a_response_in_the_background_that_may_have_been_started_is_not_started_again(serve: Serve) -> None:
    async with workers(serve) as (running, both):
        for worker in both:
            worker.breaks = True
        async with running.post(IN_BACKGROUND, path="/v1/responses") as response:
            assert response.status == 502
        assert len([*both[0].bodies, *both[1].bodies]) == 1


async def test_a_fallback_runs_in_the_background_what_the_requested_model_cannot(serve: Serve) -> None:
    """Before anything was started, another model may be asked as for any other call; afterwards none is."""
    chat = {"chat": {"deployments": ["plain/m"], "fallbacks": [MODEL]}}
    async with workers(serve) as (running, both):
        one = running.config["providers"]["one"]
        config = {**running.config, "models": {**running.config["models"], **chat}}
        config["providers"] = {**config["providers"], "plain": {**one, "apis": ["chat"]}}
        reload(running, **config)
        async with running.post({**IN_BACKGROUND, "model": "chat"}, path="/v1/responses") as response:
            assert (response.status, await response.json()) == (200, QUEUED)
            assert response.headers["x-holeshot-fallback"] == MODEL
        both[0].breaks = both[1].breaks = True
        async with running.post({**IN_BACKGROUND, "model": "chat"}, path="/v1/responses") as response:
            assert response.status == 502
        assert len([*both[0].bodies, *both[1].bodies]) == 2


SEARCH: dict[str, Any] = {"tools": [{"type": "web_search"}]}


@pytest.mark.parametrize("tools", [{}, SEARCH], ids=["plain", "search"])
@pytest.mark.parametrize("limited", ["client", "model"])
async def test_a_limit_in_dollars_counts_what_a_response_in_the_background_may_cost(
    serve: Serve, limited: str, tools: dict[str, Any]
) -> None:
    limit = {"usd_per_day": 0.15}
    ann = {"key_sha256": hashlib.sha256(b"ann").hexdigest(), **(limit if limited == "client" else {})}
    headers, found = {"authorization": "Bearer ann"}, []
    async with workers(serve, clients={"ann": ann}, limits=limit if limited == "model" else None) as (running, _):
        for _ in range(3):
            async with running.post(IN_BACKGROUND | tools, path="/v1/responses", headers=headers) as response:
                found.append(response.status)
    assert found == [200, 200, 429]  # each may cost ten cents


@pytest.mark.parametrize("tools", [{}, SEARCH], ids=["plain", "search"])
@pytest.mark.parametrize("limited", ["client", "model"])
async def test_once_its_end_was_seen_a_limit_in_dollars_counts_what_it_cost(
    serve: Serve, limited: str, tools: dict[str, Any]
) -> None:
    ann = {"key_sha256": hashlib.sha256(b"ann").hexdigest()}
    limit = {"usd_per_day": 0.19}
    clients = {"ann": {**ann, **(limit if limited == "client" else {})}}
    headers, found = {"authorization": "Bearer ann"}, []
    of_model = limit if limited == "model" else None
    async with workers(serve, clients=clients, limits=of_model, **PATIENT) as (running, both):
        for _ in range(3):
            async with running.post(IN_BACKGROUND | tools, path="/v1/responses", headers=headers) as response:
                found.append(response.status)
            for worker in both:
                worker.is_done = len(found) == 2
            for _ in range(2):
                async with running.get("/v1/responses/resp_abc", headers=headers) as response:
                    assert response.status == 200
    assert found == [200, 200, 200]  # the second is known to have cost two cents, not ten


@pytest.mark.parametrize("limited", ["client", "team", "model"])
async def test_a_limit_that_is_set_while_it_runs_counts_all_that_it_cost(serve: Serve, limited: str) -> None:
    ann = {"key_sha256": hashlib.sha256(b"ann").hexdigest(), "team": "research"}
    headers, limit = {"authorization": "Bearer ann"}, {"usd_per_day": 0.19}
    owner = {"client": "client:ann", "team": "team:research", "model": f"model:{MODEL}"}[limited]
    async with workers(serve, clients={"ann": ann}, teams={"research": {}}, **PATIENT) as (running, both):
        async with running.post(IN_BACKGROUND, path="/v1/responses", headers=headers) as response:
            assert response.status == 200
        models = {MODEL: {**running.config["models"][MODEL], **(limit if limited == "model" else {})}}
        clients = {"ann": {**ann, **(limit if limited == "client" else {})}}
        reload(running, models=models, clients=clients, teams={"research": limit if limited == "team" else {}})
        for worker in both:
            worker.is_done = True
        async with running.get("/v1/responses/resp_abc", headers=headers) as response:
            cost_usd = float(response.headers["x-holeshot-cost-usd"])
        async with running.post(IN_BACKGROUND, path="/v1/responses", headers=headers) as response:
            assert response.status == 200
        [standing] = running.gateway.context.limits.standings(Level(owner, "", limit))
        assert standing.used == pytest.approx(cost_usd + 0.1, abs=0.01)  # and what the second may cost


async def test_what_runs_on_after_its_client_has_left_costs_what_its_end_says(serve: Serve) -> None:
    async with workers(serve, **PATIENT) as (running, both):
        async with running.post({**IN_BACKGROUND, "stream": True}, path="/v1/responses") as response:
            await response.content.readexactly(len(BEGINNING))
            response.close()
        await empty(running)
        for worker in both:
            worker.is_done = True
        for _ in range(2):
            async with running.get("/v1/responses/resp_abc") as response:
                assert response.status == 200
        costs = await running.rows("select cost_usd from calls order by started_at")
    assert [each["cost_usd"] for each in costs] == [None, pytest.approx(0.021)]
