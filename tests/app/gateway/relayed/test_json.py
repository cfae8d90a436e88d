"""Embeddings, moderations, rankings and pictures: JSON in, JSON out."""

import json
from typing import Any

import pytest

from gateway.api.relayed_apis import RELAYED
from gateway.racing import MOST_TOKENS, SURPLUS_TOKENS
from tests.app.gateway.relayed.samples import (
    EMBEDDINGS,
    HANGS,
    NO_SUCH_PATH,
    PICTURE,
    PICTURES,
    Open,
    Script,
    in_order,
    says,
)
from tests.app.gateway.running_gateway import MODEL

MODERATION = {"id": "modr-1", "model": "m", "results": [{"flagged": True, "categories": {}, "category_scores": {}}]}
RANKING = {"id": "r", "results": [{"index": 1, "relevance_score": 0.9}], "meta": {"billed_units": {"search_units": 1}}}
JSON_CALLS: list[tuple[str, str, dict[str, Any], Any]] = [
    ("/v1/embeddings", "embeddings", {"input": ["one"], "encoding_format": "base64", "dimensions": 2}, EMBEDDINGS),
    ("/v1/moderations", "moderations", {"input": "peace"}, MODERATION),
    ("/v1/rerank", "rerank", {"query": "horse", "documents": ["cow", "horse"], "top_n": 1}, RANKING),
    ("/v2/rerank", "rerank", {"query": "horse", "documents": ["cow", "horse"], "top_n": 1}, RANKING),
    ("/v1/images/generations", "images.generations", {"prompt": "a cat", "n": 1}, PICTURES),
    ("/v1/images/edits", "images.edits", {"prompt": "a hat", "images": [{"image_url": "https://x.test/y"}]}, PICTURES),
]


def is_short(path: str) -> bool:
    """Whether the row of an API lets it be asked twice, so that it is raced."""
    [relayed] = [row.relayed for row in RELAYED if path in row.routes and row.relayed is not None]
    return relayed.short_bytes > 0


SHORT_CALLS = [call for call in JSON_CALLS if is_short(call[0])]


@pytest.mark.parametrize(("path", "endpoint", "body", "answer"), JSON_CALLS, ids=[call[0] for call in JSON_CALLS])
async def test_json_passes_untouched_and_is_recorded(
    opened: Open, path: str, endpoint: str, body: dict[str, Any], answer: Any
) -> None:
    odd = {**body, "a_field_of_the_future": {"x": [1, None]}}
    told = {"x-ratelimit-remaining-requests": "9", "x-request-id": "up-1"}
    async with opened(alpha=[says(answer, headers=told)]) as (running, upstreams):
        headers = {"x-request-id": "mine-1", "x-holeshot-tags": "team=red"}
        async with running.post({"model": MODEL, **odd}, path=path, headers=headers) as response:
            assert (response.status, await response.json()) == (200, answer)
        [received] = upstreams["alpha"].received
        assert received.body == {**odd, "model": "m"}
        assert received.path == path.replace("/v2/", "/v1/")
        assert received.headers["x-request-id"] == "mine-1"
        call = await running.call()
        [attempt] = await running.rows("select * from attempts")
    assert response.headers["x-request-id"] == "mine-1"
    assert response.headers["x-holeshot-upstream-request-id"] == "up-1"
    assert response.headers["x-ratelimit-remaining-requests"] == "9"
    assert response.headers["x-holeshot-deployment"] == "alpha/m"
    assert response.headers["x-holeshot-launched"] == "1"
    assert (call["endpoint"], call["status_code"], call["error_kind"]) == (endpoint, 200, None)
    mode = "race" if is_short(path) else "single"  # as configured: there is only one to ask
    assert (call["request_id"], call["launched"], call["mode"]) == ("mine-1", 1, mode)
    assert (attempt["outcome"], attempt["role"]) == ("won", "primary")
    assert attempt["ttft_ms"] is not None
    assert (attempt["sends"], attempt["in_flight"], attempt["model_version"]) == (1, 0, answer.get("model"))
    if answer is PICTURES:
        assert (call["prompt_tokens"], call["completion_tokens"]) == (5, 10)
    if answer is RANKING:
        assert (call["prompt_tokens"], call["cost_usd"]) == (None, None)


