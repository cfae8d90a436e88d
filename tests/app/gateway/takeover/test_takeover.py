"""An answer that breaks is finished by another provider, over real sockets."""

import asyncio
import json
from io import BytesIO
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from providers.simulator import (
    Delta,
    Done,
    Drop,
    ErrorEvent,
    Finish,
    Gate,
    Hang,
    JsonEvent,
    Raw,
    Reasoning,
    RoleOnly,
    Status,
    Step,
    ToolCall,
    UsageChunk,
    answer,
)
from tests.app.gateway.broken_answers import BODIES, Seen
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body
from tests.patience import eventually, until
from tests.unit.providers.bodies.inside.test_room import full

WHOLE = "The quick brown fox jumps over the lazy dog."
BROKEN = "The quick bro"
AGAIN = 1  # token: " bro" is written twice, and read once


SEEN = Seen()


@pytest.fixture(autouse=True)
def nothing_is_seen() -> None:
    SEEN.event = asyncio.Event()


def allowed(**more: Any) -> dict[str, Any]:
    """Ask one after the other, without rescues, and take over; both providers continue by prefix."""
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "beta")]
    return {
        "models": {
            MODEL: {"race": {"mode": "single", "budget": 0}, "takeover": True, "deployments": deployments, **more}
        }
    }


def pieces(text: str, size: int = 5) -> list[Step]:
    return [Delta(text[at : at + size]) for at in range(0, len(text), size)]


def half(*breaks: Step) -> list[Step]:
    return [RoleOnly(), *pieces(BROKEN), Gate(SEEN.event), *breaks]


def whole(text: str) -> list[Step]:
    return [RoleOnly(), *pieces(text), Finish(), Done()]


def holding(**delta: Any) -> dict[str, Any]:
    """Return a chunk with this delta."""
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta}]}


async def told(running: RunningGateway, **fields: Any) -> tuple[str, list[dict[str, Any]], bool]:
    """Return the text, the events, and whether the stream ended as a whole answer does."""
    running.prefer("alpha", "beta")
    async with running.chat(stream=True, **fields) as response:
        assert response.status == 200
        came = ""
        # What is still on its way when a connection is reset may be lost with it.
        while BROKEN[10:] not in came and (block := await response.content.readany()):
            came += block.decode()
        SEEN.event.set()  # what breaks now has been committed
        came += (await response.read()).decode()
        data = [line[6:] for line in came.split("\n") if line.startswith("data: ")]
    events = [json.loads(each) for each in data if each != "[DONE]"]
    choices = [choice for event in events for choice in event.get("choices", ())]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    return text, events, data[-1] == "[DONE]"


async def test_without_memory_for_a_long_prompt_and_what_was_delivered_the_answer_ends_as_it_broke(
    serve: Serve,
) -> None:
    asked = chat_body(stream=True, messages=[{"role": "user", "content": "a" * 2_000_000}])
    async with serve(alpha=half(ErrorEvent()), beta=whole(" brown fox"), config=allowed()) as running:
        running.prefer("alpha", "beta")
        async with running.post(BytesIO(json.dumps(asked).encode())) as response:
            came = await response.content.readuntil(b"bro")
            with full():
                SEEN.event.set()
                came += await response.read()
        assert b'"error"' in came
        assert not running["beta"].received
        (call,) = await running.rows("select takeover, error_kind from calls")
    assert (call["takeover"], call["error_kind"]) == ("nobody", "server_error")


@pytest.mark.parametrize("status", [401, 429])
async def test_whoever_continues_it_may_do_so_with_its_next_key(serve: Serve, status: int) -> None:
    ring = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789"]}
    config = {**allowed(), "providers": {"beta": ring}}
    async with serve(alpha=half(Drop()), beta=whole(" brown fox jumps over the lazy dog."), config=config) as running:
        running["beta"].once([Status(status)])
        text, _, is_whole = await told(running)
        assert (text, is_whole) == (WHOLE, True)
        rows = await running.rows("select role, continues, counts_as, error_kind from attempts order by number")
        first, refused, last = (tuple(each.values()) for each in rows)
        assert (first[0], refused[0], last[0]) == ("primary", "takeover", "key")
        assert refused[1] == last[1] is not None
        assert (refused[3], last[2:]) == ("key_refused", ("takeover", None))
        [call] = await running.rows("select takeover, takeovers, launched, extras from calls")
        assert tuple(call.values()) == ("finished", 1, 3, 0)


