"""An answer that pauses shows its client, and all proxies on the way, that it goes on, where ``keepalive_s`` asks."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import pytest

from providers import events
from providers.simulator import Comment, Delta, Done, Drop, Finish, Gate, Hang, Raw, RoleOnly
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.broken_answers import ENDS, SAYS
from tests.app.gateway.refusals.test_meanings import ASKED
from tests.app.gateway.relayed.conftest import opened
from tests.app.gateway.relayed.samples import Open, plays
from tests.app.gateway.responses.test_responses_socket import Socket, connected
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

__all__ = ["opened"]  # a fixture

OFTEN = {"models": {MODEL: {"deployments": ["alpha/m"], "keepalive_s": 0.02}}}
SIGNS = {  # of life, in each API
    "chat": b": keep-alive\n\n",
    "completions": b": keep-alive\n\n",
    "responses": b": keep-alive\n\n",
    "messages": b'event: ping\ndata: {"type": "ping"}\n\n',
    "gemini": b"\r\n\r\n",
    "interactions": b": keep-alive\n\n",
}
SPOKEN = {"gemini": "chat", "interactions": "chat"}  # a script in the client's own API, where there is one


def url(api: str) -> tuple[str, dict[str, Any]]:
    """Return the path and the body that ask for a stream."""
    if api == "completions":
        return "/v1/completions", {"model": MODEL, "prompt": "Hi", "stream": True}
    path, fields = ASKED[api]
    if api == "gemini":
        return path.format(model=MODEL, method="streamGenerateContent") + "?alt=sse", dict(fields)
    return path, {**fields, "model": MODEL, "stream": True}


def ask(running: RunningGateway, api: str) -> Any:
    path, body = url(api)
    return running.http.post(running.url + path, json=body)


async def read_until(response: aiohttp.ClientResponse, come: bytes, *, since: bytes = b"") -> bytes:
    """Read until it has come."""
    while come not in since:
        piece = await response.content.readany()
        assert piece, since
        since += piece
    return since


def texts(stream: bytes) -> str:
    """Return what an answer's events say, whatever its API."""

    def found(value: object) -> str:
        if isinstance(value, Mapping):
            return "".join(
                each if name in {"content", "text", "delta"} and isinstance(each, str) else found(each)
                for name, each in value.items()
                if name != "response" and not str(name).endswith("_reason")
            )
        return "".join(map(found, value)) if isinstance(value, Sequence) and not isinstance(value, str) else ""

    datas = [event.data.strip() for event in events(stream) if event.data]
    told = [json.loads(data) for data in datas if data != b"[DONE]"]
    return "".join(found(each) for each in told if not str(each.get("type", "")).endswith((".done", "_item.added")))


@pytest.mark.parametrize("spoken", ["own", "other"])
@pytest.mark.parametrize("api", SIGNS)
async def test_a_pause_within_an_answer_has_signs_of_life_in_the_way_of_each_api(
    serve: Serve, api: str, spoken: str
) -> None:
    go = asyncio.Event()
    by = SPOKEN.get(api, api) if spoken == "own" else "chat" if api == "messages" else "messages"
    if api == "completions":
        by = "completions"  # nothing else is asked for it
    script = [*SAYS[by](["Let me look. "]), Gate(go), *SAYS[by](["Here it is."])[-1:], *ENDS[by]()]
    if by != "chat":  # what begins an answer is in the same step as its first text
        both = SAYS[by](["Let me look. ", "Here it is."])
        script = [both[0], Gate(go), *both[1:], *ENDS[by]()]
    providers = {} if by == "chat" else {"providers": {"alpha": speaking(by)}}
    async with serve(alpha=script, config={**OFTEN, **providers}) as running:
        async with ask(running, api) as response:
            assert response.status == 200
            before = await read_until(response, b"look.")
            pause = await read_until(response, SIGNS[api] * 2)
            go.set()
            rest = await response.read()
        assert pause.replace(SIGNS[api], b"").count(b"Here") == 0
        whole = before + pause + rest
        assert texts(whole if api == "gemini" else whole.replace(SIGNS[api], b"")) == "Let me look. Here it is."
        call = await running.call()
    assert (call["status_code"], call["error_kind"]) == (200, None)


