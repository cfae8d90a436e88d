"""Responses over a WebSocket, by a plain client: each turn is a call, and any provider may answer the next one."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp
import pytest

from gateway.api import bodies, recall, responses_socket, turns
from gateway.api.bodies import read_contents
from providers.simulator import (
    Delta,
    Drop,
    Finish,
    Gate,
    Hang,
    Raw,
    RoleOnly,
    ScriptedProvider,
    Status,
    Step,
    ToolCall,
    answer,
)
from tests.app.gateway.apis.test_dialects import event, speaking
from tests.app.gateway.key_desk import bearer, in_database, sha256
from tests.app.gateway.restarts.test_stopping import listening_gateway
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, read
from tests.patience import until
from tests.support.orders import wrong_order

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
SPEAKS: dict[str, Any] = {"providers": {"alpha": speaking("responses")}}
BOTH_SPEAK: dict[str, Any] = {"providers": {name: speaking("responses") for name in ("alpha", "beta")}}


def said(text: str, response_id: str = "resp_1", *before: dict[str, Any]) -> Raw:
    """Return a whole answer in the API's own events: the items ``before``, then a message."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    items = [*before, {**message, "content": [{"type": "output_text", "text": text, "annotations": []}]}]
    response = {"id": response_id, "object": "response", "status": "completed", "model": "m", "output": items}
    usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
    return Raw(
        event("response.created", sequence_number=0, response={**response, "status": "in_progress", "output": []})
        + event("response.output_text.delta", sequence_number=1, item_id="msg_1", output_index=0, delta=text)
        + event("response.completed", sequence_number=2, response={**response, "usage": usage}),
        token=True,
    )


class Socket:
    """A client's end of one connection."""

    def __init__(self, wire: aiohttp.ClientWebSocketResponse) -> None:
        self.wire = wire

    async def create(self, text: Any = "Hi", **fields: Any) -> None:
        """Begin a turn."""
        await self.wire.send_json({"type": "response.create", "model": MODEL, "input": text, **fields})

    async def event(self) -> dict[str, Any]:
        message = await self.wire.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, message
        found: dict[str, Any] = json.loads(message.data)
        return found

    async def until(self, *kinds: str) -> dict[str, Any]:
        """Return the next event of one of these types."""
        while (found := await self.event())["type"] not in kinds:
            assert found["type"] != "error", found
        return found

    async def turn(self, text: Any = "Hi", **fields: Any) -> dict[str, Any]:
        """Return the response of a whole turn."""
        await self.create(text, **fields)
        response: dict[str, Any] = (await self.until("response.completed"))["response"]
        return response

    async def error(self) -> dict[str, Any]:
        return await self.until("error")

    async def closed(self) -> tuple[int | None, str | None]:
        """Return with which code and reason the gateway closes."""
        message = await self.wire.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE, message
        return message.data, message.extra


@asynccontextmanager
async def connected(running: RunningGateway, **options: Any) -> AsyncIterator[Socket]:
    async with running.http.ws_connect(running.url + PATH, compress=0, autoclose=False, **options) as wire:
        yield Socket(wire)


async def test_translated_calls_that_a_server_mixes_come_one_after_the_other(serve: Serve) -> None:
    def piece(index: int, arguments: str, **head: str) -> bytes:
        name = {"name": head["id"]} if head else {}
        call = {"index": index, **head, "function": {**name, "arguments": arguments}}
        said = {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
        return b"data: %b\n\n" % json.dumps(said).encode()

    mixed = piece(0, '{"x":', id="look"), piece(1, '{"y":', id="read"), piece(0, "1}"), piece(1, "2}")
    script = [RoleOnly(), Raw(b"".join(mixed), token=True), Finish("tool_calls")]
    config = {"models": {MODEL: {"race": {"mode": "race"}}}}
    async with serve(alpha=[Hang()], beta=script, config=config) as running, connected(running) as socket:
        await socket.create(tools=[TOOL, {**TOOL, "name": "read"}])
        told = [await socket.event()]
        while told[-1]["type"] != "response.completed":
            told.append(await socket.event())
    stream = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in told)
    assert wrong_order("responses", stream) is None
    output = told[-1]["response"]["output"]
    assert [(item["name"], item["arguments"]) for item in output] == [("look", '{"x":1}'), ("read", '{"y":2}')]