@pytest.mark.parametrize("breaks", [[Drop()], [ErrorEvent()], []], ids=["reset", "error", "no end"])
@pytest.mark.parametrize("rest", [" brown fox jumps over the lazy dog.", "brown fox jumps over the lazy dog."])
async def test_another_provider_finishes_it_and_no_character_is_wrong(
    serve: Serve, breaks: list[Step], rest: str
) -> None:
    async with serve(alpha=half(*breaks), beta=whole(rest), config=allowed()) as running:
        text, events, is_whole = await told(running)
        assert (text, is_whole) == (WHOLE, True)
        assert len({(event["id"], event["model"]) for event in events}) == 1
        assert [choice["finish_reason"] for event in events for choice in event["choices"]][-1] == "stop"
        asked = running["beta"].received[-1].body
        assert asked["messages"][-1] == {"role": "assistant", "content": "The quick", "prefix": True}
        (call,) = await running.rows("select * from calls")
        first, second = await running.rows("select * from attempts order by number")
        assert (call["status_code"], call["error_kind"], call["takeover"], call["takeovers"]) == (
            200,
            None,
            "finished",
            1,
        )
        assert (call["winner_attempt_id"], call["tokens_source"]) == (second["id"], "estimated")
        assert (second["role"], second["outcome"], second["continues"]) == ("takeover", "won", first["id"])
        assert first["outcome"] == "failed"
        assert call["ttft_ms"] == pytest.approx(first["launch_offset_ms"] + first["ttft_ms"], abs=5)


@pytest.mark.parametrize(
    "rest",
    [
        whole("wn fox"),
        whole("The quick brown fox"),
        [Reasoning(" bro"), *whole(" brown fox")],
        [Drop()],
        answer("Sure"),
        [JsonEvent(holding(content=[{"type": "text", "text": " brown fox."}]), token=True), Finish(), Done()],
        [JsonEvent(holding(images=[{"type": "image_url"}]), token=True), *whole(" brown fox.")],
    ],
    ids=["no tail", "anew", "reasoning", "broken", "other", "parts", "picture"],
)
async def test_who_does_not_continue_it_is_not_heard_and_the_client_is_told(serve: Serve, rest: list[Step]) -> None:
    async with serve(alpha=half(Drop()), beta=rest, config=allowed()) as running:
        text, events, is_whole = await told(running)
        assert (text, is_whole) == (BROKEN, False)
        assert "error" in events[-1]
        (call,) = await running.rows("select * from calls")
        assert (call["takeover"], call["error_kind"]) == ("failed", "disconnected")


async def test_the_id_is_that_of_the_text_and_not_of_what_azure_sends_before_it(serve: Serve) -> None:
    filtered = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    alpha = [JsonEvent(filtered), *half(Drop())]
    async with serve(alpha=alpha, beta=whole(" brown fox jumps over the lazy dog."), config=allowed()) as running:
        text, events, is_whole = await told(running)
        assert (text, is_whole) == (WHOLE, True)
        first, *others = events
        assert first == filtered
        assert {(event["id"], event["object"]) for event in others} == {("chatcmpl-1", "chat.completion.chunk")}


