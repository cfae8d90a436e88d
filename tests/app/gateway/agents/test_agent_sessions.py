"""An agent's session: a tag, the cache key of vendors that take one, and what keeps it at a provider's key."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from providers.simulator import Raw, Step, answer
from tests.app.gateway.apis.test_dialects import RESPONSE_BYTES
from tests.app.gateway.key_desk import sha256
from tests.app.gateway.keys.test_key_caches import KEYS, LONG, chat, claude_code, key_of
from tests.app.gateway.limits.test_payers import HASH, tags
from tests.app.gateway.refusals.test_refused_fields import refusing
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.unit.api.inside.test_agent_sessions import UUID

OTHER = "0b0c9d3e-41b4-4cf5-9b7b-6f1f0a4c2a11"
CHAT = "/v1/chat/completions"
Said = Mapping[str, str]
NOTHING: Said = {}


async def ask(running: RunningGateway, path: str, body: Mapping[str, Any], said: Said = NOTHING) -> tuple[int, str]:
    """Return the status of a request with these headers, and what was left out of it."""
    async with running.http.post(f"{running.url}{path}", json=body, headers={**said}) as response:
        await response.read()
        return response.status, response.headers.get("x-holeshot-dropped", "")


def body(text: str = "Hi", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def keys(running: RunningGateway, provider: str = "alpha") -> list[str | None]:
    return [each.body.get("prompt_cache_key") for each in running[provider].received]


async def test_a_session_is_a_tag_of_its_calls_whoever_names_it(serve: Serve) -> None:
    user = json.dumps({"device_id": HASH, "account_uuid": "", "session_id": UUID})
    metadata: dict[str, Any] = {"metadata": {"user_id": user}, "max_tokens": 9}
    asked: Sequence[tuple[str, dict[str, Any], Said]] = [
        (CHAT, body(), {"X-Claude-Code-Session-Id": UUID}),
        (CHAT, body(), {"session_id": UUID}),
        ("/v1/messages", body(**metadata), {}),
        ("/v1/messages", body(**metadata), {"x-session-affinity": "ses_one"}),
        ("/v1/responses", {"model": MODEL, "input": "Hi", "prompt_cache_key": UUID}, {}),
        (CHAT, body(), {"session-id": UUID, "x-holeshot-tags": "session=mine, job=nightly"}),
        (CHAT, body(), {"session-id": "two words"}),
        (CHAT, body(prompt_cache_key="support"), {}),
        (CHAT, body(user="5f3a", metadata={"cursorConversationId": UUID}), {}),
    ]
    async with serve(alpha=None) as running:
        for path, sent, said in asked:
            assert (await ask(running, path, sent, said))[0] == 200
        assert await tags(running) == [
            *[{"session": UUID}] * 3,
            {"session": "ses_one"},
            {"session": UUID},
            {"session": "mine", "job": "nightly"},
            {},
            {},
            {"session": UUID},
        ]
        sent_on = {name.lower() for each in running["alpha"].received for name in each.headers}
    assert not any("session" in name for name in sent_on)


@pytest.mark.parametrize(
    ("settings", "path", "script"),
    [
        ({"preset": "openai"}, CHAT, answer("Hello")),
        ({"preset": "mistral"}, CHAT, answer("Hello")),
        ({"preset": "openai", "apis": ["chat"]}, "/v1/messages", answer("Hello")),
        ({"preset": "openai"}, "/v1/responses", [Raw(RESPONSE_BYTES, token=True)]),
        ({"preset": "xai"}, "/v1/responses", [Raw(RESPONSE_BYTES, token=True)]),
    ],
)
async def test_vendors_that_take_a_cache_key_get_one_for_each_session(
    serve: Serve, settings: dict[str, Any], path: str, script: Sequence[Step]
) -> None:
    async with serve(alpha=script, config={"providers": {"alpha": settings}}) as running:
        sent = {"model": MODEL, "input": LONG} if path == "/v1/responses" else body(LONG, max_tokens=9)
        for session in (UUID, UUID, OTHER):
            assert await ask(running, path, sent, {"session-id": session}) == (200, "")
        first, again, other = keys(running)
        assert first == again != other
        assert isinstance(first, str)
        assert UUID not in first
        assert (await ask(running, path, sent))[0] == 200  # nobody names one
        assert keys(running)[-1] is None
        if path != "/v1/messages":
            assert (await ask(running, path, {**sent, "prompt_cache_key": "mine"}, {"session-id": UUID}))[0] == 200
            assert keys(running)[-1] == "mine"


@pytest.mark.parametrize(
    ("settings", "text"),
    [({}, LONG), ({"preset": "groq"}, LONG), ({"preset": "xai"}, LONG), ({"preset": "openai"}, "Hi")],
    ids=["no known vendor", "refuses it", "takes it in another API", "short"],
)
async def test_nobody_else_gets_one(serve: Serve, settings: dict[str, Any], text: str) -> None:
    async with serve(alpha=None, config={"providers": {"alpha": settings}}) as running:
        assert await ask(running, CHAT, body(text), {"session-id": UUID}) == (200, "")
        assert keys(running) == [None]


async def test_a_model_that_refuses_the_key_is_asked_without_it_and_the_client_is_not_told(serve: Serve) -> None:
    async with serve(alpha=None, config={"providers": {"alpha": {"preset": "openai"}}}) as running:
        running["alpha"].answers = refusing("prompt_cache_key")
        for _ in range(2):
            assert await ask(running, CHAT, body(LONG), {"session-id": UUID}) == (200, "")
        assert [key is None for key in keys(running)] == [False, True, True]


async def test_a_session_keeps_its_key_when_its_agent_sums_up(serve: Serve) -> None:
    summed = [{"role": "user", "content": "In short: much was said."}]
    async with serve(alpha=answer("Hello"), config={"providers": {"alpha": KEYS}}) as running:
        for session in range(8):
            for path, sent in chat(f"session {session}", 2):
                await ask(running, path, sent, {"x-session-affinity": f"ses_{session}"})
            after = {**sent, "messages": [sent["messages"][0], *summed]}
            await ask(running, path, after, {"x-session-affinity": f"ses_{session}"})
        used = [key_of(each) for each in running["alpha"].received]
    assert used[0::3] == used[1::3] == used[2::3]
    assert len(set(used)) == 3


async def test_the_same_id_of_two_clients_is_two_sessions(serve: Serve) -> None:
    clients = {name: {"key_sha256": sha256(f"hs-{name}")} for name in ("ann", "bob")}
    async with serve(alpha=None, config={"providers": {"alpha": {"preset": "openai"}}, "clients": clients}) as running:
        for name in ("ann", "bob", "ann"):
            said = {"authorization": f"Bearer hs-{name}", "session-id": UUID}
            assert (await ask(running, CHAT, body(LONG), said))[0] == 200
        ann, bob, again = keys(running)
    assert ann == again != bob


async def test_claude_codes_note_in_front_does_not_part_a_session(serve: Serve) -> None:
    async with serve(alpha=answer("Hello"), config={"providers": {"alpha": KEYS}}) as running:
        for path, sent in claude_code("one", 6):
            assert (await ask(running, path, sent, {"x-claude-code-session-id": UUID}))[0] == 200
        assert len({key_of(each) for each in running["alpha"].received}) == 1