async def test_a_turn_is_a_raced_call_whose_events_are_messages(serve: Serve) -> None:
    async with serve(alpha=[Hang()], beta=[said("Hello")], config=BOTH_SPEAK) as running:
        running["beta"].script = [Gate(running["alpha"].requested), said("Hello")]
        async with connected(running) as socket:
            await socket.create()
            kinds = [(await socket.event())["type"] for _ in range(3)]
        call, outcomes = await running.call(), await running.outcomes()
        sent = running["beta"].received[0].body
    assert kinds == ["response.created", "response.output_text.delta", "response.completed"]
    assert (call["endpoint"], call["status_code"], call["error_kind"]) == ("responses", 200, None)
    assert outcomes == {"alpha": "lost", "beta": "won"}
    assert sent == {"model": "m", "input": "Hi", "store": False, "stream": True}


@pytest.mark.parametrize(
    ("code", "ends_with", "status"),
    [(None, "error", 502), ("context_length_exceeded", "response.failed", None)],
    ids=["cut off", "too long"],
)
async def test_an_answer_that_breaks_off_ends_with_what_is_the_end_to_its_client(
    serve: Serve, code: str | None, ends_with: str, status: int | None
) -> None:
    begins = bytes(said("Hello").data).partition(b"event: response.completed")[0]
    error = {"code": code, "message": "Your input exceeds the context window of this model."}
    failed = {"id": "resp_1", "object": "response", "status": "failed", "output": [], "error": error}
    last = Drop() if code is None else Raw(event("response.failed", sequence_number=2, response=failed))
    has_begun = asyncio.Event()
    script = [Raw(begins, token=True), Gate(has_begun), last]
    async with serve(alpha=script, config=SPEAKS) as running, connected(running) as socket:
        await socket.create()
        told = [await socket.event()]
        while told[-1]["type"] != ends_with:
            told.append(await socket.event())
            has_begun.set()
        running["alpha"].script = [said("Hello again")]
        again = await socket.turn()  # on the same connection
    ends = [each for each in told if each["type"] == "error"]
    assert [each.get("status") for each in ends] in ([status], [] if status is None else [status])
    assert again["output"][0]["content"][0]["text"] == "Hello again"


async def test_the_next_turn_sends_all_that_was_said_and_names_no_response(serve: Serve) -> None:
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
    unsealed = {"id": "rs_2", "type": "reasoning", "summary": []}
    async with serve(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].once([said("Hello", "resp_1", reasoning, unsealed)])
        running["alpha"].once([said("Bye", "resp_2")])
        running["alpha"].once([said("Gone", "resp_3")])
        async with connected(running) as socket:
            await socket.turn("Hi", store=False)
            await socket.turn([{"role": "user", "content": "And?"}], previous_response_id="resp_1")
            await socket.turn("So?", previous_response_id="resp_2")
        first, second, third = (each.body for each in running["alpha"].received)
    message = {"type": "message", "role": "assistant", "status": "completed"}
    hello, bye = (
        {**message, "content": [{"type": "output_text", "text": text, "annotations": []}]} for text in ("Hello", "Bye")
    )
    conversation = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
        hello,
        {"role": "user", "content": "And?"},
    ]
    assert first["input"] == "Hi"
    assert second["input"] == conversation
    assert third["input"] == [*conversation, bye, {"role": "user", "content": "So?"}]
    assert not any("previous_response_id" in each for each in (first, second, third))


async def test_ten_turns_of_a_tool_loop_go_on_with_another_winner_in_another_api_each_time(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("responses"), "beta": speaking("chat")}}
    async with serve(alpha=[Hang()], beta=[Hang()], config=config) as running:
        async with connected(running) as socket:
            before: dict[str, Any] = {}
            new: Any = "Begin"
            for number in range(10):
                call = {
                    "id": f"fc_{number}",
                    "type": "function_call",
                    "call_id": f"call_{number}",
                    "name": "look",
                    "arguments": "{}",
                }
                if number % 2:
                    steps: list[Step] = [
                        RoleOnly(),
                        ToolCall("{}", name="look", id=f"call_{number}"),
                        Finish("tool_calls"),
                    ]
                    running["beta"].once(steps)
                else:
                    running["alpha"].once([said("Look.", f"resp_{number}", call)])
                response = await socket.turn(new, tools=[TOOL], **before)
                [called] = [item for item in response["output"] if item["type"] == "function_call"]
                assert called["call_id"] == f"call_{number}"
                before = {"previous_response_id": response["id"]}
                new = [{"type": "function_call_output", "call_id": f"call_{number}", "output": f"seen {number}"}]
        winners = [
            row["provider"]
            for row in await running.rows("select provider from attempts where outcome = 'won' order by id")
        ]
        last_alpha = list(running["alpha"].received[-1].body["input"])
    assert winners == ["alpha", "beta"] * 5
    assert [each.get("output") for each in last_alpha if each.get("type") == "function_call_output"] == [
        f"seen {n}" for n in range(9)
    ]