async def test_a_continuation_that_ends_with_a_tool_call_is_not_whole(serve: Serve) -> None:
    more = asyncio.Event()
    ends = [({"content": " z"}, None), (ToolCall("{}", name="f").delta, None), ({}, "tool_calls")]
    choices = [{"index": 0, "delta": delta, "finish_reason": reason} for delta, reason in ends]
    last = b"".join(b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode() for choice in choices)
    beta = [RoleOnly(), Delta(" brown fox"), Gate(more), Raw(last + b"data: [DONE]\n\n")]
    async with serve(alpha=half(Drop()), beta=beta, config=allowed()) as running:
        running.prefer("alpha", "beta")
        async with running.chat(stream=True) as response:
            came = b""
            while b"wn fox" not in came:
                came += await response.content.readany()
                SEEN.event.set()
            more.set()
            came += await response.read()
        assert (b'"error"' in came, b"[DONE]" in came) == (True, False)
        call = await running.call()
        assert (call["takeover"], call["error_kind"]) == ("failed", "invalid_response")


async def test_each_who_is_asked_to_go_on_has_the_role_of_a_takeover(serve: Serve) -> None:
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "beta", "gamma")]
    config = allowed(deployments=deployments)
    rest = whole(" brown fox jumps over the lazy dog.")
    async with serve(alpha=half(Drop()), beta=whole("Sure"), gamma=rest, config=config) as running:
        assert (await told(running, provider={"order": ["alpha", "beta", "gamma"]}))[0] == WHOLE
        attempts = await running.rows("select provider, role, continues from attempts order by number")
        assert [each["role"] for each in attempts] == ["primary", "takeover", "takeover"]
        assert len({each["continues"] for each in attempts[1:]}) == 1


async def test_who_has_failed_in_this_call_is_asked_after_all_others(serve: Serve) -> None:
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "beta", "gamma")]
    scripts: dict[str, Any] = {"alpha": half(Drop()), "beta": [RoleOnly(), Delta(" brown fox jum"), Drop()]}
    async with serve(
        **scripts, gamma=whole(" jumps over the lazy dog."), config=allowed(deployments=deployments)
    ) as running:
        assert (await told(running, provider={"order": ["alpha", "beta", "gamma"]}))[0] == WHOLE
        attempts = await running.rows("select provider from attempts order by number")
        assert [each["provider"] for each in attempts] == ["alpha", "beta", "gamma"]


async def test_who_sends_spaces_without_end_is_not_waited_for(serve: Serve) -> None:
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "beta", "gamma")]
    config = allowed(deployments=deployments, takeover={"when": "always", "within_s": 120})
    scripts: dict[str, Any] = {"alpha": half(Drop()), "beta": [RoleOnly(), *[Delta(" " * 100)] * 2, Hang()]}
    rest = whole(" brown fox jumps over the lazy dog.")
    async with serve(**scripts, gamma=rest, config=config) as running:
        assert (await told(running, provider={"order": ["alpha", "beta", "gamma"]}))[0] == WHOLE
        kinds = await running.rows("select error_kind from attempts order by number")
        assert [each["error_kind"] for each in kinds] == ["disconnected", "invalid_response", None]


async def test_providers_that_all_break_cost_two_takeovers_each_of_which_is_an_attempt(serve: Serve) -> None:
    names = ("alpha", "beta", "gamma", "delta")
    price = {"price_per_mtok": {"input": 1, "output": 1}}
    deployments = [{"deployment": f"{name}/m", "continues": "prefix", **price} for name in names]
    parts = {"beta": " brown fox jum", "gamma": " jumps ov", "delta": " over the"}
    scripts: dict[str, Any] = {name: [RoleOnly(), Delta(text), Drop()] for name, text in parts.items()}
    async with serve(alpha=half(Drop()), **scripts, config=allowed(deployments=deployments)) as running:
        text, events, is_whole = await told(running, provider={"order": names})
        assert (text, is_whole) == ("The quick brown fox jumps ov", False)
        assert events[-1]["error"]["code"] == "disconnected"
        (call,) = await running.rows("select * from calls")
        attempts = await running.rows("select * from attempts order by number")
        assert (call["takeover"], call["takeovers"]) == ("broke_again", 2)
        assert [each["provider"] for each in attempts] == ["alpha", "beta", "gamma"]
        assert running["delta"].counts.requests == 0
        assert call["cost_usd"] == pytest.approx(sum(each["cost_usd"] for each in attempts))
        assert all(each["cost_usd"] > 0 for each in attempts)


