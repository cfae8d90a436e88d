"""What a race leaves in the ledger: one call, its attempts, and figures that agree with each other."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.racing import MOST_TOKENS, SURPLUS_TOKENS
from providers.simulator import Done, Gate, Hang, JsonEvent, RoleOnly, Status, UsageChunk, answer
from tests.app.gateway.connections.test_client_disconnects import socket_with
from tests.app.gateway.running_gateway import MODEL, PROMPT, RunningGateway, Serve, chat_body

Json = dict[str, Any]

PRICE = {"input": 1.0, "output": 2.0}


def priced(*providers: str) -> dict[str, Any]:
    deployments = [{"deployment": f"{name}/m", "price_per_mtok": PRICE} for name in providers]
    return {"region": "eu", "models": {MODEL: {"deployments": deployments}}}


async def race(running: RunningGateway, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    async with running.chat(**fields) as response:
        await response.read()
    call = await running.call()
    assert response.headers["x-holeshot-call-id"] == call["id"]
    return call, await running.rows("select * from attempts order by number")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_the_figures_of_a_race_agree_with_each_other(serve: Serve, stream: bool) -> None:
    scripts = {"fast": answer("a", "b", "c"), "slow": [RoleOnly(), Hang()]}
    async with serve(**scripts, config=priced(*scripts)) as running:
        call, attempts = await race(running, stream=stream)
    assert (call["model"], call["endpoint"], call["mode"]) == (MODEL, "chat.completions", "race")
    assert (call["streamed"], call["status_code"], call["error_kind"]) == (stream, 200, None)
    assert (call["replica"], call["region"], call["client"], call["prompt_class"]) == ("here", "eu", None, 0)
    assert 0 < call["ttft_ms"] <= call["total_ms"]
    assert 0 <= call["overhead_ms"] <= call["total_ms"]  # a part comes after the first token, before it is sent
    age = datetime.now(UTC) - datetime.fromisoformat(call["started_at"]).replace(tzinfo=UTC)
    assert timedelta() <= age < timedelta(minutes=1)

    assert call["launched"] == len(attempts) == 2
    assert [row["number"] for row in attempts] == [1, 2]
    assert {row["call_id"] for row in attempts} == {call["id"]}
    by_name = {row["provider"]: row for row in attempts}
    won, lost = by_name["fast"], by_name["slow"]
    assert (won["outcome"], lost["outcome"]) == ("won", "lost")
    assert won["id"] == call["winner_attempt_id"]

    assert won["connect_ms"] <= won["headers_ms"] <= won["first_event_ms"] <= won["ttft_ms"] <= won["last_token_ms"]
    assert won["launch_offset_ms"] + won["ttft_ms"] == pytest.approx(call["ttft_ms"], abs=0.01)
    assert won["ttft_ms"] == won["ttft_answer_ms"]
    assert (won["censored_at_ms"], won["error_kind"], won["status_code"]) == (None, None, 200)

    assert lost["censored_at_ms"] > 0
    assert (lost["ttft_ms"], lost["error_kind"], lost["decode_tps"]) == (None, None, None)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_who_refuses_has_the_time_of_its_headers_and_who_cannot_be_reached_none(
    serve: Serve, stream: bool
) -> None:
    scripts = {"busy": [Status(503)], "limited": [Status(429)], "fast": answer("a")}
    unreachable = {"base_url": "http://127.0.0.1:1/v1"}
    config: Json = {"providers": {"away": unreachable}, "models": {MODEL: {"race": {"mode": "single"}}}}
    names = ["away", "busy", "limited", "fast"]
    config["models"][MODEL]["deployments"] = [f"{name}/m" for name in names]
    async with serve(**scripts, config=config) as running:
        async with running.chat(stream=stream, provider={"order": names}) as response:
            assert response.status == 200, await response.text()
            await response.read()
        rows = await running.rows("select provider, headers_ms, status_code from attempts order by number")
    assert [(row["provider"], row["status_code"]) for row in rows] == [*zip(names, (None, 503, 429, 200), strict=True)]
    assert [row["headers_ms"] is None for row in rows] == [True, False, False, False]


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/v1/messages", "/v1/responses", "/v1beta/models/{}:generateContent"]
)
async def test_a_refusal_in_any_api_has_the_time_of_its_headers(serve: Serve, path: str) -> None:
    said = [{"role": "user", "content": "Hi"}]
    body: Json = {"model": MODEL, "input": "Hi"}
    if path.endswith("messages"):
        body = {"model": MODEL, "max_tokens": 99, "messages": said}
    elif path.endswith("generateContent"):
        body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    async with serve(busy=[Status(503)], config={"models": {MODEL: {"deployments": ["busy/m"]}}}) as running:
        async with running.post(body, path=path.format(MODEL)) as response:
            await response.read()
        rows = await running.rows("select headers_ms, status_code, outcome from attempts")
    assert rows
    for row in rows:
        assert (row["status_code"], row["outcome"]) == (503, "failed")
        assert row["headers_ms"] >= 0


def said(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}]}


TEXT = {"type": "text", "text": "Hello \u4e16"}
# Which prompts are all in the body: of no other is it known how many tokens its bytes can make.
PROMPTS: dict[str, tuple[dict[str, Any], bool]] = {
    "text": ({}, True),
    "parts of text": (said(TEXT, TEXT), True),
    "tools": ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}, True),
    "a picture": (said(TEXT, {"type": "image_url", "image_url": {"url": "https://x.test/y"}}), False),
    "a film": (said({"type": "video_url", "video_url": {"url": "https://x.test/y"}}), False),
    "what was spoken": ({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}, *PROMPT]}, False),
    "a hosted tool": ({"web_search_options": {}}, False),
    "a vendor's own field": ({"plugins": [{"id": "web"}]}, False),
}


@pytest.mark.parametrize(("fields", "inline"), PROMPTS.values(), ids=PROMPTS)
async def test_a_prompt_of_text_is_charged_with_no_more_than_its_bytes_can_make(
    serve: Serve, fields: dict[str, Any], inline: bool
) -> None:
    scripts = {"fast": [*answer("a", "b", "c")[:-2], UsageChunk(2_000_000_000, 40)]}
    async with serve(**scripts, config=priced(*scripts)) as running:
        call, [row] = await race(running, stream=True, **fields)
    most = 2 * len(json.dumps(chat_body(stream=True, **fields))) + SURPLUS_TOKENS if inline else MOST_TOKENS
    assert (row["prompt_tokens"], row["completion_tokens"]) == (most, 40)
    assert (row["tokens_source"], row["reported_tokens"]) == ("implausible", 2_000_000_000)
    assert call["cost_usd"] == pytest.approx((most * PRICE["input"] + 40 * PRICE["output"]) / 1e6)


async def test_tokens_and_dollars_of_winner_and_loser(serve: Serve) -> None:
    scripts = {"fast": [*answer("a", "b", "c")[:-2], UsageChunk(90, 40)], "slow": [Hang()]}
    async with serve(**scripts, config=priced(*scripts)) as running:
        fast = running["fast"]
        fast.script = [Gate(running["slow"].requested), *(fast.script or ())]  # else it may be cut before it is sent
        call, attempts = await race(running)
    won, lost = sorted(attempts, key=lambda row: row["outcome"], reverse=True)
    assert (call["prompt_tokens"], call["completion_tokens"]) == (90, 40)
    assert (won["tokens_source"], lost["tokens_source"]) == ("reported", "estimated")
    assert (won["cost_usd"], won["cost_is_lower_bound"]) == (pytest.approx(170e-6), False)
    assert lost["cost_usd"] == pytest.approx(90e-6)
    assert (lost["headers_ms"], lost["sends"]) == (None, 1)
    assert (lost["cost_low_usd"], lost["cost_is_lower_bound"]) == (0.0, 0)
    assert call["cost_usd"] == pytest.approx(260e-6)
    assert call["duplicate_cost_usd"] == pytest.approx(90e-6)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_a_vendors_own_figure_of_the_cost_is_the_cost(serve: Serve, path: str, stream: bool) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "cost": 0.0125}
    script = [*answer("a", "b")[:-2], JsonEvent({"choices": [], "usage": usage}), Done()]
    provider = {"preset": "openrouter", "apis": ["chat"]}
    config = {"models": {MODEL: {"deployments": ["router/m"]}}, "providers": {"router": provider}}
    async with serve(router=script, config=config) as running:
        said = [{"role": "user", "content": "Hi"}]
        body = {"input": said} if path.endswith("responses") else {"messages": said, "max_tokens": 99}
        body |= {"model": MODEL, "stream": stream}
        async with running.post(body, path=path) as response:
            assert response.status == 200, await response.text()
            await response.read()
        [call] = await running.rows("select * from calls")
        [row] = await running.rows("select * from attempts")
    assert (call["cost_low_usd"], call["cost_usd"], call["cost_high_usd"]) == (0.0125, 0.0125, 0.0125)
    assert (row["cost_usd"], row["tokens_source"]) == (0.0125, "reported")


async def test_a_call_nobody_answered_is_a_row_as_well(serve: Serve) -> None:
    async with serve(alpha=[Status(503)], beta=[Status(429)]) as running:
        call, attempts = await race(running)
    assert (call["status_code"], call["error_kind"]) == (502, "all_providers_failed")
    assert (call["winner_attempt_id"], call["ttft_ms"], call["launched"]) == (None, None, 2)
    assert {(row["status_code"], row["error_kind"]) for row in attempts} == {
        (503, "server_error"),
        (429, "rate_limited"),
    }
    assert {(row["outcome"], row["censored_at_ms"], row["ttft_ms"]) for row in attempts} == {("failed", None, None)}


async def test_a_prompt_of_backslashes_costs_something_also_who_hangs_up_on_its_answer(serve: Serve) -> None:
    long = chat_body(stream=True, messages=[{"role": "user", "content": "\\u" * 30_000}])
    async with serve(alpha=[Hang()], config=priced("alpha")) as running:
        async with socket_with(running, long) as (_, writer):
            await running["alpha"].requested.wait()
            writer.close()
            await running["alpha"].reach(disconnects_before_first_token=1)
        call = await running.call()
    assert call["status_code"] == 499
    assert call["prompt_tokens"] > 0
    assert call["cost_usd"] > 0


async def test_ids_order_by_time_and_every_call_has_its_own(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        for _ in range(10):
            async with running.chat() as response:
                await response.read()
        calls = await running.rows("select id from calls order by started_at")
        orphans = await running.rows("select * from attempts where call_id not in (select id from calls)")
        winners = await running.rows(
            "select call_id from attempts where outcome = 'won' group by call_id having count(*) = 1"
        )
    assert [row["id"] for row in calls] == sorted({row["id"] for row in calls})
    assert (len(calls), len(winners), orphans) == (10, 10, [])


async def test_a_kept_connection_has_no_connect_time(serve: Serve) -> None:
    async with serve() as running:
        for _ in range(2):
            async with running.chat() as response:
                await response.read()
        first, second = await running.rows("select connect_ms from attempts order by started_at")
    assert first["connect_ms"] > 0
    assert second["connect_ms"] is None


@pytest.mark.usefixtures("views")
async def test_the_views_speak_of_the_calls(serve: Serve) -> None:
    async with serve(alpha=answer("a", "b"), beta=[Hang()]) as running:
        await race(running)
        [throughput] = await running.rows("select * from throughput where deployment = 'alpha/m'")
        [value] = await running.rows("select * from race_value")
    assert throughput["deployment"] == "alpha/m"
    assert value["model"] == MODEL


async def test_every_row_is_there_once_the_gateway_has_closed(serve: Serve) -> None:
    async with serve() as running:
        for _ in range(5):
            async with running.chat() as response:
                await response.read()
    assert running.gateway.ledger.pending == 0
    assert list((running.folder / "spool").iterdir()) == []


async def test_what_never_reached_a_connection_was_sent_no_times_and_cost_nothing(serve: Serve) -> None:
    scripts = {"fast": answer("a"), "dead": []}
    config = {**priced(*scripts), "providers": {"dead": {"base_url": "http://127.0.0.1:9/v1"}}}
    async with serve(**scripts, config=config) as running:
        # Not in a race: which of them is first would depend on the machine.
        async with running.chat(provider={"order": ["dead", "fast"]}) as response:
            await response.read()
        [dead] = await running.rows("select * from attempts where provider = 'dead'")
    assert (dead["error_kind"], dead["sends"], dead["prompt_tokens"]) == ("connect_error", 0, None)
    assert (dead["cost_usd"], dead["cost_high_usd"]) == (0.0, 0.0)


async def test_the_rows_say_what_was_asked_and_what_the_answer_was(serve: Serve) -> None:
    async with serve(alpha=answer("a", "b")) as running:
        fields: dict[str, Any] = {"max_tokens": 70, "temperature": 0.5}
        fields["tools"] = [{"type": "function", "function": {"name": "f"}}]
        async with running.chat(**fields) as response:
            await response.read()
        call = await running.call()
        [attempt] = await running.rows("select * from attempts where outcome = 'won'")
    assert (call["max_tokens"], call["temperature"], call["tools"]) == (70, 0.5, 1)
    assert (call["finish_reason"], call["tool_calls"], call["is_empty"], call["is_truncated"]) == ("stop", 0, 0, 0)
    assert (call["api"], call["size_class"], call["tokens_source"]) == ("chat.completions", 0, attempt["tokens_source"])
    assert call["prompt_tokens"] == attempt["prompt_tokens"]
    assert (attempt["client"], attempt["api"], attempt["model"]) == (call["client"], call["api"], call["model"])
    assert (attempt["win_on"], attempt["token_ms"]) == ("any", attempt["ttft_ms"])
    assert (attempt["chunks"], attempt["chars"], attempt["sends"], attempt["in_flight"]) == (2, 2, 1, 0)
    assert attempt["provider_request_id"]
    assert attempt["model_version"]


async def test_a_refused_attempt_has_the_id_that_its_providers_support_asks_for(serve: Serve) -> None:
    # A provider may put the key into any header: what is stored of it is masked.
    refused = Status(500, headers={"x-request-id": "req-4711-upstream-alpha-secret"})
    async with serve(alpha=[refused], beta=answer("a")) as running:
        async with running.chat(provider={"order": ["alpha", "beta"]}) as response:
            await response.read()
        [failed] = await running.rows("select * from attempts where outcome = 'failed'")
    assert (failed["status_code"], failed["error_kind"]) == (500, "server_error")
    assert failed["provider_request_id"].startswith("req-4711-")
    assert "alpha-secret" not in failed["provider_request_id"]
