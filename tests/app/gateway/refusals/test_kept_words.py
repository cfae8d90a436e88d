"""What a provider says of a request is for its caller: nothing of it is stored, shown to others or sent anywhere."""

import asyncio
import base64
import html
import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from providers.simulator import Delta, ErrorEvent, Status, Step
from tests.app.alerts.receiver import Receiver
from tests.app.gateway.collector import collecting
from tests.app.gateway.running_gateway import RunningGateway, Serve, single
from tests.app.gateway.watching.test_live import look
from tests.app.gateway.watching.test_tracing import traced
from tests.services.ledger.test_clickhouse import recording

pytestmark = pytest.mark.usefixtures("views")

CANARY = "seven turquoise wombats smuggle xylophones through Reykjavik"
WORDS = ("turquoise", "wombats", "smuggle", "xylophones", "reykjavik")
ECHOES: Mapping[str, Callable[[str], str]] = {
    "plain": str,
    "upper case": str.upper,
    "escaped": lambda text: "".join(f"\\u{ord(each):04x}" for each in text),
    "Base64": lambda text: base64.b64encode(text.encode()).decode(),
    "URL": quote,
    "HTML": lambda text: html.escape("".join(f"&#{ord(each)};" for each in text)),
    "cut": lambda text: text[9:52],
    "lines": lambda text: "\n> ".join(text.split()),
}
LOOKED_AT = (
    *("/leaderboard", "/metrics", "/health", "/health/ready", "/v1/models", "/api/leaderboard", "/api/session"),
    *("/api/alerts", "/api/configuration", "/api/calls", "/api/refusals", "/api/usage", "/api/teams", "/api/keys"),
    *("/api/history", "/api/heat", "/api/slowdowns", "/api/race-value", "/api/slo", "/api/explain?model=llama"),
)


def refusal(status: int, echo: str, **headers: str) -> Sequence[Step]:
    error = {"message": f"Invalid input {echo} here", "type": "invalid_request_error", "code": "bad_input"}
    return [Status(status, {"error": error}, headers)]


def betrayals(seen: bytes) -> list[str]:
    """Return what of the canary is in ``seen``: its words, and beginnings of its encodings."""
    encoded = [form(CANARY)[:24] for name, form in ECHOES.items() if name in {"escaped", "Base64", "URL", "HTML"}]
    lower = seen.lower()
    return [each for each in (*WORDS, *encoded) if each.lower().encode() in lower]


async def everything(running: RunningGateway, folder: Path, key: str = "none") -> bytes:
    """Return all that others may read: pages, and every file that the gateway has written."""
    await running.gateway.ledger.flush()
    headers, shown = {"authorization": f"Bearer {key}"}, []
    async with running.get("/api/calls", headers=headers) as response:
        calls = [f"/api/calls/{row['id']}" for row in (await response.json())["data"]]
    for path in (*LOOKED_AT, *calls):
        async with running.get(path, headers=headers) as response:
            shown.append(await response.read())
            assert response.status < 500, path
    files = await asyncio.to_thread(lambda: [each.read_bytes() for each in folder.rglob("*") if is_written(each)])
    return b"\n".join([*shown, *files])


def is_written(path: Path) -> bool:
    """Whether the gateway wrote this file: the test wrote its configuration."""
    return path.is_file() and path.suffix != ".yaml"


async def test_a_quoted_prompt_is_read_by_its_caller_alone(serve: Serve, logged: list[Any]) -> None:
    async with collecting() as collector:
        async with serve(alpha=[], config=single() | traced(collector)) as running, look(running) as watcher:
            for echo in ECHOES.values():
                running["alpha"].script = refusal(400, echo(CANARY))
                async with running.chat(messages=[{"role": "user", "content": CANARY}]) as response:
                    told = await response.json()
                assert " ".join(echo(CANARY).split())[:20] in told["error"]["message"]
            ends = await watcher.seen("end", len(ECHOES))
            seen = await everything(running, running.folder)
            rows = await running.rows("select error_message from attempts")
        assert collector.bodies
        assert {row["error_message"] for row in rows} == {"Invalid input […] here (bad_input, invalid_request_error)"}
        assert not betrayals(seen + repr([ends, logged]).encode() + b"".join(collector.bodies))


async def test_other_callers_are_not_told_what_an_error_quoted(serve: Serve) -> None:
    async with serve(alpha=refusal(429, CANARY, **{"retry-after": "60"}), config=single()) as running:
        async with running.chat(messages=[{"role": "user", "content": CANARY}]) as response:
            assert CANARY in await response.text()
        async with running.chat() as response:
            other = await response.read()
        seen = await everything(running, running.folder)
        assert running["alpha"].counts.requests == 1
    assert b"Invalid input" in other
    assert not betrayals(seen + other)