async def test_tokens_that_were_reported_and_not_sent_do_not_use_up_the_limit_of_an_answer(serve: Serve) -> None:
    reported = {"prompt_tokens": 10, "completion_tokens": 90, "total_tokens": 100}
    lying = [RoleOnly(), *pieces(BROKEN), JsonEvent({"choices": [], "usage": reported}), Gate(SEEN.event), Drop()]
    async with serve(alpha=lying, beta=whole(" brown fox jumps over the lazy dog."), config=allowed()) as running:
        assert (await told(running, max_tokens=100))[0] == WHOLE
        assert running["beta"].received[-1].body["max_tokens"] == 100 - len(BROKEN)


async def test_who_stops_within_the_last_word_is_not_waited_for(serve: Serve) -> None:
    config = allowed(takeover={"when": "always", "within_s": 1.0})
    async with serve(alpha=half(Drop()), beta=[RoleOnly(), Delta(" b"), Hang()], config=config) as running:
        text, events, is_whole = await told(running)
        assert (text, is_whole) == (BROKEN, False)
        assert events[-1]["error"]["code"] == "disconnected"
        assert (await running.call())["takeover"] == "failed"
        _, second = await running.rows("select outcome, error_kind from attempts order by number")
        assert (second["outcome"], second["error_kind"]) == ("timeout", "ttft_timeout")
        await running["beta"].reach(disconnects=1)


async def test_nobody_waits_long_for_a_free_seat_in_the_middle_of_an_answer(serve: Serve) -> None:
    config = allowed(takeover={"when": "always", "within_s": 1.0})
    config["models"][MODEL]["deployments"][1]["max_in_flight"] = 1
    config["queue_timeout_s"] = 60
    scripts: dict[str, Any] = {"alpha": half(Drop()), "beta": [RoleOnly(), Hang()]}
    async with serve(**scripts, config=config) as running:
        async with asyncio.TaskGroup() as tasks:
            taken = tasks.create_task(told(running, provider={"only": ["beta"]}))
            await running["beta"].requested.wait()
            text, _, is_whole = await told(running, provider={"order": ["alpha", "beta"]})
            assert (text, is_whole) == (BROKEN, False)
            taken.cancel()
        assert len(running["beta"].received) == 1


async def test_two_continuations_without_a_word_end_with_the_error(serve: Serve) -> None:
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "beta", "gamma")]
    scripts: dict[str, Any] = {"alpha": half(Drop()), "beta": whole(""), "gamma": whole("")}
    async with serve(**scripts, config=allowed(deployments=deployments)) as running:
        text, events, is_whole = await told(running)
        assert (text, is_whole) == (BROKEN, False)
        assert "error" in events[-1]
        assert (len(running["beta"].received), len(running["gamma"].received)) == (1, 1)
        assert (await running.call())["takeover"] == "failed"