async def test_an_unknown_response_is_told_and_the_connection_stays(serve: Serve) -> None:
    async with serve(alpha=[said("Hello")], config={"providers": {"alpha": speaking("responses")}}) as running:
        async with connected(running) as socket:
            await socket.create(previous_response_id="resp_of_another_day", stream_id="main")
            told = await socket.error()
            await socket.turn()
        requests = running.requests
    assert (told["status"], told["stream_id"], requests) == (400, "main", 1)
    assert (told["error"]["code"], told["error"]["param"]) == ("previous_response_not_found", "previous_response_id")


async def test_a_conversation_that_is_not_to_be_stored_is_known_on_its_own_connection_alone(serve: Serve) -> None:
    async with (
        serve(alpha=[said("Hello")], config={"providers": {"alpha": speaking("responses")}}) as running,
        connected(running) as one,
        connected(running) as other,
    ):
        await one.turn(store=False)
        await other.create(previous_response_id="resp_1")
        assert (await other.error())["error"]["code"] == "previous_response_not_found"


async def test_a_warm_up_is_answered_without_a_provider_and_can_be_continued(serve: Serve) -> None:
    async with serve(alpha=[said("Hello")], config={"providers": {"alpha": speaking("responses")}}) as running:
        async with connected(running) as socket:
            warm = await socket.turn([{"role": "developer", "content": "Be brief."}], generate=False, tools=[TOOL])
            assert (warm["status"], warm["output"], running.requests) == ("completed", [], 0)
            await socket.turn("Hi", previous_response_id=warm["id"], tools=[TOOL])
        [received] = running["alpha"].received
    developer, user = received.body["input"]
    assert (developer["content"], user["content"]) == ("Be brief.", "Hi")
    assert received.body.keys() == {"model", "input", "tools", "store", "stream"}


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ('{"type":"response.steer"}', "response.steer"),
        ('{"type":1}', "type"),
        ("{}", "response.create"),
        (b"\x00", "binary"),
        ('{"type":"response.create","input":"Hi"}', "model"),
        ('{"type":"response.create","input":"Hi","model":"llama","background":true}', "background"),
        ('{"type":"response.create","input":"Hi","model":"llama","previous_response_id":1}', "previous_response_id"),
        ('{"type":"response.create","input":"Hi","model":"no-such-model"}', "no-such-model"),
        ('{"type":"response.create","input":"Hi","model":"no-such-model","generate":false}', "no-such-model"),
        ('{"type":"response.create","input":"Hi","model":"llama","stream_id":""}', "stream_id"),
        ('{"type":"response.create","input":"Hi","model":"llama","stream_id":7}', "stream_id"),
        ('{"type":"response.cancel"}', "cancel"),
    ],
)
async def test_a_message_that_makes_no_sense_is_an_error_event_and_the_connection_stays(
    serve: Serve, sent: str | bytes, why: str
) -> None:
    async with (
        serve(alpha=[said("Hello")], config={"providers": {"alpha": speaking("responses")}}) as running,
        connected(running) as socket,
    ):
        await (socket.wire.send_str(sent) if isinstance(sent, str) else socket.wire.send_bytes(sent))
        told = await socket.error()
        await socket.turn()
    assert told["status"] in {400, 404}
    assert why in told["error"]["message"]
    assert told["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("kept", [{}, {"store": False}], ids=["in the memory", "on the connection"])
async def test_bytes_of_a_provider_that_are_no_text_end_neither_the_connection_nor_the_conversation(
    serve: Serve, kept: dict[str, bool]
) -> None:
    async with serve(alpha=None, config=SPEAKS) as running:
        running["alpha"].once([Raw(said("Hello ?!").data.replace(b"?!", b"\xff\xe2\x82"), token=True)])
        running["alpha"].once([said("Bye", "resp_2")])
        async with connected(running) as socket:
            response = await socket.turn(**kept)
            await socket.turn("And?", previous_response_id="resp_1", **kept)
        continued = running["alpha"].received[-1].body["input"]
    assert response["output"][0]["content"][0]["text"] == "Hello \ufffd\ufffd"
    assert continued[1]["content"][0]["text"] == "Hello \ufffd\ufffd"


async def test_a_client_that_leaves_in_the_middle_stops_all_of_its_turns(serve: Serve) -> None:
    async with serve(alpha=[RoleOnly(), Delta("a"), Hang()]) as running:
        async with connected(running) as socket:
            await socket.create(stream_id="one")
            await socket.create(stream_id="two")
            for _ in range(2):
                await socket.until("response.output_text.delta")
            socket.wire.get_extra_info("socket").shutdown(2)
            await running["alpha"].reach(disconnects_mid_stream=2)
        rows = await running.rows("select status_code, error_kind from calls")
    assert [(row["status_code"], row["error_kind"]) for row in rows] == [(499, "client_disconnected")] * 2


async def test_a_cancelled_turn_stops_at_its_provider_and_the_next_one_begins(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].once([RoleOnly(), Delta("a"), Hang()])
        async with connected(running) as socket:
            await socket.create()
            await socket.create("Next")
            created = await socket.until("response.created")
            await socket.until("response.output_text.delta")
            await socket.wire.send_json({"type": "response.cancel", "response_id": created["response"]["id"]})
            told = await socket.error()
            await running["alpha"].reach(disconnects_mid_stream=1)
            await socket.until("response.completed")
        rows = await running.rows("select status_code, error_kind from calls order by started_at")
    assert told["error"]["code"] == "response_cancelled"
    assert [(row["status_code"], row["error_kind"]) for row in rows] == [(499, "client_disconnected"), (200, None)]


async def test_that_an_answer_was_processed_is_answered_with_nothing_and_counts_in_no_limit(serve: Serve) -> None:
    one = {"clients": {"ada": {"key_sha256": sha256("hs-ada"), "rpm": 2}}}
    async with (
        serve(alpha=[said("Hello")], config={**SPEAKS, **one}, in_one_minute=True) as running,
        connected(running, headers=bearer("hs-ada")) as socket,
    ):
        for _ in range(2):
            done = await socket.turn()
            await socket.wire.send_json({"type": "response.processed", "response_id": done["id"]})
        await socket.create()
        told = await socket.error()
    assert told["error"]["code"] == "rate_limit_exceeded"  # of the third turn, which is the third message that counts


async def test_a_turn_that_is_cancelled_with_its_message_is_told_so(serve: Serve) -> None:
    async with serve(alpha=[said("Hello")], config=SPEAKS) as running, connected(running) as socket:
        await socket.create()
        await socket.wire.send_json({"type": "response.cancel"})
        told = await socket.error()
        await socket.turn("Next")
    assert told["error"]["code"] == "response_cancelled"


async def test_messages_that_nobody_reads_any_more_do_not_count(serve: Serve) -> None:
    async with serve(alpha=[said("Hello")], config=SPEAKS) as running:
        bodies = running.gateway.context.bodies
        async with connected(running) as socket:
            for _ in range(8):
                await socket.create("x" * 2_000_000)
            socket.wire.get_extra_info("socket").shutdown(2)
        await until(lambda: not bodies.size)


async def test_a_message_that_waits_for_its_turn_to_be_read_does_not_count_once_its_client_has_left(
    serve: Serve,
) -> None:
    async with serve(alpha=None, config=SPEAKS) as running:
        context = running.gateway.context
        async with connected(running) as socket:
            [own] = context.sockets._clients.values()
            async with own._reads:  # another connection of this client is read
                await socket.create("x" * 100_000)
                await until(lambda: own._reads._waiters)
                assert context.bodies.size > 100_000
                socket.wire.get_extra_info("socket").shutdown(2)
                await until(lambda: not own.open)
        assert not context.bodies.size


async def test_a_message_whose_client_leaves_while_it_is_read_is_forgotten_without_the_collector(serve: Serve) -> None:
    def known_frames() -> list[Any]:
        frames = (each for each in gc.get_objects() if isinstance(each, FrameType))
        return [each for each in frames if each.f_code is read_contents.__code__]

    async with serve(alpha=None, config=SPEAKS) as running:
        context, large = running.gateway.context, "x" * 1_000_000
        gc.collect()
        gc.disable()
        try:
            async with connected(running) as socket, context.body_work.slice():
                await socket.create(large)
                await until(lambda: context.bodies.size > len(large))
                socket.wire.get_extra_info("socket").shutdown(2)
                await until(lambda: not context.bodies.size)
            await until(lambda: not known_frames())
        finally:
            gc.enable()


async def test_named_streams_run_beside_each_other_and_one_stream_in_order(serve: Serve) -> None:
    async with serve(alpha=None) as running, connected(running) as socket:
        running["alpha"].once([RoleOnly(), Gate(running["alpha"].requested), Delta("a"), Hang()])
        await socket.create("first", stream_id="slow")
        await socket.until("response.output_text.delta")
        await socket.create("second", stream_id="slow")
        await socket.create("other", stream_id="fast")
        done = await socket.until("response.completed")
        assert done["stream_id"] == "fast"
        assert [each.body["messages"][-1]["content"] for each in running["alpha"].received] == ["first", "other"]
        await socket.wire.send_json({"type": "response.cancel", "stream_id": "slow"})
        assert (await socket.error())["stream_id"] == "slow"
        assert (await socket.until("response.completed"))["stream_id"] == "slow"
        assert running["alpha"].received[-1].body["messages"][-1]["content"] == "second"


async def test_a_conversation_is_forked_onto_another_stream(serve: Serve) -> None:
    async with serve(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        for number in range(1, 4):
            running["alpha"].once([said(f"answer {number}", f"resp_{number}")])
        async with connected(running) as socket:
            await socket.turn("plan", stream_id="planner")
            await socket.turn("gaps?", stream_id="critic", previous_response_id="resp_1")
            await socket.turn("go on", stream_id="planner", previous_response_id="resp_1")
        users = [
            [item["content"] for item in each.body["input"] if item["role"] == "user"]
            for each in running["alpha"].received[1:]
        ]
    assert users == [["plan", "gaps?"], ["plan", "go on"]]


async def test_a_connection_has_32_named_streams_and_may_go_on_with_each(serve: Serve) -> None:
    async with (
        serve(alpha=[said("Hello")], config={"providers": {"alpha": speaking("responses")}}) as running,
        connected(running) as socket,
    ):
        for number in range(32):
            await socket.turn(stream_id=f"s{number}")
        await socket.create(stream_id="one-more")
        told = await socket.error()
        await socket.turn(stream_id="s0")
        await socket.turn()
    assert (told["error"]["code"], told["stream_id"]) == ("websocket_stream_limit_reached", "one-more")


def keyed(**limits: Any) -> dict[str, Any]:
    return {"clients": {"app": {"key_sha256": sha256("hs-app"), **limits}}}


async def test_limits_count_each_turn(serve: Serve) -> None:
    async with (
        serve(alpha=None, config=keyed(rpm=2), in_one_minute=True) as running,
        connected(running, headers=bearer("hs-app")) as socket,
    ):
        await socket.turn()
        await socket.turn()
        await socket.create()
        told = await socket.error()
    assert (told["status"], told["error"]["type"]) == (429, "rate_limit_error")
    assert float(told["headers"]["retry-after"]) > 0


async def test_streams_share_max_parallel_which_counts_only_turns_that_run(serve: Serve) -> None:
    async with (
        serve(alpha=[RoleOnly(), Delta("a"), Hang()], config=keyed(max_parallel=1)) as running,
        connected(running, headers=bearer("hs-app")) as socket,
    ):
        await socket.create(stream_id="one")
        await socket.create(stream_id="one")
        await socket.until("response.output_text.delta")
        await socket.create(stream_id="two")
        told = await socket.error()
    assert (told["status"], told["stream_id"]) == (429, "two")


async def test_the_key_beside_a_proxys_authorization_opens_a_connection(serve: Serve) -> None:
    headers = {**bearer("a-token-of-some-proxy"), "x-api-key": "hs-app"}
    async with (
        serve(alpha=[said("Hi")], config={**SPEAKS, **keyed()}) as running,
        connected(running, headers=headers) as socket,
    ):
        await socket.create()
        await socket.until("response.completed")
        assert (await running.call())["client"] == "app"


async def test_a_connection_ends_with_its_key_and_its_turns_with_it(serve: Serve) -> None:
    config = in_database(app={"key_sha256": sha256("hs-app")})
    async with serve(alpha=[RoleOnly(), Delta("a"), Hang()], config=config) as running:
        async with connected(running, headers=bearer("hs-app")) as socket:
            await socket.create()
            await socket.until("response.output_text.delta")
            clients = {**running.config["clients"], "app": {"key_sha256": sha256("hs-another")}}
            running.gateway.reload(read({**running.config, "clients": clients}, running.folder))
            assert (await socket.wire.receive()).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
            await running["alpha"].reach(disconnects_mid_stream=1)
        call = await running.call()
    assert call["status_code"] == 499


async def test_a_turn_that_has_waited_counts_by_the_limits_that_hold_when_it_runs(serve: Serve) -> None:
    async with (
        serve(alpha=[RoleOnly(), Delta("a"), Hang()], config=keyed(rpm=100)) as running,
        connected(running, headers=bearer("hs-app")) as socket,
    ):
        await socket.create("first")
        await socket.until("response.output_text.delta")
        await socket.create("second")
        await socket.wire.send_json({"type": "response.nothing"})
        assert (await socket.error())["status"] == 400  # so the one before it was read
        running.gateway.reload(read({**running.config, **keyed(rpm=100, tpm=1)}, running.folder))
        await socket.wire.send_json({"type": "response.cancel"})
        assert (await socket.error())["error"]["code"] == "response_cancelled"
        assert (await socket.error())["error"]["code"] == "tokens_exceed_limit"


async def test_a_message_for_which_there_is_no_memory_is_refused_and_the_connection_stays(serve: Serve) -> None:
    async with serve(alpha=[said("Hello")], config={"providers": {"alpha": speaking("responses")}}) as running:
        running.gateway.context.bodies.most_bytes = 400_000  # 200,000 for one client
        async with connected(running) as socket:
            await socket.turn("x" * 40_000, store=False)
            await socket.create("x" * 170_000)
            told = await socket.error()
            await socket.turn("Hi")
    assert (told["status"], told["error"]["code"]) == (429, "too_many_bodies")


async def test_a_connection_runs_sixteen_turns_at_a_time_those_first_that_have_waited_longest(serve: Serve) -> None:
    async with serve(alpha=[RoleOnly(), Delta("a"), Hang()]) as running, connected(running) as socket:
        for number in [*range(17)] * 2:
            await socket.create(stream_id=f"s{number}")
        begun = {(await socket.until("response.output_text.delta"))["stream_id"] for _ in range(16)}
        assert begun == {f"s{number}" for number in range(16)}
        await socket.wire.send_json({"type": "response.cancel", "stream_id": "s0"})
        assert (await socket.error())["stream_id"] == "s0"
        assert (await socket.until("response.output_text.delta"))["stream_id"] == "s16"


async def test_a_handshake_needs_a_key_that_may_make_calls(serve: Serve) -> None:
    config = {
        "clients": {"eye": {"key_sha256": sha256("hs-eye"), "role": "viewer"}, "app": {"key_sha256": sha256("hs-app")}}
    }
    async with serve(config=config) as running:
        for headers, status in (({}, 401), (bearer("hs-nobody"), 401), (bearer("hs-eye"), 403)):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with connected(running, headers=headers):
                    pass
            assert refused.value.status == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://evil.example", 403), ("http://[x", 403), ("https://chat.example.com", 101)],
)
async def test_only_listed_web_pages_may_connect(serve: Serve, origin: str, status: int) -> None:
    async with serve(config={**keyed(), "cors": ["https://chat.example.com"]}) as running:
        try:
            async with connected(running, headers={**bearer("hs-app"), "origin": origin}) as socket:
                await socket.turn()
                found = 101
        except aiohttp.WSServerHandshakeError as error:
            found = error.status
    assert found == status


async def test_web_pages_may_not_connect_where_no_clients_are_configured(serve: Serve) -> None:
    async with serve() as running:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(running, headers={"origin": running.url}):
                pass
    assert refused.value.status == 403


async def test_headers_of_the_handshake_count_for_all_turns(serve: Serve) -> None:
    headers = {
        "x-holeshot-race": '{"mode": "single"}',
        "x-holeshot-tags": "team=blue",
        "openai-beta": "responses_websockets=2026-02-06",
    }
    async with serve(alpha=None, beta=None) as running:
        async with connected(running, headers=headers) as socket:
            await socket.turn()
            await socket.turn()
        calls = await running.rows("select mode, tags from calls")
        attempts = await running.rows("select id from attempts")
        received = [each for name in ("alpha", "beta") for each in running[name].received]
    assert [(row["mode"], json.loads(row["tags"])) for row in calls] == [("single", {"team": "blue"})] * 2
    assert len(attempts) == 2
    assert not any("openai-beta" in each.headers for each in received)


async def test_a_fallback_answers_a_turn_and_the_next_one_goes_on(serve: Serve) -> None:
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["spare"], "race": {"mode": "single"}},
        "spare": {"deployments": ["beta/m"]},
    }
    async with serve(alpha=[Status(500)], beta=None, config={"models": models}) as running:
        async with connected(running) as socket:
            response = await socket.turn()
            await socket.turn("And?", previous_response_id=response["id"])
        rows = await running.rows("select model, answered_model, status_code from calls")
        last = running["beta"].received[-1].body["messages"]
    assert [(row["model"], row["answered_model"], row["status_code"]) for row in rows] == [(MODEL, "spare", 200)] * 2
    assert [each["content"] for each in last] == ["Hi", "Hello there!", "And?"]


