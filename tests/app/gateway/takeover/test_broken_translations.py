"""An answer that breaks off: clients of another API than the provider's get, and pay, what those of its own do."""

import json
from typing import Any

import pytest

from providers import events
from providers.simulator import Gate, Hang, Raw, Step
from tests.app.gateway.apis.test_dialects import MESSAGE_START, event, speaking
from tests.app.gateway.broken_answers import BODIES, Seen, text_in
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.shared_gateway import SharedGateways
from tests.patience import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = 5000  # tokens, as the provider says; far more than the gateway would guess
PRICE = {"input": 1.0, "output": 2.0}
USAGE = {"prompt_tokens": PROMPT, "completion_tokens": 4, "total_tokens": PROMPT + 4}  # some send it with every chunk
PATHS = ("chat/completions", "messages", "responses")


def chat_chunk(text: str, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **fields}
    return b"data: %b\n\n" % json.dumps(said).encode()


def message_text(text: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def response_text(text: str) -> bytes:
    return event("response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=text)


MESSAGE_BEGUN = MESSAGE_START.replace(b'"input_tokens": 7', b'"input_tokens": %d' % PROMPT)
BLOCK = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
FIRST = {
    "chat": chat_chunk("Hello", usage=USAGE),
    "messages": MESSAGE_BEGUN + BLOCK + message_text("Hello"),
    "responses": response_text("Hello"),
}
TEXT = {"chat": chat_chunk, "messages": message_text, "responses": response_text}
ERRORS = {
    "an error": b'data: {"type":"error","error":{"type":"overloaded_error","message":"overloaded","code":503}}\n\n',
    "an error by its name": b'event: error\ndata: {"message":"overloaded"}\n\n',
    "no JSON": b"data: {no\n\n",
}


def settings(api: str) -> dict[str, Any]:
    race = {"race": {"mode": "single"}, "deployments": [{"deployment": "alpha/m", "price_per_mtok": PRICE}]}
    return {"providers": {"alpha": speaking(api)}, "models": {MODEL: race}}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("api", FIRST)
@pytest.mark.parametrize("path", PATHS)
async def test_text_that_comes_with_an_error_reaches_the_client(
    shared: SharedGateways, path: str, api: str, error: bytes
) -> None:
    seen = Seen()
    said = TEXT[api](" there") + TEXT[api](" again")
    script: list[Step] = [Raw(FIRST[api], token=True), Gate(seen.event), Raw(said + error)]
    async with shared.row(alpha=script, config=settings(api)) as running:
        model = MODEL + running.suffix
        async with running.post({"model": model, "stream": True, **BODIES[path]}, path=f"/v1/{path}") as response:
            got = b""
            async for piece in response.content.iter_any():
                got += piece
                if b"Hello" in got:
                    seen.event.set()
        assert response.status == 200
        told = [json.loads(each.data) for each in events(got)]
        assert text_in(told) == "Hello there again"
        assert told[-1].get("error") or told[-1]["type"] in {"error", "response.failed"}
        [row] = await running.rows(f"select outcome, chunks from attempts where model = '{model}'")
        assert row == {"outcome": "failed", "chunks": 3}


@pytest.mark.parametrize("api", FIRST)
@pytest.mark.parametrize("path", PATHS)
async def test_an_error_with_the_first_text_is_seen_before_the_answer_begins(serve: Serve, path: str, api: str) -> None:
    async with serve(alpha=[Raw(FIRST[api] + ERRORS["no JSON"], token=True)], config=settings(api)) as running:
        body = {"model": MODEL, "stream": True, **BODIES[path]}
        async with running.post(body, path=f"/v1/{path}") as response:
            status = response.status
        assert status == 502


ENDS: dict[str, list[Step]] = {
    "an error": [Raw(ERRORS["an error"])],
    "no end": [],
    "the client leaves": [Hang()],
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_usage_that_was_reported_before_the_break_counts_for_every_client(
    serve: Serve, api: str, end: list[Step]
) -> None:
    script: list[Step] = [Raw(FIRST[api], token=True), *end]
    async with serve(alpha=script, config=settings(api)) as running:
        for number, path in enumerate(PATHS, 1):
            async with running.post({"model": MODEL, "stream": True, **BODIES[path]}, path=f"/v1/{path}") as response:
                got = b""
                async for piece in response.content.iter_any():
                    got += piece
                    if b"Hello" in got and end == [Hang()]:
                        break

            async def ended(number: int = number) -> bool:
                return len(await running.rows("select 1 from attempts")) == number

            await eventually(ended)
        counted = "prompt_tokens, completion_tokens, tokens_source, cost_usd, cost_low_usd, cost_high_usd"
        rows = await running.rows(f"select {counted} from attempts")
        assert rows[0]["prompt_tokens"] == PROMPT
        assert rows[0]["completion_tokens"] == (4 if api == "chat" else 2)
        assert rows[0]["cost_high_usd"] > PROMPT * PRICE["input"] / 1e6
        assert rows == [rows[0]] * len(PATHS)