async def test_a_client_that_leaves_before_it_is_finished_is_not_counted_as_finished(serve: Serve) -> None:
    hold = asyncio.Event()
    scripts: dict[str, Any] = {"alpha": half(Drop()), "beta": [RoleOnly(), Gate(hold)]}
    async with serve(**scripts, config=allowed()) as running:
        running.prefer("alpha", "beta")
        async with running.chat(stream=True) as response:
            await response.content.readany()
            SEEN.event.set()
            await until(lambda: running["beta"].received)
            response.close()
        calls = await eventually(lambda: running.rows("select * from calls"))
        assert [(call["takeover"], call["error_kind"]) for call in calls] == [("left", "client_disconnected")]
        assert calls[0]["completion_tokens"] == -(-len(BROKEN) // 4)
        hold.set()


@pytest.mark.parametrize("instant", range(1, 4))
async def test_a_client_that_leaves_as_nobody_can_finish_it_is_no_crash(serve: Serve, instant: int) -> None:
    deployments = [{"deployment": "alpha/m", "continues": "prefix"}, "beta/m"]  # nobody goes on with alpha's
    async with serve(alpha=half(Drop()), beta=None, config=allowed(deployments=deployments)) as running:
        services, looks = running.gateway.context.services, 0

        def clock() -> float:
            """Abort the client's connection at one of the looks at the clock after its answer broke off."""
            nonlocal looks
            looks += running["alpha"].counts.errors
            if looks == instant:
                for connection in running.connections._all:
                    if connection.transport is not None:
                        connection.transport.abort()
            return services.clock()

        running.gateway.context.services = structs.replace(services, clock=clock)
        with pytest.raises(aiohttp.ClientError):
            await told(running)
        assert (await running.call())["error_kind"] in {"disconnected", "client_disconnected"}


async def test_before_anything_was_to_be_seen_it_starts_anew_unseen(serve: Serve) -> None:
    async with serve(
        alpha=[RoleOnly(), Reasoning(""), Delta("H"), Drop()], beta=whole("Hello."), config=allowed()
    ) as running:
        assert (await told(running))[0] == "Hello."


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
    ],
)
async def test_what_is_more_than_text_ends_where_it_breaks(serve: Serve, fields: dict[str, Any], reason: str) -> None:
    async with serve(alpha=half(Drop()), beta=whole(" brown fox."), config=allowed()) as running:
        assert (await told(running, **fields))[2] is False
        (call,) = await running.rows("select * from calls")
        assert (call["takeover"], call["takeovers"]) == (reason, None)


async def test_a_request_may_switch_it_off_and_on_only_where_that_is_allowed(serve: Serve) -> None:
    scripts: dict[str, Any] = {"alpha": half(Drop()), "beta": whole(" brown fox jumps over the lazy dog.")}
    async with serve(**scripts, config=allowed()) as running:
        assert (await told(running, race={"takeover": False}))[0] == BROKEN
    async with serve(**scripts, config=allowed(takeover="asked")) as running:
        assert (await told(running))[0] == BROKEN
        assert (await told(running, race={"takeover": True}))[0] == WHOLE
    async with serve(**scripts, config=allowed(takeover=False)) as running:
        async with running.chat(stream=True, race={"takeover": True}) as response:
            assert response.status == 400
            assert "takeover is not allowed" in (await response.json())["error"]["message"]
        assert not running["alpha"].received


@pytest.mark.parametrize(("own", "of_fallback"), [("always", "never"), ("never", "always")])
async def test_the_switch_is_that_of_the_model_which_answers(serve: Serve, own: str, of_fallback: str) -> None:
    config = allowed(takeover=of_fallback)
    config["models"] = {
        MODEL: {"deployments": ["gamma/m"], "takeover": own, "race": {"mode": "single"}, "fallbacks": ["other"]},
        "other": config["models"][MODEL],
    }
    scripts: dict[str, Any] = {"alpha": half(Drop()), "beta": whole(" brown fox jumps over the lazy dog.")}
    async with serve(**scripts, gamma=[Status(500)], config=config) as running:
        is_on = of_fallback == "always"
        text, _, is_whole = await told(running, provider={"order": ["gamma", "alpha", "beta"]})
        assert (text, is_whole) == ((WHOLE, True) if is_on else (BROKEN, False))
        assert (await running.call())["takeover"] == ("finished" if is_on else None)


