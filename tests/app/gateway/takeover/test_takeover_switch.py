"""A request may say whether its answer is finished by another; what it may not say is its API's own error."""

from typing import Any

import pytest

from tests.app.gateway.running_gateway import MODEL, PROMPT, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
APIS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": list(PROMPT)},
    "/v1/completions": {"prompt": "Say hello."},
    "/v1/responses": {"input": "Say hello."},
    "/v1/messages": {"messages": list(PROMPT), "max_tokens": 100},
}
REFUSED = [
    ({"takeover": True}, False, "takeover is not allowed for model '{}': its operator sets 'takeover: asked'"),
    ({"takeover": "yes"}, True, "Expected `bool | null`, got `str` - at `$.takeover`"),
    ({"takeover": 1}, True, "Expected `bool | null`, got `int` - at `$.takeover`"),
    ({"take_over": True}, True, "unknown field `take_over`"),
]


@pytest.mark.parametrize("path", APIS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("refused", REFUSED, ids=str)
async def test_a_switch_that_makes_no_sense_is_refused_before_anybody_is_asked(
    shared: SharedGateways, path: str, stream: bool, refused: tuple[dict[str, Any], bool, str]
) -> None:
    race, allowed, reason = refused
    config = {"models": {MODEL: {"takeover": "asked" if allowed else "never"}}}
    async with shared.row(alpha=None, beta=None, config=config) as running:
        model = MODEL + running.suffix
        body = {"model": model, "stream": stream, "race": race, **APIS[path]}
        async with running.post(body, path=path) as response:
            answer = await response.json()
        assert response.status == 400
        error = answer["error"]
        assert error["type"] == "invalid_request_error"
        assert reason.format(model) in error["message"]
        if path == "/v1/messages":
            assert answer["type"] == "error"
        else:
            assert (error["param"], answer.keys()) == ("race", {"error"})
        assert [running.received(name) for name in ("alpha", "beta")] == [[], []]
        assert await running.rows(f"select * from attempts where model = '{model}'") == []


@pytest.mark.parametrize("path", APIS)
async def test_the_header_may_not_either(serve: Serve, path: str) -> None:
    async with serve(alpha=None) as running:
        headers = {"x-holeshot-race": '{"takeover": true}'}
        async with running.post({"model": MODEL, **APIS[path]}, path=path, headers=headers) as response:
            answer = await response.json()
        assert response.status == 400
        assert "takeover is not allowed for model 'llama'" in answer["error"]["message"]
        assert running.requests == 0


@pytest.mark.parametrize("when", ["never", "asked", "always"])
async def test_it_may_be_switched_off_wherever_it_is(serve: Serve, when: str) -> None:
    async with serve(alpha=None, config={"models": {MODEL: {"takeover": when}}}) as running:
        for path, fields in APIS.items():
            if path in {"/v1/chat/completions", "/v1/completions"}:
                body = {"model": MODEL, "race": {"takeover": False}, **fields}
                async with running.post(body, path=path) as response:
                    assert response.status == 200, await response.text()