async def test_a_failed_call_is_an_event_with_its_status_and_the_id_of_its_row(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        async with connected(running) as socket:
            running["alpha"].once([Raw(b"data: {}\n\n")])
            await running["alpha"].__aexit__(None, None, None)
            await socket.create()
            told = await socket.error()
        call = await running.call()
    assert (told["status"], told["headers"]["x-holeshot-call-id"]) == (call["status_code"], call["id"])
    assert told["status"] >= 500


@pytest.mark.parametrize("winner", ["alpha", "beta"])
async def test_what_was_left_out_of_a_turn_is_told_with_its_first_event(serve: Serve, winner: str) -> None:
    config = {"models": {MODEL: {"race": {"mode": "race"}}}, "providers": {"alpha": speaking("responses")}}
    scripts: dict[str, Any] = {"alpha": [said("Hello")], "beta": answer("Hello")}
    loser = {"alpha": "beta", "beta": "alpha"}[winner]
    async with serve(**{**scripts, loser: [Hang()]}, config=config) as running, connected(running) as socket:
        await socket.create(truncation="auto", stream_id="s")
        told = [await socket.event()]
        while told[-1]["type"] != "response.completed":
            told.append(await socket.event())
        dropped = (await running.call())["dropped"]
    assert [each.get("headers") for each in told[1:]] == [None] * (len(told) - 1)
    assert told[0].get("headers") == ({"x-holeshot-dropped": "truncation"} if winner == "beta" else None)
    assert {each["stream_id"] for each in told} == {"s"}
    assert dropped == ('["truncation"]' if winner == "beta" else None)


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ("context_length_exceeded", "input"),
        ("cyber_policy", None),
        ("invalid_prompt", None),
        ("invalid_value", "input[1].content[0].image_url"),
        ("invalid_function_parameters", "tools[0].parameters"),
    ],
)
@pytest.mark.parametrize("is_within", [False, True], ids=["by status", "within an answer"])
async def test_a_refusal_has_the_providers_code_and_field_as_over_http(
    serve: Serve, code: str, field: str | None, *, is_within: bool
) -> None:
    error = {"type": "invalid_request_error", "code": code, "message": "No.", "param": field}
    failed = {"id": "resp_1", "object": "response", "status": "failed", "output": [], "error": error}
    within = Raw(event("response.failed", sequence_number=0, response=failed))
    async with serve(alpha=[within if is_within else Status(400, {"error": error})], config=SPEAKS) as running:
        async with running.http.post(running.url + PATH, json={"model": MODEL, "input": "Hi", "store": False}) as told:
            over_http = (await told.json())["error"]
        async with connected(running) as socket:
            await socket.create(store=False)
            over_socket = await socket.error()
    assert (over_socket["status"], over_socket["error"]) == (400, over_http)
    assert (over_http["code"], over_http["param"]) == (code, field)