@pytest.mark.parametrize(("path", "endpoint", "body", "answer"), JSON_CALLS, ids=[call[0] for call in JSON_CALLS])
@pytest.mark.parametrize(
    "failure",
    [
        says({"error": {"message": "broken", "type": "server_error"}}, status=503),
        says({"error": {"message": "broken", "type": "server_error"}}),
        says(b"<html><title>Bad gateway</title></html>", kind="text/html"),
        says(b""),
        NO_SUCH_PATH,
        HANGS,
    ],
    ids=["503", "error with 200", "web page", "empty", "no such path", "hangs"],
)
async def test_a_failure_is_replaced_by_the_next_deployment(  # noqa: PLR0917 - what pytest hands in, by name
    opened: Open, path: str, endpoint: str, body: dict[str, Any], answer: Any, failure: Script
) -> None:
    config = {"providers": {"alpha": {"timeouts": {"ttft_timeout_s": 0.2}}}} if failure is HANGS else {}
    async with opened(alpha=[failure], beta=[says(answer)], config=config) as (running, _):
        async with running.post({"model": MODEL, **body, **in_order("alpha", "beta")}, path=path) as response:
            assert (response.status, await response.json()) == (200, answer)
            assert response.headers["x-holeshot-launched"] == "2"
        expected = "timeout" if failure is HANGS else "failed"
        assert await running.outcomes() == {"alpha": expected, "beta": "won"}
        assert (await running.call())["endpoint"] == endpoint
        [row] = await running.rows("select status_code from attempts where provider = 'alpha'")
        assert (row["status_code"] is None) is (failure is HANGS)  # what was answered has a status


def vectors(*vectors: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"object": "embedding", "embedding": each} for each in vectors], "model": "m"}


RANKED, DRAWN, TWO = {"query": "q", "documents": ["a", "b"]}, {"prompt": "a cat"}, {"input": ["a", "b"]}
GIVEN = vectors([0.5], [0.25])
LARGE = [0.123456789] * 100_000
NOTHING_GIVEN: list[tuple[str, dict[str, Any], Any, Any, str]] = [
    ("embeddings", TWO, {"object": "list", "data": []}, GIVEN, "upstream_empty"),
    ("embeddings", TWO, {"object": "list", "data": None}, GIVEN, "upstream_empty"),
    ("embeddings", TWO, {"code": 20015, "message": "boom", "data": None}, GIVEN, "server_error"),
    ("embeddings", TWO, {"detail": "boom"}, GIVEN, "server_error"),
    ("embeddings", TWO, vectors([0.5]), GIVEN, "upstream_empty"),
    ("embeddings", TWO, {"embeddings": [[0.5]]}, {"embeddings": [[0.5], [0.25]]}, "upstream_empty"),
    ("embeddings", {"input": [[1, 2], [3]]}, vectors("AACAPw=="), GIVEN, "upstream_empty"),
    ("embeddings", TWO, vectors(None, None), GIVEN, "upstream_empty"),
    (
        "embeddings",
        {"input": ["a", "b", "c"]},
        {**vectors(LARGE, LARGE), "usage": {"prompt_tokens": 3, "total_tokens": 3}},
        vectors([0.5], [0.25], [0.125]),
        "upstream_empty",
    ),
    ("embeddings", TWO, {"embeddings": [LARGE[:4000]]}, {"embeddings": [[0.5], [0.25]]}, "upstream_empty"),
    ("embeddings", TWO, {"code": "rate_limit", "message": "boom", "request_id": "r"}, GIVEN, "rate_limited"),
    ("rerank", RANKED, {"message": "boom"}, RANKING, "server_error"),
    ("rerank", RANKED, {"results": []}, {"object": "list", "data": RANKING["results"]}, "upstream_empty"),
    ("rerank", RANKED, {"data": []}, [{"index": 0, "score": 0.5}], "upstream_empty"),
    ("moderations", {"input": "x"}, {"results": []}, MODERATION, "upstream_empty"),
    ("images/generations", DRAWN, {"created": 1, "data": []}, PICTURES, "upstream_empty"),
    ("images/generations", DRAWN, {"detail": "boom"}, PICTURES, "server_error"),
    *(
        (path, body, {"error_message": "boom", "error_type": type_, "request": {"id": "1"}}, good, kind)
        for type_, kind in (("rate_limit_error", "rate_limited"), (None, "server_error"))
        for path, body, good in (
            ("embeddings", TWO, GIVEN),
            ("rerank", RANKED, RANKING),
            ("moderations", {"input": "x"}, MODERATION),
            ("images/generations", DRAWN, PICTURES),
        )
    ),
]