@pytest.mark.parametrize("sent", [None, 33])
async def test_the_client_and_the_ledger_count_the_same_tokens(serve: Serve, sent: int | None) -> None:
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "beta", "gamma")]
    anew = [RoleOnly(), Delta("Certainly, here it is: " * 9), Finish("length"), UsageChunk(500, 400), Done()]
    rest = whole(" brown fox jumps over the lazy dog.")
    gamma = rest if sent is None else [*rest[:-1], UsageChunk(sent, 9), Done()]
    scripts: dict[str, Any] = {"alpha": half(Drop()), "beta": anew, "gamma": gamma}
    async with serve(**scripts, config=allowed(deployments=deployments)) as running:
        order = {"order": ["alpha", "beta", "gamma"]}
        _, events, _ = await told(running, provider=order, stream_options={"include_usage": True})
        usage = events[-1]["usage"]
        call = await running.call()
        assert (call["prompt_tokens"], call["completion_tokens"]) == (
            usage["prompt_tokens"],
            usage["completion_tokens"],
        )
        delivered = -(-len(BROKEN) // 4)
        assert usage["completion_tokens"] == delivered + 9 - AGAIN
        first, _, last = await running.rows("select prompt_tokens from attempts order by number")
        assert first["prompt_tokens"] == call["prompt_tokens"] == last["prompt_tokens"] - delivered
        assert sent in {None, last["prompt_tokens"]}


async def test_usage_is_of_the_whole_and_the_limit_is_less_by_what_was_delivered(serve: Serve) -> None:
    async with serve(
        alpha=half(Drop()), beta=whole(" brown fox jumps over the lazy dog."), config=allowed()
    ) as running:
        _, events, _ = await told(running, max_tokens=100, stream_options={"include_usage": True})
        delivered = -(-len(BROKEN) // 4)
        assert running["beta"].received[-1].body["max_tokens"] == 100 - delivered
        assert events[-1]["usage"]["completion_tokens"] >= delivered


@pytest.mark.parametrize("code", [401, 403, 404, 408, 409, 429])
async def test_an_error_with_a_number_that_is_not_the_requests_own_is_taken_over(serve: Serve, code: int) -> None:
    rest = whole(" brown fox jumps over the lazy dog.")
    async with serve(alpha=half(ErrorEvent("no", code)), beta=rest, config=allowed()) as running:
        assert (await told(running))[0] == WHOLE


@pytest.mark.parametrize("code", [400, 413, 422])
async def test_an_error_of_the_request_itself_ends_it(serve: Serve, code: int) -> None:
    async with serve(alpha=half(ErrorEvent("no", code)), beta=whole(" brown fox"), config=allowed()) as running:
        assert (await told(running))[2] is False
        assert (await running.call())["takeover"] == "kind_of_error"


async def test_an_event_that_only_its_name_calls_an_error_is_one(serve: Serve) -> None:
    error = Raw(b'event: error\ndata: {"message": "gone"}\n\n')
    async with serve(alpha=half(error), beta=whole(" brown fox jumps over the lazy dog."), config=allowed()) as running:
        assert (await told(running))[0] == WHOLE
        first, _ = await running.rows("select error_kind from attempts order by number")
        assert first["error_kind"] == "stream_error"


async def test_a_continuation_that_its_limit_cuts_short_within_the_last_word_ends_with_length(serve: Serve) -> None:
    beta = [RoleOnly(), Delta(" bro"), Finish("length"), Done()]
    async with serve(alpha=half(Drop()), beta=beta, config=allowed()) as running:
        text, events, is_whole = await told(running, max_tokens=5)
        assert (text, is_whole) == (BROKEN, True)
        assert [choice["finish_reason"] for event in events for choice in event["choices"]][-1] == "length"


async def test_a_translated_continuation_that_breaks_after_its_end_within_the_last_word_is_no_crash(
    serve: Serve,
) -> None:
    beta = [RoleOnly(), Delta(" b"), Finish(), Drop()]  # its finish reason is held back, and read when it breaks
    async with serve(alpha=half(Drop()), beta=beta, config=allowed()) as running:
        running.prefer("alpha", "beta")
        body = {"model": MODEL, "stream": True, **BODIES["messages"]}
        async with running.post(body, path="/v1/messages") as response:
            came = b""
            while b"bro" not in came:
                came += await response.content.readany()
            SEEN.event.set()
            came += await response.read()
        assert (b"event: error" in came, b"message_stop" in came) == (True, False)
        call = await running.call()
        assert (call["status_code"], call["takeover"], call["error_kind"]) == (200, "failed", "disconnected")


async def test_the_first_who_is_asked_to_go_on_keeps_all_of_the_time(serve: Serve) -> None:
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "beta", "gamma")]
    config = allowed(deployments=deployments, takeover={"when": "always", "within_s": 8.0})
    both = asyncio.Event()
    beta = [Gate(both), *whole(" brown fox jumps over the lazy dog.")]
    async with serve(alpha=half(Drop()), beta=beta, gamma=[Hang()], config=config) as running:
        async with asyncio.TaskGroup() as tasks:
            answered = tasks.create_task(told(running, provider={"order": ["alpha", "beta", "gamma"]}))
            await running["gamma"].requested.wait()  # half of the time is over
            both.set()
        assert answered.result()[0] == WHOLE
        attempts = await running.rows("select provider, outcome from attempts order by number")
        assert [(each["provider"], each["outcome"]) for each in attempts] == [
            ("alpha", "failed"),
            ("beta", "won"),
            ("gamma", "lost"),
        ]


