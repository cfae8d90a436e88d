"""A request that is refused for its content, tier or choice of vendors takes nothing from the calls of others."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from providers.simulator import Delta, Raw, Status, Step, answer
from tests.app.gateway.refusals.test_refused_fields import QUESTION
from tests.app.gateway.running_gateway import MODEL, Serve, single

KEYS = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789", "key-three-0123456789"]}
JSON = {"content-type": "application/json"}
UNWANTED = b'{"code":"permission-denied","error":"Content violates usage guidelines. "}'
FULL = b'{"error":{"message":"Flex tier capacity exceeded","type":"capacity_exceeded","code":"capacity_exceeded"}}'
BUSY = b'{"error":{"message":"Resource Unavailable","type":"resource_unavailable","code":null}}'
LONG = b'{"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long context."}}'
ROUTED = b'{"error":{"message":"No allowed providers are available for the selected model.","code":404}}'
CROWDED = b'{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}'
RATED = b'{"error":{"message":"Rate limit reached for m on RPM","type":"requests","code":"rate_limit_exceeded"}}'
IGNORED = b'{"error":{"message":"All providers have been ignored.","code":404}}'

REFUSALS: dict[str, tuple[int, bytes, dict[str, Any]]] = {
    "content": (403, UNWANTED, {}),
    "a tier without room": (498, FULL, {"service_tier": "flex"}),
    "a tier without room, with 429": (429, BUSY, {"service_tier": "flex"}),
    "a long context": (429, LONG, {}),
    "its only vendor": (404, ROUTED, {"provider": {"only": ["x"]}}),
    "its vendors to leave out": (404, IGNORED, {"provider": {"ignore": ["x"]}}),
}
TOLD = {403: 400, 498: 429}  # statuses that say another thing to programs: a wrong key, and nothing at all


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
                assert response.status == TOLD.get(status, status), await response.text()
        running["alpha"].script = answer("well")
        for _ in range(12):
            async with running.post(body, path="/v1/chat/completions") as response:
                assert response.status == 200
        assert {row.state for row in running.gateway.steering.leaderboard(model).deployments} == {"ok"}


def within(said: bytes, **more: Any) -> list[Step]:
    """Return an answer with status 200 that is this error."""
    error = msgspec.json.decode(said)
    error = error if isinstance(error.get("error"), dict) else {"error": error | {"message": error["error"]}}
    error["error"] |= more
    return [Raw(b"data: " + msgspec.json.encode(error) + b"\n\n")]


TIERED = {"service_tier": "flex"}
WITHIN: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "content": (within(UNWANTED, status=403), {}),
    "a tier without room, by its code alone": (within(FULL), TIERED),
    "a tier without room, by its type alone": (within(BUSY), TIERED),
    "a tier without room, with 429": (within(BUSY, type=None, code=429), TIERED),
    "a tier without room, with 503": (within(CROWDED), TIERED),
    "a long context": (within(LONG), {}),
    "its only vendor": (within(ROUTED), {"provider": {"only": ["x"]}}),
    "its vendors to leave out": (within(IGNORED), {"provider": {"ignore": ["x"]}}),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", WITHIN)
async def test_so_does_one_that_is_refused_within_its_answer(serve: Serve, name: str, *, stream: bool) -> None:
    said, fields = WITHIN[name]
    provider = KEYS | ({"preset": "openrouter", "apis": ["chat"]} if "provider" in fields else {})
    model = "alpha/some/model" if "provider" in fields else MODEL
    body = {"model": model, "messages": [{"role": "user", "content": "x"}], "stream": stream}
    async with serve(alpha=said, config={"providers": {"alpha": provider}, **single()}) as running:
        for _ in range(5):
            async with running.post(body | fields, path="/v1/chat/completions") as response:
                assert response.status >= 400, await response.text()
        assert {row["error_kind"] for row in await running.rows("select error_kind from attempts")} == {"bad_request"}
        running["alpha"].script = answer("well")
        for _ in range(12):
            async with running.post(body, path="/v1/chat/completions") as response:
                assert response.status == 200
        assert {row.state for row in running.gateway.steering.leaderboard(model).deployments} == {"ok"}


@pytest.mark.parametrize("name", ["a tier without room, by its code alone", "a tier without room, with 503"])
async def test_within_an_answer_too_a_tier_without_room_is_answered_by_any_other_deployment(
    serve: Serve, name: str
) -> None:
    full, _ = WITHIN[name]
    async with serve(a=full, b=full, c=answer("from c"), config=single()) as running:
        running.prefer("a", "b", "c")
        async with running.chat(service_tier="flex") as response:
            assert response.status == 200
            assert b"from c" in await response.read()
        assert {row.state for row in running.gateway.steering.leaderboard(MODEL).deployments} == {"ok"}


@pytest.mark.parametrize(
    ("said", "fields"),
    [(BUSY, {}), (RATED, {}), (RATED, TIERED)],
    ids=["no tier", "a limit", "a limit, and a tier"],
)
async def test_a_limit_within_an_answer_still_cools_its_deployment(
    serve: Serve, said: bytes, fields: dict[str, Any]
) -> None:
    async with serve(alpha=within(said, code=429), config=single()) as running:
        async with running.post({"model": MODEL, "messages": QUESTION, **fields}) as response:
            assert response.status >= 400
        [row] = running.gateway.steering.leaderboard(MODEL).deployments
        assert str(row.state).startswith("cooling")


async def test_an_answer_that_had_begun_in_its_tier_is_broken_off_and_not_refused(serve: Serve) -> None:
    async with serve(alpha=[Delta("Hel"), *within(CROWDED)], config=single()) as running:
        async with running.chat(service_tier="flex") as response:
            assert b"overloaded" in await response.read()
        assert {row["error_kind"] for row in await running.rows("select error_kind from attempts")} == {"server_error"}


async def test_a_tier_of_the_operators_own_excuses_nothing(serve: Serve) -> None:
    flexible = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", "extra_body": TIERED}]}}}
    async with serve(alpha=within(BUSY, type=None, code=429), config=flexible) as running:
        async with running.chat(service_tier="flex") as response:
            assert response.status >= 400
        [row] = running.gateway.steering.leaderboard(MODEL).deployments
        assert str(row.state).startswith("cooling")


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


async def test_so_is_one_that_is_told_within_an_answer(serve: Serve) -> None:
    config = {"providers": {"alpha": KEYS}, **CLIENTS, **single()}
    async with serve(alpha=answer("well"), config=config) as running:
        for client in ("fair", "other", "mallory") * 3:
            async with running.chat(of(client)) as response:
                assert response.status == 200
        running["alpha"].script = within(SPOILT)
        asked = len(running["alpha"].received)
        for client in ("fair", "other", "mallory") * 3:
            async with running.chat(of(client), service_tier="flex") as response:
                assert response.status == 424
        assert len(running["alpha"].received) - asked == 3  # each key once