@pytest.mark.parametrize(("path", "body", "bad", "good", "kind"), NOTHING_GIVEN)
async def test_whoever_answers_with_nothing_has_failed(  # noqa: PLR0917 - what pytest hands in, by name
    opened: Open, path: str, body: dict[str, Any], bad: Any, good: Any, kind: str
) -> None:
    async with opened(alpha=[says(bad)], beta=[says(good)]) as (running, _):
        async with running.post({"model": MODEL, **body, **in_order("alpha", "beta")}, path=f"/v1/{path}") as response:
            assert (response.status, await response.json()) == (200, good)
        assert await running.outcomes() == {"alpha": "failed", "beta": "won"}
        [row] = await running.rows("select error_kind, error_message from attempts where provider = 'alpha'")
    assert row["error_kind"] == kind
    assert ("boom" in row["error_message"]) is (kind != "upstream_empty")


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("embeddings", {"input": "a"}, vectors([0.5])),
        ("embeddings", {"input": [1, 2, 3]}, vectors([0.5])),
        ("embeddings", TWO, {"embeddings": {"float": [[0.5], [0.25]]}}),
        ("embeddings", TWO, {**GIVEN, "message": "beside"}),
        *(("embeddings", TWO, {"data": {"embedding": LARGE[:size]}, "usage": {}}) for size in (9, 9_000, 90_000)),
        *(
            ("embeddings", {"input": fused}, vectors(LARGE[:size]))
            for fused in (
                [{"type": "text"}, {"type": "image_url"}],
                [["a", "b"], ["c"]],
                ["a", "data:image/png;base64,AA"],
            )
            for size in (9, 9_000)
        ),
        ("rerank", {**RANKED, "top_n": 0}, {"results": []}),
        ("rerank", RANKED, {"rankings": [{"index": 0, "logit": 0.5}]}),
        *(("rerank", {**RANKED, each: 0.5}, {"results": []}) for each in ("min_score", "score_threshold")),
        ("moderations", {"input": ["a", "b"]}, MODERATION),
        ("moderations", {"input": "a"}, {"flagged": False, "message": "ok"}),
        ("images/generations", DRAWN, {"task_status": "SUCCEED", "task_id": "1", "request_id": "2"}),
        ("images/generations", DRAWN, {"id": "1", "status": "queued", "polling_url": "https://x.test"}),
        ("images/generations", DRAWN, {"code": 0, "message": "accepted", "task_id": "1"}),
        *(("images/generations", DRAWN, {"image": "A" * size}) for size in (9, 99_000)),
        ("images/generations", DRAWN, {"output": {"task_id": "1"}, "code": "", "message": ""}),
    ],
)
async def test_what_has_all_that_was_asked_for_passes(
    opened: Open, path: str, body: dict[str, Any], answer: Any
) -> None:
    async with (
        opened(alpha=[says(answer)]) as (running, _),
        running.post({"model": MODEL, **body}, path=f"/v1/{path}") as response,
    ):
        assert (response.status, await response.json()) == (200, answer)


RACED = {"race": {"mode": "race", "width": 2}}