async def test_an_array_of_gemini_has_line_breaks_between_its_elements(serve: Serve) -> None:
    go = asyncio.Event()
    script = [RoleOnly(), Delta("Let me look. "), Gate(go), Delta("Here."), Finish(), Done()]
    path, body = url("gemini")
    async with (
        serve(alpha=script, config=OFTEN) as running,
        running.http.post(running.url + path.removesuffix("?alt=sse"), json=body) as response,
    ):
        before = await read_until(response, b"look.")
        pause = await read_until(response, b"\n\n\n")
        go.set()
        whole = json.loads(before + pause + await response.read())
    assert "".join(part["text"] for each in whole for part in each["candidates"][0]["content"]["parts"]).endswith(
        "look. Here."
    )


async def test_a_provider_whose_own_comments_pass_needs_none_of_ours_and_one_that_is_translated_does(
    serve: Serve,
) -> None:
    go = asyncio.Event()
    script = [*SAYS["messages"](["Let me look."]), Raw(SIGNS["messages"]), Gate(go), *ENDS["messages"]()]
    config = {**OFTEN, "providers": {"alpha": speaking("messages")}}
    async with serve(alpha=script, config=config) as running, ask(running, "chat") as response:
        await read_until(response, SIGNS["chat"], since=(await read_until(response, b"look."))[-1:])
        go.set()
        assert b"ping" not in await response.read()


async def test_pings_keep_a_websocket_open_in_a_pause_within_a_turn(serve: Serve) -> None:
    go = asyncio.Event()
    script = [RoleOnly(), Delta("Let me look. "), Gate(go), Delta("Here."), Finish(), Done()]
    async with serve(alpha=script, config=OFTEN) as running, connected(running, autoping=False) as socket:
        await socket.create()
        kinds: list[aiohttp.WSMsgType] = []
        while kinds[-2:] != [aiohttp.WSMsgType.PING] * 2:
            message = await socket.wire.receive()
            kinds.append(message.type)
            if message.type is aiohttp.WSMsgType.TEXT and b"look" not in str(message.data).encode():
                kinds.clear()
        go.set()
        await _ended(socket)


async def _ended(socket: Socket) -> None:
    """Read to the end of the turn; pings may come between its events."""
    while True:
        message = await socket.wire.receive()
        if message.type is aiohttp.WSMsgType.TEXT and json.loads(message.data)["type"] == "response.completed":
            return


async def test_a_client_that_hangs_up_in_a_pause_stops_the_provider(serve: Serve) -> None:
    script = [RoleOnly(), Delta("Let me look."), Hang()]
    async with serve(alpha=script, config=OFTEN) as running:
        async with ask(running, "chat") as response:
            await read_until(response, SIGNS["chat"] * 2)
        await running["alpha"].reach(disconnects=1)
        assert (await running.call())["status_code"] == 499


async def test_a_sign_of_life_is_none_of_the_providers(serve: Serve) -> None:
    config = {**OFTEN, "timeouts": {"stall_timeout_s": 0.2}}
    async with serve(alpha=[RoleOnly(), Delta("Let me look."), Hang()], config=config) as running:
        async with ask(running, "chat") as response:
            last = [event.data for event in events(await response.read()) if event.data][-1]
        assert json.loads(last)["error"]["code"] == "stall_timeout"
        [attempt] = await running.rows("select outcome, error_kind, completion_tokens from attempts")
        call = await running.call()
    assert (attempt["outcome"], attempt["error_kind"]) == ("stalled", "stall_timeout")
    assert call["error_kind"] == "stall_timeout"


