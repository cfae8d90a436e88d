"""What a provider says of a request is for its caller: nothing of it is stored, shown to others or sent anywhere."""

import asyncio
import base64
import html
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from providers.simulator.script import Delta, ErrorEvent, Status, Step
from tests.app.gateway.collector import collecting
from tests.app.gateway.running_gateway import RunningGateway, Serve, single
from tests.app.gateway.test_live import look
from tests.app.gateway.test_tracing import traced

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
LOOKED_AT = ("/leaderboard", "/metrics", "/api/overview", "/api/alerts", "/health", "/api/configuration", "/api/calls")


def refusal(status: int, echo: str) -> Sequence[Step]:
    error = {"message": f"Invalid input {echo} here", "type": "invalid_request_error", "code": "bad_input"}
    return [Status(status, {"error": error})]


def betrayals(seen: bytes) -> list[str]:
    """Return what of the canary is in ``seen``: its words, and beginnings of its encodings."""
    encoded = [form(CANARY)[:24] for name, form in ECHOES.items() if name in {"escaped", "Base64", "URL", "HTML"}]
    lower = seen.lower()
    return [each for each in (*WORDS, *encoded) if each.lower().encode() in lower]


async def everything(running: RunningGateway, folder: Path) -> bytes:
    """Return all that others may read: pages, and every file that the gateway has written."""
    await running.gateway.ledger.flush()
    shown = []
    for path in LOOKED_AT:
        async with running.get(path) as response:
            shown.append(await response.read())
    files = await asyncio.to_thread(lambda: [each.read_bytes() for each in folder.rglob("*") if each.is_file()])
    return b"\n".join([*shown, *files])


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
    async with serve(alpha=refusal(429, CANARY), config=single()) as running:
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
