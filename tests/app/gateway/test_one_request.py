"""A request that is refused for its content, tier or choice of vendors takes nothing from the calls of others."""

from hashlib import sha256
from typing import Any

import pytest

from providers.simulator.script import Status, answer
from tests.app.gateway.running_gateway import MODEL, Serve, single

KEYS = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789", "key-three-0123456789"]}
JSON = {"content-type": "application/json"}
UNWANTED = b'{"code":"permission-denied","error":"Content violates usage guidelines. "}'
FULL = b'{"error":{"message":"Flex tier capacity exceeded","type":"capacity_exceeded","code":"capacity_exceeded"}}'
BUSY = b'{"error":{"message":"Resource Unavailable","type":"resource_unavailable","code":null}}'
LONG = b'{"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long context."}}'
ROUTED = b'{"error":{"message":"No allowed providers are available for the selected model.","code":404}}'
IGNORED = b'{"error":{"message":"All providers have been ignored.","code":404}}'

REFUSALS: dict[str, tuple[int, bytes, dict[str, Any]]] = {
    "content": (403, UNWANTED, {}),
    "a tier without room": (498, FULL, {"service_tier": "flex"}),
    "a tier without room, with 429": (429, BUSY, {"service_tier": "flex"}),
    "a long context": (429, LONG, {}),
    "its only vendor": (404, ROUTED, {"provider": {"only": ["x"]}}),
    "its vendors to leave out": (404, IGNORED, {"provider": {"ignore": ["x"]}}),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_request_that_is_refused_leaves_all_three_keys_to_others(serve: Serve, name: str) -> None:
    status, said, fields = REFUSALS[name]
    provider = KEYS | ({"preset": "openrouter", "apis": ["chat"]} if "provider" in fields else {})
    model = "alpha/some/model" if "provider" in fields else MODEL
    body = {"model": model, "messages": [{"role": "user", "content": "x"}]}
    async with serve(
        alpha=[Status(status, said, JSON)], config={"providers": {"alpha": provider}, **single()}
    ) as running:
        for _ in range(5):
            async with running.post(body | fields, path="/v1/chat/completions") as response:
                assert response.status == (429 if status == 498 else status), await response.text()
        running["alpha"].script = answer("well")
        for _ in range(12):
            async with running.post(body, path="/v1/chat/completions") as response:
                assert response.status == 200
        assert {row.state for row in running.gateway.steering.leaderboard(model).deployments} == {"ok"}


async def test_a_tier_without_room_is_answered_by_any_other_deployment(serve: Serve) -> None:
    full = [Status(498, FULL, JSON)]
    async with serve(a=full, b=full, c=answer("from c"), config=single()) as running:
        running.prefer("a", "b", "c")
        async with running.chat(service_tier="flex") as response:
            assert response.status == 200
            assert b"from c" in await response.read()
        assert {row.state for row in running.gateway.steering.leaderboard(MODEL).deployments} == {"ok"}


UNHEARD = b'{"error":{"message":"Our compass points elsewhere for this one.","type":"declined","code":"compass"}}'
SPOILT = b'{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}'
CLIENTS = {
    "clients": {
        name: {"key_sha256": sha256(f"hs-{name}".encode()).hexdigest()} for name in ("mallory", "fair", "other")
    }
}


def of(client: str) -> dict[str, str]:
    return {"authorization": f"Bearer hs-{client}"}


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("keys", [KEYS, {}])
async def test_a_refusal_that_no_table_has_takes_nothing_from_other_clients(
    serve: Serve, status: int, *, is_first: bool, keys: dict[str, Any]
) -> None:
    refusal = [Status(status, UNHEARD, JSON | {"retry-after": "30"})]
    config = {"providers": {"alpha": keys}, **CLIENTS, **single()}
    async with serve(alpha=answer("well"), config=config) as running:
        for client in () if is_first else ("fair", "other", "mallory") * 3:
            async with running.chat(of(client)) as response:
                assert response.status == 200
        running["alpha"].script = refusal
        asked = len(running["alpha"].received)
        for _ in range(10):
            async with running.chat(of("mallory")) as response:
                assert response.status >= 400
        assert len(running["alpha"].received) - asked < 10 * 3  # it is kept away soon
        running["alpha"].script = answer("well")
        for _ in range(10):
            async with running.chat(of("fair")) as response:
                assert response.status == 200, await response.text()


async def test_a_key_that_its_vendor_calls_wrong_is_out_for_all_from_one(serve: Serve) -> None:
    config = {"providers": {"alpha": KEYS}, **CLIENTS, **single()}
    async with serve(alpha=answer("well"), config=config) as running:
        for client in ("fair", "other", "mallory") * 3:
            async with running.chat(of(client)) as response:
                assert response.status == 200
        running["alpha"].script = [Status(401, SPOILT, JSON)]
        asked = len(running["alpha"].received)
        for client in ("fair", "other", "mallory") * 3:
            async with running.chat(of(client)) as response:
                assert response.status == 424
        assert len(running["alpha"].received) - asked == 3  # each key once