async def test_nothing_follows_the_end_of_an_answer(serve: Serve) -> None:
    async with serve(alpha=[RoleOnly(), Delta("Hi"), Finish(), Comment("more"), Drop()], config=OFTEN) as running:
        async with ask(running, "chat") as response:
            said = await response.read()
        assert said.endswith(b"data: [DONE]\n\n")
        async with running.chat() as response:  # on the same connection
            assert response.status == 200


async def test_events_that_pass_unread_have_comments_between_them_and_never_within_one(opened: Open) -> None:
    half, rest = asyncio.Event(), asyncio.Event()
    says = b'data: {"type":"speech.audio.delta","audio":"AAA="}'
    script = plays(says + b"\n\n" + says[:20], half, says[20:] + b"\r\n\r\n", rest, says, kind="text/event-stream")
    async with opened(alpha=[script], config=OFTEN) as (running, _):
        body = {"model": MODEL, "input": "x", "voice": "alloy", "stream_format": "sse"}
        async with running.http.post(running.url + "/v1/audio/speech", json=body) as response:
            said = await read_until(response, says[:20], since=await read_until(response, says + b"\n\n"))
            half.set()
            said = await read_until(response, b"\r\n\r\n" + SIGNS["chat"] * 2, since=said)
            rest.set()
            said += await response.read()
    assert [event.data.strip() for event in events(said) if event.data] == [says.removeprefix(b"data: ")] * 3


async def test_a_sound_and_a_model_that_does_not_ask_for_it_have_none(opened: Open) -> None:
    go = asyncio.Event()
    says = b'data: {"type":"speech.audio.delta","audio":"AAA="}\n\n'
    events_, sound = plays(says, go, says, kind="text/event-stream"), plays(b"ID3 sound ", go, b"goes on")
    models = {**OFTEN["models"], "silent": {"deployments": ["alpha/m"]}}
    async with opened(alpha=[sound, events_, events_], config={"models": models}) as (running, _):
        body = {"model": MODEL, "input": "x", "voice": "alloy"}
        path = running.url + "/v1/audio/speech"
        as_events = {**body, "stream_format": "sse"}
        async with (
            running.http.post(path, json=body) as heard,
            running.http.post(path, json={**as_events, "model": "silent"}) as silent,
            running.http.post(path, json=as_events) as often,
        ):
            await read_until(often, SIGNS["chat"] * 3)
            go.set()
            assert await heard.read() == b"ID3 sound goes on"
            assert await silent.read() == says * 2


async def test_a_stream_of_a_model_that_does_not_ask_for_them_has_no_comments(serve: Serve) -> None:
    go = asyncio.Event()
    script = [RoleOnly(), Delta("Let me look."), Gate(go), Finish(), Done()]
    models = {**OFTEN["models"], "silent": {"deployments": ["alpha/m"]}}
    async with (
        serve(alpha=script, config={"models": models}) as running,
        running.chat(stream=True, model="silent") as silent,
        running.chat(stream=True) as often,
    ):
        await read_until(often, SIGNS["chat"] * 3)
        go.set()
        assert b": keep-alive" not in await silent.read()


async def test_the_comments_go_on_in_an_answer_that_another_provider_has_taken_over(serve: Serve) -> None:
    seen, go = asyncio.Event(), asyncio.Event()
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "beta")]
    model = {"race": {"mode": "single", "budget": 0}, "takeover": True, "deployments": deployments}
    breaks = [RoleOnly(), Delta("The quick bro"), Gate(seen), Drop()]
    goes_on = [RoleOnly(), Delta(" brown"), Gate(go), Delta(" fox"), Finish(), Done()]
    config = {"models": {MODEL: {**model, "keepalive_s": 0.02}}}
    async with serve(alpha=breaks, beta=goes_on, config=config) as running:
        running.prefer("alpha", "beta")
        async with ask(running, "chat") as response:
            said = await read_until(response, b"bro")
            seen.set()
            said += await read_until(response, SIGNS["chat"] * 2, since=await read_until(response, b"wn"))
            go.set()
            said += await response.read()
        assert texts(said) == "The quick brown fox"
        assert (await running.call())["takeover"] == "finished"