async def test_a_kept_conversation_counts_in_the_budget_and_goes_with_its_connection(serve: Serve) -> None:
    async with serve(alpha=[said("Hello")], config={"providers": {"alpha": speaking("responses")}}) as running:
        bodies = running.gateway.context.bodies
        async with connected(running) as socket:
            await socket.turn("x" * 100_000, store=False)
            await until(lambda: bodies.size <= 101_000)  # without what the call itself took
            assert bodies.size > 100_000
        await until(lambda: not bodies.size)


async def test_others_have_their_turns_while_a_long_conversation_is_gone_through(serve: Serve) -> None:
    size = 3 * 2**20
    async with serve(alpha=[said("Hello")], config=SPEAKS) as running, connected(running) as socket:
        work = running.gateway.context.body_work
        await socket.turn("x" * size, store=False)
        began = work.slices
        await socket.turn("And?", previous_response_id="resp_1", store=False)
        passes = (bodies._SLICE_BYTES, recall._SLICE_BYTES)  # its values are counted, its names looked for
        copies = 4
        assert work.slices - began >= sum(size // each for each in passes) + copies


async def test_a_conversation_that_is_too_long_to_be_kept_is_not_known(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MOST_KEPT_BYTES", 1000)
    async with (
        serve(alpha=[said("Hello")], config={"providers": {"alpha": speaking("responses")}}) as running,
        connected(running) as socket,
    ):
        await socket.turn("x" * 2000, store=False)
        await socket.create(previous_response_id="resp_1", store=False)
        assert (await socket.error())["error"]["code"] == "previous_response_not_found"


async def test_idle_connections_keep_nobody_out_where_there_is_no_room_for_more(serve: Serve) -> None:
    async with serve(alpha=None) as running, connected(running) as socket:
        await socket.turn()
        running.connections.most = 1
        async with running.get("/health/live") as response:
            assert response.status == 200
        assert (await socket.wire.receive()).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}


async def test_a_connection_that_is_too_old_says_so_and_ends_when_its_turns_have(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses_socket, "LIFE_S", 0.0)
    async with serve() as running, connected(running) as socket:
        assert (await socket.error())["error"]["code"] == "websocket_connection_limit_reached"
        assert (await socket.closed())[0] == 1000


async def test_an_idle_connection_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_socket, "IDLE_S", 0.0)
    async with serve() as running, connected(running) as socket:
        assert (await socket.closed())[0] == 1000