# A fallback finishes it.

REST = " brown fox jumps over the lazy dog."
OTHER, THIRD = "other", "third"


def falling_back(*, other: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    """Return a configuration in which MODEL, at ``alpha``, has the fallbacks OTHER, at ``beta``, and THIRD."""
    single = {"race": {"mode": "single", "budget": 0}}
    models: dict[str, dict[str, Any]] = {
        name: {"deployments": [{"deployment": f"{provider}/m", "continues": "prefix"}], **single}
        for name, provider in ((MODEL, "alpha"), (OTHER, "beta"), (THIRD, "gamma"))
    }
    models[MODEL] |= {"takeover": True, "fallbacks": [OTHER, THIRD], **model}
    models[OTHER] |= other or {}
    return {"models": models}


async def models_asked(running: RunningGateway) -> list[tuple[str, str, str]]:
    rows = await running.rows("select model, role, outcome from attempts order by number")
    return [(row["model"], row["role"], row["outcome"]) for row in rows]


BROKE = (MODEL, "primary", "failed")


async def test_a_fallback_finishes_the_answer_of_a_model_with_one_deployment(serve: Serve) -> None:
    config = falling_back(other={"maximums": {"max_tokens": 50}})
    async with serve(alpha=half(Drop()), beta=whole(REST), gamma=None, config=config) as running:
        text, events, is_whole = await told(running, max_tokens=200)
        assert (text, is_whole) == (WHOLE, True)
        assert len({(event["id"], event["model"]) for event in events}) == 1
        sent = running["beta"].received[-1].body
        assert sent["messages"][-1] == {"role": "assistant", "content": "The quick", "prefix": True}
        assert sent["max_tokens"] < 50
        assert await models_asked(running) == [BROKE, (OTHER, "takeover", "won")]
        call = await running.call()
        assert (call["model"], call["answered_model"], call["takeover"]) == (MODEL, None, "finished")
        assert (call["error_kind"], call["takeovers"]) == (None, 1)


async def test_before_anything_was_to_be_seen_a_fallback_gives_the_whole_answer(serve: Serve) -> None:
    begun: list[Step] = [RoleOnly(), Delta("\n"), Drop()]
    async with serve(alpha=begun, beta=whole("\n" + WHOLE), gamma=None, config=falling_back()) as running:
        SEEN.event.set()
        async with running.chat(stream=True) as response:
            assert b"[DONE]" in await response.read()
        assert await models_asked(running) == [BROKE, (OTHER, "takeover", "won")]


async def test_the_models_own_deployments_are_asked_before_those_of_fallbacks(serve: Serve) -> None:
    own = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("alpha", "gamma")]
    config = falling_back(deployments=own, fallbacks=[OTHER])
    async with serve(alpha=half(Drop()), gamma=[Status(500)], beta=whole(REST), config=config) as running:
        running.prefer("alpha", "gamma")
        assert (await told(running))[0] == WHOLE
        asked = [BROKE, (MODEL, "takeover", "failed"), (OTHER, "takeover", "won")]
        assert await models_asked(running) == asked


