"""What a gateway answers to the requests of ``asked``: status, the code of its error, and headers.

``python -m tests.app.gateway.recorded.recording COMMAND FOLDER [ROW ...]`` writes a recording with any version's
``holeshot``: a file for each row, with each answer and the requests that get it below.
"""

import asyncio
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.app.gateway.recorded.asked import FAULTS, KEYS, MODES, ROWS, Asked, Row, of_row

RECORDED = Path(__file__).parent / "answers"

# Headers of every answer, of one call, or that depend on time.
_PASSING = frozenset(
    {"date", "server", "content-length", "transfer-encoding", "connection", "retry-after", "x-request-id", "request-id"}
    | {f"x-holeshot-{name}" for name in ("call-id", "ttft-ms", "overhead-ms", "launched", "provider", "deployment")}
)
_SAID = ("content-type", "allow", "x-holeshot-dropped", "x-holeshot-lowered", "x-should-retry", "x-holeshot-narrowed")


def _event(name: str, data: Any) -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(data).encode() + b"\n\n"


_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_OUTPUT = [
    {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
    }
]
_RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "in_progress", "output": []}
_ENDED = {
    **_RESPONSE,
    "status": "completed",
    "output": _OUTPUT,
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
}
_MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
_GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
}
_INTERACTION = {
    "id": "v1_1",
    "object": "interaction",
    "model": "m",
    "status": "completed",
    "usage": {"total_input_tokens": 3, "total_output_tokens": 2, "total_tokens": 5},
}
_STEPS = (
    ("interaction.created", {"interaction": {"id": "v1_1", "model": "m", "status": "in_progress"}}),
    ("step.start", {"index": 0, "step": {"type": "model_output"}}),
    ("step.delta", {"index": 0, "delta": {"type": "text", "text": "Hello"}}),
    ("step.stop", {"index": 0}),
    ("interaction.completed", {"interaction": _INTERACTION}),
)
_STREAMS = {
    "chat/completions": (
        _event("", {**_CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello"}}]})
        + _event("", {**_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        + _event("", {**_CHUNK, "choices": [], "usage": _USAGE})
        + b"data: [DONE]\n\n"
    ),
    "completions": (
        _event(
            "",
            {
                **_CHUNK,
                "object": "text_completion",
                "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}],
            },
        )
        + b"data: [DONE]\n\n"
    ),
    "responses": (
        _event("response.created", {"type": "response.created", "sequence_number": 0, "response": _RESPONSE})
        + _event(
            "response.output_text.delta",
            {
                "type": "response.output_text.delta",
                "sequence_number": 1,
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "delta": "Hello",
            },
        )
        + _event("response.completed", {"type": "response.completed", "sequence_number": 2, "response": _ENDED})
    ),
    "messages": (
        _event("message_start", {"type": "message_start", "message": _MESSAGE})
        + _event(
            "content_block_start",
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        )
        + _event(
            "content_block_delta",
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        )
        + _event("content_block_stop", {"type": "content_block_stop", "index": 0})
        + _event(
            "message_delta",
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        )
        + _event("message_stop", {"type": "message_stop"})
    ),
    "streamGenerateContent": _event("", _GEMINI),
    "interactions": (
        b"".join(_event(kind, {"event_type": kind, **fields}) for kind, fields in _STEPS)
        + b"event: done\ndata: [DONE]\n\n"
    ),
}
_WHOLES: dict[str, Any] = {
    "chat/completions": {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "usage": _USAGE,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    },
    "completions": {
        "id": "c",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "usage": _USAGE,
        "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}],
    },
    "count_tokens": {"input_tokens": 3},
    "input_tokens": {"object": "response.input_tokens", "input_tokens": 3},
    "compact": {**_ENDED, "object": "response.compaction"},
    "responses": _ENDED,
    "messages": {**_MESSAGE, "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"},
    "generateContent": _GEMINI,
    "interactions": {
        **_INTERACTION,
        "steps": [{"type": "model_output", "content": [{"type": "text", "text": "Hello"}]}],
    },
    "countTokens": {"totalTokens": 3},
    "embeddings": {
        "object": "list",
        "model": "m",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
        "data": [{"object": "embedding", "index": index, "embedding": [1.0, 2.0]} for index in range(2)],
    },
    "moderations": {"id": "m", "model": "m", "results": [{"flagged": False, "categories": {}, "category_scores": {}}]},
    "rerank": {"id": "r", "results": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": 0.2}]},
    "decisions": {
        "id": "d",
        "object": "decision",
        "model": "m",
        "answers": [{"type": "predicate", "probability": 0.5}],
    },
    "speech": b"\xff\xfb\x90\x00" + bytes(2000),
    "transcriptions": {"text": "Hello"},
    "translations": {"text": "Hello"},
    "generations": {"created": 1, "data": [{"b64_json": "AAAA"}]},
    "edits": {"created": 1, "data": [{"b64_json": "AAAA"}]},
}


def _good(request: web.Request, body: bytes) -> web.Response:
    path = request.path
    streamed = next((said for end, said in _STREAMS.items() if path.endswith(end)), None)
    if streamed is not None and (b'"stream":true' in body.replace(b" ", b"") or "streamGenerate" in path):
        return web.Response(body=streamed, content_type="text/event-stream")
    whole = next(said for end, said in _WHOLES.items() if path.endswith(end))
    if isinstance(whole, bytes):
        return web.Response(body=whole, content_type="audio/mpeg")
    return web.json_response(whole)


async def _answer(request: web.Request) -> web.StreamResponse:
    """Answer as the first word of the address says."""
    body = await request.read()
    how = request.match_info["how"]
    status, _, more = how.partition("-")
    assert request.transport is not None
    if how == "closes" or more == "closes":
        request.transport.close()
        return web.Response()
    if status.isdigit():
        error = {"message": "It is refused.", "type": "refused", "param": None, "code": "refused"}
        headers = {"retry-after": "3600"} if more == "later" else {}
        return web.json_response({"error": error}, status=int(status), headers=headers)
    good = _good(request, body)
    if how == "half":
        assert isinstance(good.body, bytes)
        half = web.StreamResponse(headers={"content-type": good.content_type, "content-length": str(len(good.body))})
        await half.prepare(request)
        await half.write(good.body[: len(good.body) // 3])
        request.transport.close()
        return half
    said = {"nothing": b"", "no-json": b"hello", "a-list": b"[]", "an-error": b'{"error": {"message": "It failed."}}'}
    if how == "a-page":
        return web.Response(body=b"<html>hello</html>", content_type="text/html")
    return web.Response(body=said[how], content_type=good.content_type) if how in said else good


@asynccontextmanager
async def upstream() -> AsyncIterator[str]:
    """Serve the provider; its address is followed by how it is to answer."""
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{how}/{rest:.*}", _answer)
    runner = web.AppRunner(app, shutdown_timeout=0, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def configured(row: Row, folder: Path, base: str) -> dict[str, Any]:
    """Return the configuration for a row: each request with a fault has providers of its own, so none knows another."""

    def provider(how: str) -> dict[str, Any]:
        kind = row.provider.get("kind", "openai_compatible")
        return {
            "kind": kind,
            "base_url": f"{base}/{how}/{'v1beta' if kind == 'gemini' else 'v1'}",
            "api_key": "k",
            **row.provider,
        }

    providers = {"p-good": provider("good")}
    models: dict[str, Any] = {"good": {"deployments": ["p-good/m"]}, "other": {"deployments": ["p-good/m"]}}
    for fault in FAULTS:
        for mode in MODES:
            names = [f"{mode}-{fault}-a", f"{mode}-{fault}-b"]
            hows = [fault, fault if mode == "both" else "good"]
            providers |= {name: provider(how) for name, how in zip(names, hows, strict=True)}
            first, second = (f"{name}/m" for name in names)
            race = {"mode": "race" if mode in {"both", "one"} else "single"}
            wanted = [first, second] if mode in {"both", "one"} else [first]
            models[f"{mode}.{fault}"] = {"deployments": wanted, "race": race}
            if mode == "then":
                models[f"{mode}.{fault}"]["fallbacks"] = [f"{mode}.{fault}.next"]
                models[f"{mode}.{fault}.next"] = {"deployments": [second], "race": race}
    return {
        "host": "127.0.0.1",
        "port": 0,
        "log_format": "json",
        "lame_duck_s": 0,
        "database_url": f"sqlite:///{folder / 'holeshot.db'}",
        "spool_dir": str(folder / "spool"),
        "providers": providers,
        "models": models,
        "clients": {
            f"c{number}": {"key_sha256": hashlib.sha256(key.encode()).hexdigest(), **settings}
            for number, (key, settings) in enumerate(KEYS.items())
        },
    }


async def answers(url: str, row: Row, picked: list[Asked]) -> dict[str, str]:
    """Ask, one after another; return what was answered, by the request's name."""
    found = {}
    async with aiohttp.ClientSession(auto_decompress=False) as http:
        for each in picked:
            async with http.request(
                each.method, url + each.path, headers=each.headers, data=each.body, allow_redirects=False
            ) as response:
                try:
                    body = await response.read()
                except aiohttp.ClientError:
                    body = b"broken"
            found[each.name] = _line(response, body)
    return found


def _line(response: aiohttp.ClientResponse, body: bytes) -> str:
    said = {name.lower(): value for name, value in response.headers.items()}
    shown = [f"{name}={said.pop(name)}" for name in _SAID if name in said]
    names = " ".join(sorted(said.keys() - _PASSING))
    return f"{response.status} {_code(body)} [{', '.join(shown)}] {names}"


def _code(body: bytes) -> str:
    """Return what an error says of itself beside its words, of whatever vendor's form; "-" of none."""
    text = body.decode(errors="replace")
    for line in reversed(
        [text, *(line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:"))]
    ):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        error = said.get("error") if isinstance(said, dict) else None
        if isinstance(error, dict):
            return "/".join(
                str(error.get(name)) for name in ("type", "code", "status", "param") if error.get(name) is not None
            )
    return "broken" if body == b"broken" else "-"


def written(found: dict[str, str]) -> str:
    """Return each answer with the requests that get it."""
    lines = []
    for answer in dict.fromkeys(found.values()):
        lines += [answer, *(f"    {name}" for name, its in found.items() if its == answer)]
    return "\n".join(lines) + "\n"


def read(row: Row) -> dict[str, str]:
    """Return what was recorded of a row."""
    answer, found = "", {}
    for line in (RECORDED / _file(row)).read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found[line[4:]] = answer
        else:
            answer = line
    return found


def _file(row: Row) -> str:
    return f"{row.name.replace(' ', '-')}.txt"


async def _record(command: str, folder: Path, names: list[str]) -> None:
    for row in [each for each in ROWS if not names or each.name in names]:
        with tempfile.TemporaryDirectory() as place:
            async with upstream() as base:
                config = Path(place) / "gateway.yaml"
                config.write_text(json.dumps(configured(row, Path(place), base)), encoding="utf-8")
                process = await asyncio.create_subprocess_exec(
                    command, "serve", "-c", str(config), stderr=asyncio.subprocess.PIPE, cwd=place, env={**os.environ}
                )
                assert process.stderr is not None
                url, lines = "", []
                async for line in process.stderr:
                    lines.append(line)
                    if b'"gateway.started"' in line:
                        url = json.loads(line)["url"]
                        break
                assert url, b"".join(lines).decode()
                reading = asyncio.create_task(process.stderr.read())
                found = await answers(url, row, list(of_row(row)))
                process.terminate()
                await process.wait()
                await reading
        (folder / _file(row)).write_text(written(found), encoding="utf-8")
        sys.stdout.write(f"{row.name}: {len(found)}\n")


if __name__ == "__main__":
    asyncio.run(_record(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
