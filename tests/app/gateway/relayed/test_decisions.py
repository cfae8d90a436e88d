"""Decisions as the SDKs of OpenAI and Google send them, and what requests must have."""

from typing import Any

import pytest

from tests.app.gateway.access.test_admission import KEYS, clients
from tests.app.gateway.relayed.samples import EMBEDDINGS, HANGS, Open, says
from tests.app.gateway.running_gateway import MODEL

ASKED = {
    "input": "The parcel never came.",
    "questions": [
        {"type": "predicate", "name": "angry", "instructions": "The writer is angry."},
        {"type": "choice", "instructions": "Who handles it?", "choices": [{"value": "post"}, {"value": True}]},
    ],
    "safety_identifier": "u-1",
}
DECISION = {
    "model": "gpt-6-luna",
    "answers": [{"type": "predicate", "name": "angry", "probability": 0.9}, {"type": "refusal", "name": None}],
    "usage": {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 22,
    },
}
GOOGLES = {"input": "It never came.", "questions": {"q0": {"type": "noul", "instructions": "The writer is angry."}}}
NATIVE = {"providers": {name: {"apis": ["chat", "decisions"]} for name in ("alpha", "beta")}}


async def test_decisions_go_to_who_has_them_as_they_are(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["chat", "decisions"]}}}
    async with opened(alpha=[says(DECISION)], config=config) as (running, upstreams):
        async with running.post({"model": MODEL, **ASKED}, path="/v1/decisions") as response:
            assert (response.status, await response.json()) == (200, DECISION)
        [received] = upstreams["alpha"].received
        assert (received.path, received.body) == ("/v1/decisions", {**ASKED, "model": "m"})
        call = await running.call()
        assert (call["endpoint"], call["prompt_tokens"], call["completion_tokens"]) == ("decisions", 20, 2)


async def test_googles_decisions_are_its_own(opened: Open) -> None:
    providers = {"alpha": {"apis": ["gemini", "google_decisions"], "kind": "gemini"}}
    answer = {"answers": {"q0": {"type": "noul", "probability": 0.9}}}
    async with opened(alpha=[says(answer)], config={"providers": providers}) as (running, upstreams):
        for path, headers in (("/v1beta/decisions", {}), ("/v1/decisions", {"x-goog-api-key": "k"})):  # its SDK's
            asked = {"model": f"models/{MODEL}", **GOOGLES}
            async with running.post(asked, path=path, headers=headers) as response:
                assert (response.status, await response.json()) == (200, answer)
            assert upstreams["alpha"].received[-1].body == {**GOOGLES, "model": "m"}


@pytest.mark.parametrize(("headers", "query"), [({"x-goog-api-key": "K"}, ""), ({}, "?key=K")])
async def test_googles_clients_are_refused_in_googles_words_where_openais_come_too(
    opened: Open, headers: dict[str, str], query: str
) -> None:
    key, wrong = KEYS["plain"], "hs-wrong-1234567890-wrong"
    config = {"providers": {"alpha": {"apis": ["gemini", "google_decisions"], "kind": "gemini"}}, **clients(plain={})}
    answer = {"answers": {"q0": {"type": "noul", "probability": 0.9}}}
    async with opened(alpha=[says(answer)], config=config) as (running, _):
        for asked, sent, status, said in (
            (GOOGLES, key, 200, None),
            (GOOGLES, wrong, 401, "UNAUTHENTICATED"),
            ({**GOOGLES, "questions": []}, key, 400, "INVALID_ARGUMENT"),
        ):
            named = {name: value.replace("K", sent) for name, value in headers.items()}
            path = f"/v1/decisions{query.replace('K', sent)}"
            async with running.post({"model": MODEL, **asked}, path=path, headers=named) as response:
                body = await response.json()
            assert (response.status, body.get("error", {}).get("status")) == (status, said), body
        async with running.post({"model": MODEL, **ASKED}, path="/v1/decisions") as response:
            assert (response.status, "status" in (await response.json())["error"]) == (401, False)  # OpenAI's


async def test_decisions_are_raced_among_the_same_model(opened: Open) -> None:
    models = {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "race", "width": 2}}}
    config = {**NATIVE, "models": models}
    async with opened(alpha=[HANGS], beta=[says(DECISION)], config=config) as (running, _):
        async with running.post({"model": MODEL, **ASKED}, path="/v1/decisions") as response:
            assert (response.status, response.headers["x-holeshot-launched"]) == (200, "2")
        assert await running.outcomes() == {"alpha": "lost", "beta": "won"}


@pytest.mark.parametrize(("path", "body"), [("/v1/decisions", ASKED), ("/v1beta/decisions", GOOGLES)])
async def test_where_nobody_has_decisions_none_are_made_up(opened: Open, path: str, body: dict[str, Any]) -> None:
    config = {"providers": {"alpha": {"apis": ["chat"]}}}
    async with opened(alpha=[says(DECISION)], config=config) as (running, upstreams):
        async with running.post({"model": MODEL, **body}, path=path) as response:
            said = await response.json()
        assert (response.status, upstreams["alpha"].received) == (400, [])
        assert "alpha/m answers chat only" in said["error"]["message"]
        assert ("status" in said["error"]) is path.startswith("/v1beta")  # each API has errors of its own


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/decisions", {**ASKED, "questions": []}, "questions"),
        ("/v1/decisions", {**ASKED, "questions": {"q": {}}}, "questions"),
        ("/v1/decisions", {"questions": ASKED["questions"]}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/moderations", {"input": []}, "input"),
        ("/v1/rerank", {"query": "horse", "documents": []}, "documents"),
    ],
)
async def test_an_empty_list_is_told_before_anybody_is_asked(
    opened: Open, path: str, body: dict[str, Any], param: str
) -> None:
    config = {"providers": {"alpha": {"apis": ["decisions", "embeddings", "moderations", "rerank"]}}}
    async with opened(alpha=[says({})], config=config) as (running, upstreams):
        async with running.post({"model": MODEL, **body}, path=path) as response:
            error = (await response.json())["error"]
        assert (response.status, error["param"], error["type"]) == (400, param, "invalid_request_error")
        assert upstreams["alpha"].received == []


@pytest.mark.parametrize(
    ("can", "path", "body", "why"),
    [
        ({"max_documents": 2}, "/v1/rerank", {"query": "x", "documents": ["a", "b", "c"]}, "at most 2 documents"),
        ({"max_dimensions": 512}, "/v1/embeddings", {"input": "x", "dimensions": 1024}, "at most 512 dimensions"),
    ],
)
async def test_who_cannot_take_so_much_is_left_out_and_400_says_so_if_nobody_can(
    opened: Open, can: dict[str, int], path: str, body: dict[str, Any], why: str
) -> None:
    small, large = {"deployment": "alpha/m", "capabilities": can}, {"deployment": "beta/m"}
    config: dict[str, Any] = {"models": {MODEL: {"deployments": [small, large]}, "small": {"deployments": [small]}}}
    async with opened(alpha=[says(EMBEDDINGS)], beta=[says(EMBEDDINGS)], config=config) as (running, upstreams):
        async with running.post({"model": MODEL, **body}, path=path) as response:
            assert (response.status, response.headers["x-holeshot-deployment"]) == (200, "beta/m")
        async with running.post({"model": "small", **body}, path=path) as response:
            assert response.status == 400
            assert why in (await response.json())["error"]["message"]
        assert upstreams["alpha"].received == []