@pytest.mark.parametrize(("path", "endpoint", "body", "answer"), SHORT_CALLS, ids=[call[0] for call in SHORT_CALLS])
async def test_short_calls_are_raced_where_that_is_set(
    opened: Open, path: str, endpoint: str, body: dict[str, Any], answer: Any
) -> None:
    config = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], **RACED}}}
    async with opened(alpha=[HANGS], beta=[says(answer)], config=config) as (running, _):
        async with running.post({"model": MODEL, **body}, path=path) as response:
            assert (response.status, await response.json()) == (200, answer)
            assert response.headers["x-holeshot-launched"] == "2"
        assert await running.outcomes() == {"alpha": "lost", "beta": "won"}
        call = await running.call()
        assert (call["endpoint"], call["extras"], call["width_asked"]) == (endpoint, 1, 2)


async def test_a_client_that_wants_no_other_deployment_gets_none_beside_either(opened: Open) -> None:
    config = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], **RACED}}}
    async with opened(alpha=[says(EMBEDDINGS)], beta=[says(EMBEDDINGS)], config=config) as (running, upstreams):
        body = {"model": MODEL, "input": "one", "provider": {"allow_fallbacks": False}}
        async with running.post(body, path="/v1/embeddings") as response:
            assert response.status == 200
        assert sum(len(each.received) for each in upstreams.values()) == 1


async def test_pictures_are_never_asked_for_twice(opened: Open) -> None:
    config = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], **RACED}}}
    async with opened(alpha=[says(PICTURES)], beta=[says(PICTURES)], config=config) as (running, upstreams):
        async with running.post({"model": MODEL, "prompt": "a cat"}, path="/v1/images/generations") as response:
            assert response.status == 200
        assert sum(len(each.received) for each in upstreams.values()) == 1


@pytest.mark.parametrize("mode", ["race", "single", "auto"])
@pytest.mark.parametrize(
    ("second", "mixes"),
    [
        ("beta/bge-m3", True),
        ("beta/intfloat/multilingual-e5-large", False),
        ({"deployment": "beta/ours", "same_as": "multilingual-e5-large"}, False),
    ],
)
async def test_vectors_of_two_models_are_never_mixed(opened: Open, second: Any, mode: str, *, mixes: bool) -> None:
    deployments = ["alpha/multilingual-e5-large", second]
    config = {"models": {MODEL: {"deployments": deployments, "race": {"mode": mode}}}}
    broken = says({"error": {"message": "broken"}}, status=503)
    async with opened(alpha=[broken], beta=[says(EMBEDDINGS)], config=config) as (running, upstreams):
        async with running.post({"model": MODEL, "input": "one"}, path="/v1/embeddings") as response:
            assert (response.status == 200) is not mixes
        assert (upstreams["beta"].received == []) is mixes
        async with running.post({"model": MODEL, **JSON_CALLS[2][2]}, path="/v1/rerank") as response:
            assert response.status == 200  # nothing is kept of a ranking


async def test_vectors_are_not_made_by_the_fallback_of_another_model(opened: Open) -> None:
    models = {
        MODEL: {"deployments": ["alpha/e5-large"], "fallbacks": ["other"]},
        "other": {"deployments": ["beta/bge-m3"]},
    }
    broken = says({"error": {"message": "broken"}}, status=503)
    async with opened(alpha=[broken], beta=[says(EMBEDDINGS)], config={"models": models}) as (running, upstreams):
        async with running.post({"model": MODEL, "input": "one"}, path="/v1/embeddings") as response:
            assert response.status == 502
        assert upstreams["beta"].received == []


async def test_a_model_without_a_name_has_none(opened: Open) -> None:
    async with opened(alpha=[says({**EMBEDDINGS, "model": ""})]) as (running, _):
        async with running.post({"model": MODEL, "input": "one"}, path="/v1/embeddings") as response:
            assert response.status == 200
        [row] = await running.rows("select model_version from attempts")
        assert row["model_version"] is None


async def test_the_openai_sdk_embeds_in_base64_by_itself(opened: Open) -> None:
    async with opened() as (running, upstreams):
        answered = await running.sdk.embeddings.create(model=MODEL, input=["one"])
        assert answered.data[0].embedding == [1.0, 2.0]
        assert upstreams["alpha"].received[0].body["encoding_format"] == "base64"
        call = await running.call()
        assert (call["prompt_tokens"], call["status_code"]) == (3, 200)