async def test_what_is_relayed_leaves_no_word_of_its_request(serve: Serve) -> None:
    async with serve(alpha=refusal(422, CANARY), config=single()) as running:
        async with running.post({"model": "llama", "input": [CANARY]}, "/v1/embeddings") as response:
            assert CANARY in await response.text()
        seen = await everything(running, running.folder)
        [row] = await running.rows("select error_message from attempts")
    assert row["error_message"].startswith("Invalid input […] here")
    assert not betrayals(seen)


async def test_an_error_in_the_middle_of_a_stream_leaves_its_code_alone(serve: Serve) -> None:
    script = [Delta("Hello"), ErrorEvent(f"flagged: {CANARY}", "content_filter")]
    async with serve(alpha=script, config=single()) as running:
        async with running.chat(messages=[{"role": "user", "content": CANARY}], stream=True) as response:
            told = await response.text()
        seen = await everything(running, running.folder)
        [row] = await running.rows("select error_message from attempts")
    assert CANARY in told
    assert "content_filter" in row["error_message"]
    assert not betrayals(seen)


async def test_no_client_reads_where_a_provider_is(serve: Serve) -> None:
    gone = "http://gone.internal.example:8123/team/v1"
    config = single() | {
        "providers": {"alpha": {"base_url": gone}, "beta": {}},
    }
    async with serve(alpha=[], beta=[], config=config) as running:
        host = running.config["providers"]["beta"]["base_url"]
        running["beta"].script = refusal(404, f"no such page: {host}/chat/completions")
        told = ""
        for _ in range(3):
            async with running.chat() as response:
                told += await response.text()
        rows = await running.rows("select error_message from attempts where provider = 'alpha' limit 1")
    assert "gone.internal" not in told
    assert host.partition("://")[2].partition("/")[0] not in told
    assert "gone.internal.example" in json.dumps(rows)


KEY, STRANGERS_KEY = "hs-of-the-operator-4711", "hs-of-a-stranger-0815"
SECRETS = (
    *("upstream-alpha-secret", "upstream-beta-secret", KEY, STRANGERS_KEY, "pass@word", "pass%40word"),
    *("otlp-secret-2342", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "T0P-S3CRET"),
)


async def test_no_webhook_second_store_page_span_or_log_has_a_prompt_a_key_or_a_password(
    serve: Serve, logged: list[Any]
) -> None:
    async with collecting() as collector, recording() as second, Receiver.running() as receiver:
        webhook = {"url": receiver.url, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
        config = {
            "clients": {"operator": {"key_sha256": sha256(KEY.encode()).hexdigest(), "role": "admin"}},
            "ledger": {"clickhouse": {"url": second.url}},
            "alerts": {"model_out_s": 0, "webhooks": {"ops": webhook}},
            **traced(collector, headers={"x-key": "otlp-secret-2342"}),
        }
        async with serve(alpha=[], beta=refusal(401, f"upstream-beta-secret: {CANARY}"), config=config) as running:
            headers = {"authorization": f"Bearer {KEY}"}
            async with look(running, KEY) as watcher:
                for number, each in enumerate([*ECHOES.values()], 1):
                    running["alpha"].script = refusal(
                        400 if number % 2 else 401, f"{SECRETS[0]} may not say {each(CANARY)}"
                    )
                    async with running.chat(headers, **request_with(CANARY)) as response:
                        await response.read()
                async with running.chat({"authorization": f"Bearer {STRANGERS_KEY}"}) as response:
                    assert response.status == 401
                ends = await watcher.seen("end", len(ECHOES))
                alerts = running.gateway.operations.alerts
                await alerts.look()
                await receiver.asked.wait()
                seen = await everything(running, running.folder, KEY)
    assert second.rows["attempts"]
    assert collector.bodies
    others = repr([ends, logged, second.rows, second.statements, receiver.received]).encode()
    seen += others + b"".join(collector.bodies)
    assert not betrayals(seen)
    assert [each for each in SECRETS if each.encode() in seen] == []


def request_with(words: str) -> dict[str, Any]:
    """Return a request that says the words in each field that has content."""
    arguments = json.dumps({"city": words})
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    parameters = {"type": "object", "properties": {"city": {"type": "string", "description": words}}}
    return {
        "messages": [
            {"role": "system", "content": words},
            {"role": "user", "content": [{"type": "text", "text": words}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": words},
            {"role": "user", "content": words},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "description": words, "parameters": parameters}}],
        "stop": [words],
    }