async def test_a_silent_client_is_pinged(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_socket, "PING_S", 0.0)
    async with serve() as running, running.http.ws_connect(running.url + PATH, compress=0, autoping=False) as wire:
        assert (await wire.receive()).type is aiohttp.WSMsgType.PING


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "idle"])
async def test_a_gateway_that_stops_lets_running_turns_end_and_closes_with_1001(folder: Path, is_running: bool) -> None:
    gate = asyncio.Event()
    async with (
        ScriptedProvider([RoleOnly(), Delta("a"), Gate(gate), *answer("b")[1:]]) as provider,
        listening_gateway(folder, provider) as served,
        aiohttp.ClientSession() as http,
        http.ws_connect(served.url + PATH, compress=0, autoclose=False) as wire,
    ):
        socket = Socket(wire)
        if is_running:
            await socket.create()
            await socket.create("waits")
            await socket.until("response.output_text.delta")
        else:
            await wire.ping()
        served.stop.set()
        if is_running:
            assert (await socket.error())["error"]["code"] == "shutting_down"  # the one that waits
            gate.set()
            await socket.until("response.completed")
        assert (await socket.closed())[0] == 1001


async def test_a_turn_that_outlasts_the_grace_ends_with_an_error_and_1001(folder: Path) -> None:
    async with (
        ScriptedProvider([RoleOnly(), Delta("a"), Hang()]) as provider,
        listening_gateway(folder, provider, grace_s=0.1) as served,
        aiohttp.ClientSession() as http,
        http.ws_connect(served.url + PATH, compress=0, autoclose=False) as wire,
    ):
        socket = Socket(wire)
        await socket.create()
        await socket.until("response.output_text.delta")
        served.stop.set()
        assert (await socket.error())["error"]["code"] == "shutting_down"
        assert (await socket.closed())[0] == 1001


async def test_a_get_that_is_no_handshake_is_405_and_an_invalid_one_426(serve: Serve) -> None:
    upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
    async with serve() as running:
        async with running.get(PATH) as response:
            assert (response.status, response.headers["allow"]) == (405, "POST")
        async with running.get(PATH, headers={**upgrade, "sec-websocket-version": "13"}) as response:
            assert response.status == 426
        key = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-version": "8"}
        with_body = {**upgrade, **key, "sec-websocket-version": "13"}
        async with running.http.get(running.url + PATH, headers=with_body, data=b"x") as response:
            assert response.status == 426
        async with running.get(PATH, headers={**upgrade, **key}) as response:
            assert (response.status, response.headers["sec-websocket-version"]) == (426, "13")