async def test_each_fallback_is_asked_until_one_continues(serve: Serve) -> None:
    async with serve(alpha=half(Drop()), beta=answer("Sure"), gamma=whole(REST), config=falling_back()) as running:
        assert (await told(running))[0] == WHOLE
        asked = [BROKE, (OTHER, "takeover", "failed"), (THIRD, "takeover", "won")]
        assert await models_asked(running) == asked


@pytest.mark.parametrize(
    "config",
    [
        falling_back(other={"takeover": False}),
        falling_back(other={"takeover": "asked"}),
        falling_back(fallbacks=[{"model": OTHER, "causes": ["context"]}, THIRD]),
        falling_back(other={"deployments": [{"deployment": "beta/m", "continues": "no"}]}),
        falling_back(
            other={
                "deployments": [{"deployment": "beta/m", "capabilities": {"context_tokens": 10}, "continues": "prefix"}]
            }
        ),
        falling_back(
            other={
                "deployments": [
                    {
                        "deployment": "beta/m",
                        "continues": "prefix",
                        "price_per_mtok": {"input": 1e6, "output": 1e6},
                    }
                ],
                "usd_per_day": 1e-9,
            }
        ),
    ],
    ids=["never", "not asked", "cause", "does not continue", "does not fit", "no money"],
)
async def test_a_fallback_that_may_not_finish_it_is_passed_over(serve: Serve, config: dict[str, Any]) -> None:
    async with serve(alpha=half(Drop()), beta=whole(REST), gamma=whole(REST), config=config) as running:
        messages = [{"role": "user", "content": "word " * 100}]
        assert (await told(running, messages=messages))[0] == WHOLE
        assert await models_asked(running) == [BROKE, (THIRD, "takeover", "won")]


async def test_a_request_that_declines_takeover_has_no_fallback_finish_it(serve: Serve) -> None:
    async with serve(alpha=half(Drop()), beta=whole(REST), gamma=None, config=falling_back()) as running:
        assert (await told(running, race={"takeover": False}))[0] == BROKEN
        assert await models_asked(running) == [BROKE]


async def test_a_fallback_that_breaks_as_well_is_continued_by_the_next(serve: Serve) -> None:
    more: list[Step] = [RoleOnly(), *pieces(" brown fox jum"), Drop()]
    last = whole(" jumps over the lazy dog.")
    async with serve(alpha=half(Drop()), beta=more, gamma=last, config=falling_back()) as running:
        text, _, is_whole = await told(running)
        assert (text, is_whole) == (WHOLE, True)
        asked = [BROKE, (OTHER, "takeover", "failed"), (THIRD, "takeover", "won")]
        assert await models_asked(running) == asked
        assert running.gateway.context.limits._holds == {}


async def test_one_that_was_asked_beside_it_in_vain_may_finish_it(serve: Serve) -> None:
    async with serve(
        alpha=None, beta=None, gamma=None, config=falling_back(fallback_after=0.05, fallbacks=[OTHER])
    ) as running:
        lost = asyncio.Event()
        running["beta"].script = [Hang()]
        running["alpha"].script = [Gate(running["beta"].requested), *half(Gate(lost), Drop())]
        asking = asyncio.create_task(told(running))
        await running["beta"].disconnected.wait()
        running["beta"].script = whole(REST)
        lost.set()
        assert (await asking)[0] == WHOLE
        asked = [BROKE, (OTHER, "fallback", "lost"), (OTHER, "takeover", "won")]
        assert await models_asked(running) == asked


async def test_a_call_that_has_made_as_many_requests_as_it_may_ends_as_it_broke(serve: Serve) -> None:
    seats = [{"deployment": f"{name}/m", "continues": "prefix", "max_in_flight": 4} for name in ("alpha", "beta")]
    config = {**allowed(deployments=seats), "max_requests": 1}
    async with serve(alpha=half(ErrorEvent()), beta=whole(" brown fox"), config=config) as running:
        text, events, is_whole = await told(running)
        assert (text, "error" in events[-1], is_whole) == (BROKEN, True, False)
        assert not running["beta"].received
        (call,) = await running.rows("select takeover, error_kind from calls")
    assert call["error_kind"] == "server_error"
