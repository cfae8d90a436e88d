"""An answer that breaks is finished by another provider in every API, whichever API the providers have."""

import asyncio
import json
from typing import Any

import pytest

from providers import events
from providers.simulator import Drop, Gate, JsonEvent, Raw, Step
from tests.app.gateway.apis.test_dialects import event
from tests.app.gateway.broken_answers import (
    BODIES,
    ENDS,
    SAYS,
    TOKENS,
    WAYS,
    Seen,
    message,
    message_end,
    pieces,
    response,
    response_end,
    text_in,
)
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

WHOLE = "The quick brown fox jumps over the lazy dog."
BROKEN = "The quick bro"
PREFIX = "The quick"
REST = " brown fox jumps over the lazy dog."
SEEN = Seen()
SPENT = -(-len(BROKEN) // 4)
AGAIN = SPENT - -(-len(PREFIX) // 4)  # the last word is written twice, and read once


@pytest.fixture(autouse=True)
def nothing_is_seen() -> None:
    SEEN.event = asyncio.Event()


def config(alpha: str, beta: str, way: str | None = None) -> dict[str, Any]:
    """Ask alpha, then beta; each speaks one API. None: nobody is known to continue."""
    deployments = [{"deployment": f"{name}/m", **({"continues": way} if way else {})} for name in ("alpha", "beta")]
    return {
        "providers": {"alpha": {"apis": [alpha]}, "beta": {"apis": [beta]}},
        "models": {MODEL: {"race": {"mode": "single"}, "takeover": True, "deployments": deployments}},
    }


def half(api: str, text: str = BROKEN, *breaks: Step) -> list[Step]:
    return [*SAYS[api](pieces(text)), Gate(SEEN.event), *(breaks or [Drop()])]


def whole(api: str, text: str = REST) -> list[Step]:
    return [*SAYS[api](pieces(text)), *ENDS[api]()]


async def told(running: RunningGateway, path: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the data of the events."""
    running.prefer("alpha", "beta")
    body = {"model": MODEL, "stream": True, **BODIES[path], **fields}
    async with running.post(body, path=f"/v1/{path}") as response:
        assert response.status == 200, await response.text()
        came = await response.content.readany()
        SEEN.event.set()
        came += await response.read()
    return [json.loads(each.data) for each in events(came) if each.data.strip() not in {b"", b"[DONE]"}]


CASES = [
    (path, alpha, beta)
    for path in BODIES
    for alpha in (("completions",) if path == "completions" else ("chat", "messages", "responses"))
    for beta in (("completions",) if path == "completions" else ("chat", "messages", "responses"))
]


@pytest.mark.parametrize(("path", "alpha", "beta"), CASES)
async def test_it_arrives_whole_with_one_start_and_one_end(serve: Serve, path: str, alpha: str, beta: str) -> None:
    scripts = {"alpha": half(alpha), "beta": whole(beta)}
    async with serve(**scripts, config=config(alpha, beta, WAYS[beta])) as running:
        said = await told(running, path)
        assert text_in(said) == WHOLE
        kinds = [each.get("type") for each in said]
        if path == "messages":
            deltas = kinds.count("content_block_delta")
            rest = ["content_block_delta"] * deltas
            assert [kind for kind in kinds if kind != "ping"] == [
                *("message_start", "content_block_start", *rest),
                *("content_block_stop", "message_delta", "message_stop"),
            ]
            assert {each["index"] for each in said if "index" in each} == {0}
            assert said[-2]["delta"]["stop_reason"] == "end_turn"
            assert said[-2]["usage"]["output_tokens"] == SPENT + TOKENS - AGAIN
            prompts = [said[0]["message"]["usage"]["input_tokens"], said[-2]["usage"].get("input_tokens", 0)]
            assert any(prompts)  # a translated answer's prompt is counted at its end
        elif path == "responses":
            assert [each["sequence_number"] for each in said] == list(range(len(said)))
            for kind in ("created", "output_item.added", "content_part.added", "output_text.done", "output_item.done"):
                assert kinds.count(f"response.{kind}") == 1, kind
            assert kinds[-1] == "response.completed"
            done = said[-1]["response"]
            assert done["id"] == said[0]["response"]["id"]
            assert [each["text"] for item in done["output"] for each in item["content"]] == [WHOLE]
            assert done["output"][0]["id"] == next(each["item_id"] for each in said if "item_id" in each)
            assert len({each["item_id"] for each in said if "item_id" in each}) == 1
            assert done["usage"]["output_tokens"] == SPENT + TOKENS - AGAIN
        elif path == "interactions":
            kinds = [each["event_type"] for each in said]
            assert [kind for kind in kinds if kind != "step.delta"] == [
                *("interaction.created", "interaction.status_update", "step.start", "step.stop"),
                "interaction.completed",
            ]
            assert {each["index"] for each in said if "index" in each} == {0}
            done = said[-1]["interaction"]
            assert (done["id"], done["status"]) == (said[0]["interaction"]["id"], "completed")
            assert done["usage"]["total_output_tokens"] == SPENT + TOKENS - AGAIN
        else:
            assert len({each["id"] for each in said}) == 1
            reasons = [choice["finish_reason"] for each in said for choice in each["choices"]]
            assert [each for each in reasons if each] == ["length" if path == "completions" else "stop"]
        call = await running.call()
        assert (call["takeover"], call["takeovers"], call["error_kind"]) == ("finished", 1, None)
        assert call["completion_tokens"] == SPENT - AGAIN + (len(REST) // 4 + 1 if beta == "completions" else TOKENS)
        sent = running["beta"].received[-1].body
        limits = [sent[name] for name in ("max_tokens", "max_output_tokens", "max_completion_tokens") if name in sent]
        assert limits == [100 - SPENT]
        if beta == "responses":
            assert sent["input"][-1]["status"] == "in_progress"
            assert sent["input"][-1]["content"][0]["text"] == PREFIX
        elif beta == "completions":
            assert sent["prompt"] == "Hi." + PREFIX
        else:
            last = {"role": "assistant", "content": PREFIX, **({"prefix": True} if beta == "chat" else {})}
            assert sent["messages"][-1] == last


def error(api: str, kind: str) -> bytes:
    inner = {"type": kind, "code": kind, "message": "No."}
    return event("error", error=inner, **({"sequence_number": 20} if api == "responses" else {}))


@pytest.mark.parametrize("api", ["messages", "responses"])
@pytest.mark.parametrize("how", ["error", "undecodable", "no end", "refused"])
async def test_it_breaks_in_any_way_but_a_refusal(serve: Serve, api: str, how: str) -> None:
    failed = "overloaded_error" if api == "messages" else "server_error"
    refused = "invalid_request_error"
    breaks: dict[str, list[Step]] = {
        "error": [Raw(error(api, failed))],
        "undecodable": [Raw(b'data: {"type": "conte\n\n')],
        "no end": [],
        "refused": [Raw(error(api, refused))],
    }
    alpha = [*SAYS[api](pieces(BROKEN)), Gate(SEEN.event), *breaks[how]]
    async with serve(alpha=alpha, beta=whole(api), config=config(api, api, WAYS[api])) as running:
        said = await told(running, api)
        assert text_in(said) == (BROKEN if how == "refused" else WHOLE)
        assert [each["type"] for each in said].count("error") == (how == "refused")
        assert (await running.call())["takeover"] == ("kind_of_error" if how == "refused" else "finished")


@pytest.mark.parametrize("api", ["messages", "responses"])
async def test_who_is_not_known_to_continue_is_not_asked(serve: Serve, api: str) -> None:
    async with serve(alpha=half(api), beta=whole(api), config=config(api, api)) as running:
        said = await told(running, api)
        assert (text_in(said), said[-1]["type"]) == (BROKEN, "error")
        assert not running["beta"].received
        call = await running.call()
        assert (call["takeover"], call["takeovers"], call["error_kind"]) == ("nobody", None, "disconnected")


async def test_a_way_of_another_api_is_none(serve: Serve) -> None:
    async with serve(
        alpha=half("messages"), beta=whole("messages"), config=config("messages", "messages", "final_message")
    ) as running:
        assert text_in(await told(running, "messages")) == BROKEN
        assert (await running.call())["takeover"] == "nobody"


TOOL = {"name": "f", "input_schema": {"type": "object"}}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("api", "fields", "reason"),
    [
        ("messages", {"tools": [TOOL]}, "tools"),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "reasoning"),
        ("messages", {"output_config": {"format": SCHEMA}}, "response_format"),
        ("responses", {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]}, "tools"),
        ("responses", {"reasoning": {"effort": "low"}}, "reasoning"),
        ("responses", {"text": {"format": {**SCHEMA, "name": "x"}}}, "response_format"),
        ("responses", {"top_logprobs": 2}, "logprobs"),
        ("responses", {"store": True}, "stored"),
        ("interactions", {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]}, "tools"),
        ("interactions", {"generation_config": {"thinking_level": "low"}}, "reasoning"),
        ("interactions", {"response_format": {"type": "text", "mime_type": "application/json"}}, "response_format"),
        ("chat/completions", {"response_format": {"type": "grammar", "value": "x"}}, "response_format"),
        ("chat/completions", {"guided_regex": "[a-z]+"}, "response_format"),
        ("chat/completions", {"continue_final_message": True}, "beginning"),
        ("chat/completions", {"echo": True}, "echo"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_more_than_text_ends_where_it_breaks(
    serve: Serve, api: str, fields: dict[str, Any], reason: str
) -> None:
    path, api = api, "chat" if api == "interactions" else api.partition("/")[0]
    async with serve(alpha=half(api), beta=whole(api), config=config(api, api, WAYS[api])) as running:
        said = await told(running, path, **fields)
        assert text_in(said) == BROKEN
        assert "error" in said[-1]
        call = await running.call()
        assert (call["takeover"], call["takeovers"]) == (reason, None)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"response_format": {"type": "text"}}),
        ("chat/completions", {"thinking": {"type": "disabled"}}),
        ("chat/completions", {"reasoning_effort": "none"}),
        ("chat/completions", {"reasoning": {"enabled": False}}),
        ("messages", {"thinking": {"type": "disabled"}}),
        ("responses", {"reasoning": {"effort": "none"}, "text": {"format": {"type": "text"}}}),
        ("interactions", {"response_format": {"type": "text"}, "generation_config": {"temperature": 0.5}}),
    ],
)
async def test_what_asks_for_plain_text_is_finished(serve: Serve, path: str, fields: dict[str, Any]) -> None:
    api = "chat" if path == "interactions" else path.partition("/")[0]
    async with serve(alpha=half(api), beta=whole(api), config=config(api, api, WAYS[api])) as running:
        assert text_in(await told(running, path, **fields)) == WHOLE


def closed(api: str) -> list[Step]:
    if api == "messages":
        return [Raw(event("content_block_stop", index=0))]
    place = {"item_id": "msg_7", "output_index": 0, "content_index": 0}
    return [Raw(event("response.output_text.done", sequence_number=20, text=BROKEN, logprobs=[], **place))]


@pytest.mark.parametrize("api", ["messages", "responses"])
async def test_after_its_text_has_ended_nobody_goes_on(serve: Serve, api: str) -> None:
    alpha = [*SAYS[api](pieces(BROKEN)), *closed(api), Gate(SEEN.event), Drop()]
    async with serve(alpha=alpha, beta=whole(api), config=config(api, api, WAYS[api])) as running:
        assert text_in(await told(running, api)) == BROKEN
        assert (await running.call())["takeover"] == "closed"


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("odd", ["x", {"index": 0, "delta": "x", "text": 1}], ids=["choice", "delta"])
async def test_what_is_not_as_the_api_has_it_is_not_continued(serve: Serve, api: str, odd: Any) -> None:
    alpha = [*SAYS[api](pieces(BROKEN)), JsonEvent({"id": "x", "choices": [odd]}), Gate(SEEN.event), Drop()]
    async with serve(alpha=alpha, beta=whole(api), config=config(api, api, WAYS[api])) as running:
        assert await told(running, "chat/completions" if api == "chat" else api)
        call = await running.call()
        assert (call["takeover"], call["error_kind"]) == ("format", "disconnected")


async def test_a_tool_call_that_was_not_offered_is_not_continued(serve: Serve) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    alpha = [
        *message(pieces(BROKEN)),
        Raw(event("content_block_start", index=1, content_block=call)),
        Gate(SEEN.event),
        Drop(),
    ]
    async with serve(alpha=alpha, beta=whole("messages"), config=config("messages", "messages", "prefill")) as running:
        await told(running, "messages")
        assert (await running.call())["takeover"] == "tools"


@pytest.mark.parametrize("own", ["Once. ", [{"type": "text", "text": "Once. "}]], ids=["string", "blocks"])
async def test_the_clients_own_beginning_is_gone_on_with(serve: Serve, own: Any) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": own}]
    async with serve(
        alpha=half("messages"), beta=whole("messages"), config=config("messages", "messages", "prefill")
    ) as running:
        assert text_in(await told(running, "messages", messages=turns)) == WHOLE
        sent = running["beta"].received[-1].body["messages"]
        assert len(sent) == 2
        content = sent[-1]["content"]
        assert (content if isinstance(own, str) else content[0]["text"]) == f"Once. {PREFIX}"


async def test_text_in_the_start_of_a_block_is_delivered_too(serve: Serve) -> None:
    first = message(pieces("quick bro"), block={"type": "text", "text": "The "})
    alpha = [*first, Gate(SEEN.event), Drop()]
    async with serve(alpha=alpha, beta=whole("messages"), config=config("messages", "messages", "prefill")) as running:
        await told(running, "messages")
        assert running["beta"].received[-1].body["messages"][-1]["content"] == PREFIX


async def test_a_continuation_with_text_that_is_no_delta_is_refused(serve: Serve) -> None:
    rest = [*message(pieces(" fox."), block={"type": "text", "text": " brown"}), *message_end()]
    async with serve(alpha=half("messages"), beta=rest, config=config("messages", "messages", "prefill")) as running:
        said = await told(running, "messages")
        assert (text_in(said), said[-1]["type"]) == (BROKEN, "error")
        assert (await running.call())["takeover"] == "failed"


async def test_a_stop_sequence_may_span_the_seam(serve: Serve) -> None:
    async with serve(
        alpha=half("messages"), beta=whole("messages"), config=config("messages", "messages", "prefill")
    ) as running:
        said = await told(running, "messages", stop_sequences=["brown", "END"])
        assert text_in(said) == BROKEN
        assert said[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "brown"}


async def test_a_limit_that_ends_the_continuation_ends_the_response(serve: Serve) -> None:
    beta = [*response(pieces(REST)), *response_end("incomplete")]
    async with serve(
        alpha=half("responses"), beta=beta, config=config("responses", "responses", "in_progress")
    ) as running:
        said = await told(running, "responses")
        assert said[-1]["type"] == "response.incomplete"
        assert said[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
        assert said[-1]["response"]["output"][0]["status"] == "incomplete"


async def test_who_repeats_the_whole_beginning_is_declared_so(serve: Serve) -> None:
    again = {"alpha": half("chat"), "beta": whole("chat", WHOLE)}
    async with serve(**again, config=config("chat", "chat", "repeated_prefix")) as running:
        assert text_in(await told(running, "chat/completions")) == WHOLE
        assert running["beta"].received[-1].body["messages"][-1]["prefix"] is True
    SEEN.event.clear()
    async with serve(**again, config=config("chat", "chat", "prefix")) as running:
        assert text_in(await told(running, "chat/completions")) == BROKEN


async def test_a_second_break_is_gone_on_with_too(serve: Serve) -> None:
    deployments = [{"deployment": f"{name}/m", "continues": "prefill"} for name in ("alpha", "beta", "gamma")]
    names = {name: {"apis": ["messages"]} for name in ("alpha", "beta", "gamma")}
    settings = {
        "providers": names,
        "models": {MODEL: {"race": {"mode": "single"}, "takeover": True, "deployments": deployments}},
    }
    second = [*message(pieces(" brown fox jum")), Drop()]
    async with serve(
        alpha=half("messages"), beta=second, gamma=whole("messages", " jumps over the lazy dog."), config=settings
    ) as running:
        running.prefer("alpha", "beta", "gamma")
        said = await told(running, "messages", provider={"order": ["alpha", "beta", "gamma"]})
        assert text_in(said) == WHOLE
        assert [each["type"] for each in said].count("message_start") == 1
        assert running["gamma"].received[-1].body["messages"][-1]["content"] == "The quick brown fox"
        call = await running.call()
        assert (call["takeover"], call["takeovers"]) == ("finished", 2)


async def test_openais_own_client_reads_one_answer(serve: Serve) -> None:
    async with serve(alpha=half("chat"), beta=whole("chat"), config=config("chat", "chat", "prefix")) as running:
        running.prefer("alpha", "beta")
        chunks = []
        stream = await running.sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        async for chunk in stream:
            SEEN.event.set()
            chunks.append(chunk)
        assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == WHOLE
    SEEN.event.clear()
    async with serve(
        alpha=half("completions"), beta=whole("completions"), config=config("completions", "completions")
    ) as running:
        running.prefer("alpha", "beta")
        texts = []
        async for each in await running.sdk.completions.create(model=MODEL, prompt="Hi.", stream=True):
            SEEN.event.set()
            texts += [choice.text for choice in each.choices]
        assert "".join(texts) == WHOLE
    SEEN.event.clear()
    async with serve(
        alpha=half("responses"), beta=whole("responses"), config=config("responses", "responses", "in_progress")
    ) as running:
        running.prefer("alpha", "beta")
        async with running.sdk.responses.stream(model=MODEL, input="Hi") as answer:
            async for _ in answer:
                SEEN.event.set()
            final = await answer.get_final_response()
        assert (final.status, final.output_text) == ("completed", WHOLE)
        assert final.usage is not None
        assert final.usage.output_tokens == SPENT + TOKENS - AGAIN
