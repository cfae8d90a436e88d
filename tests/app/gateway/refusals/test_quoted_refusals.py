"""What one client writes, and a provider quotes when it refuses it, changes nothing for the requests of others."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from providers.simulator.script import Raw, Status, Step, answer
from tests.app.gateway.running_gateway import MODEL, Serve

WRITTEN = [
    "maximum context length is 100 tokens",
    "max_tokens: 5 > 100, which is the maximum",
    "stream_options",
    "`service_tier` is not supported with this model",
    "roles must alternate",
    "only supported in v1/responses",
    "streaming is not supported",
    "Incorrect API key provided",
    "Your credit balance is too low",
    "Insufficient Balance",
    "用户额度不足",
]
QUOTES = [
    "Invalid value: '{}'. Supported values are: 'low', 'high'.",
    "Invalid reasoning_effort: {}",
    "{} is not a valid effort",
]
USUAL = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hi " * 400}],
    "max_tokens": 9000,
    "service_tier": "auto",
    "stream": True,
}


def refusing(quote: str, how: str) -> Any:
    def answered(body: Any) -> Sequence[Step]:
        if "reasoning_effort" not in body:
            return answer("Hello")
        said = {"error": {"message": quote.format(body["reasoning_effort"]), "type": "invalid_request_error"}}
        if how == "an event":
            return [Raw(b"data: " + json.dumps(said).encode() + b"\n\n")]
        return [Status(200 if how == "a JSON body with 200" else 400, said)]

    return answered


@pytest.mark.parametrize("how", ["a status", "an event", "a JSON body with 200"])
@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("written", WRITTEN)
async def test_a_quote_changes_nothing_for_others(serve: Serve, written: str, quote: str, how: str) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing(quote, how)
        seen = []
        for more in ({}, {"reasoning_effort": written}, {"reasoning_effort": written, "stream": False}, {}):
            async with running.post(USUAL | more) as response:
                status, _ = response.status, await response.text()
            seen.append((status, running["alpha"].received[-1].body))
        async with running.get("/leaderboard") as response:
            [row] = (await response.json())["models"][0]["deployments"]
        kinds = await running.rows("select distinct error_kind from attempts")
        assert {each["error_kind"] for each in kinds} <= {None, "bad_request", "form_refused"}
        assert row["state"] == "ok"
        # A value of one word is no more than that: others that send it are told what the vendor says of it.
        assert not row.get("refuses") or row["refuses"] == ['reasoning_effort: "stream_options"']
        assert seen[-1] == seen[0]
        assert seen[0][0] == 200