async def test_a_known_price_makes_a_cost(opened: Open) -> None:
    price = {"price_per_mtok": {"input": 100.0, "output": 0.0}}
    config = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", **price}]}}}
    async with opened(config=config) as (running, _):
        raw = await running.sdk.embeddings.with_raw_response.create(model=MODEL, input=["one"])
        assert float(raw.headers["x-holeshot-cost-usd"]) == pytest.approx(3 * 100e-6)
        assert (await running.call())["cost_usd"] == pytest.approx(3 * 100e-6)


@pytest.mark.parametrize(
    ("text", "inline"),
    [("one", True), (["one or two"], True), ([[1, 2]], True), ([{"image": "https://x.test"}], False)],
)
async def test_vectors_of_text_take_no_more_tokens_than_its_bytes_can_make(
    opened: Open, text: Any, inline: bool
) -> None:
    usage = {"prompt_tokens": 2_000_000_000, "total_tokens": 2_000_000_000}
    async with opened(alpha=[says({**EMBEDDINGS, "usage": usage})]) as (running, _):
        body = {"model": MODEL, "input": text}
        async with running.post(body, path="/v1/embeddings") as response:
            assert response.status == 200
        [row] = await running.rows("select prompt_tokens, tokens_source, reported_tokens from attempts")
    most = 2 * len(json.dumps(body)) + SURPLUS_TOKENS if inline else MOST_TOKENS
    assert row == {"prompt_tokens": most, "tokens_source": "implausible", "reported_tokens": 2_000_000_000}


async def test_pictures_have_no_cost_where_only_texts_price_is_known(opened: Open) -> None:
    price = {"price_per_mtok": {"input": 5.0, "output": 0.0}}
    config = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", **price}]}}}
    async with opened(alpha=[says(PICTURES)], config=config) as (running, _):
        drawn = await running.sdk.images.generate(model=MODEL, prompt="a cat")
        assert drawn.data is not None
        assert drawn.data[0].b64_json == PICTURE
        assert (await running.call())["cost_usd"] is None


async def test_a_moderation_without_a_model_asks_the_one_that_is_for_it(opened: Open) -> None:
    models = {MODEL: {"deployments": ["alpha/m"]}, "guard": {"deployments": ["alpha/omni-moderation-latest"]}}
    async with opened(alpha=[says(MODERATION)], config={"models": models}) as (running, upstreams):
        judged = await running.sdk.moderations.create(input="violence")
        assert judged.results[0].flagged
        assert upstreams["alpha"].received[0].body == {"input": "violence", "model": "omni-moderation-latest"}
        assert (await running.call())["model"] == "guard"


async def test_without_a_model_and_with_several_it_is_to_be_named(opened: Open) -> None:
    models = {MODEL: {"deployments": ["alpha/m"]}, "other": {"deployments": ["alpha/n"]}}
    async with opened(config={"models": models}) as (running, upstreams):
        async with running.post({"input": "x"}, path="/v1/moderations") as response:
            error = (await response.json())["error"]
        assert (response.status, error["param"]) == (400, "model")
        assert "llama, other" in error["message"]
        assert upstreams["alpha"].received == []


async def test_a_large_answer_is_sent_in_pieces_and_its_usage_is_read_without_its_vectors(opened: Open) -> None:
    vectors = [{"object": "embedding", "index": n, "embedding": [0.123456789] * 1000} for n in range(128)]
    answer = {"object": "list", "data": vectors, "model": "m", "usage": {"prompt_tokens": 128, "total_tokens": 128}}
    async with opened(alpha=[says(answer)]) as (running, _):
        async with running.post({"model": MODEL, "input": ["one"] * 128}, path="/v1/embeddings") as response:
            assert (response.status, await response.json()) == (200, answer)
            assert int(response.headers["content-length"]) > 2**20
        call = await running.call()
    assert (call["prompt_tokens"], call["status_code"]) == (128, 200)
