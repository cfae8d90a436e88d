"""Limits of teams and end users, as callers meet them, and what the ledger and the settings say of both."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.settings import ConfigurationError
from providers.simulator import Headers, answer
from tests.app.gateway.key_desk import sha256
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, read

SECRET = {"signing_key": "0123456789abcdef0123456789abcdef"}


def configured(team: str | None = "research", **settings: Any) -> dict[str, Any]:
    """A client of a team, and what else is set."""
    config = client(**({} if team is None else {"team": team}))
    return {**config, "teams": {"research": {}}, "page": SECRET, **settings}


async def told(running: RunningGateway, headers: Mapping[str, str] | None = None, **fields: Any) -> str:
    """Return the error of a call, or nothing."""
    async with running.chat({**keyed(), **(headers or {})}, **fields) as response:
        said = await response.read()
        return "" if response.status == 200 else f"{response.status}: {msgspec.json.decode(said)['error']['message']}"


async def tags(running: RunningGateway) -> list[dict[str, str]]:
    rows = await running.rows("select tags from calls order by id")
    return [msgspec.json.decode(row["tags"]) for row in rows]


async def test_the_limit_of_a_team_counts_for_all_its_keys_and_the_error_says_so(serve: Serve) -> None:
    config = configured(teams={"research": {"rpm": 2}})
    async with serve(alpha=None, config=config, key=KEY, in_one_minute=True) as running:
        assert [await told(running) for _ in range(2)] == ["", ""]
        assert (await told(running)).startswith("429: the team 'research' has reached its limit of 2 requests a minute")
        assert await tags(running) == [{"team": "research"}] * 2


@pytest.mark.parametrize("field", ["safety_identifier", "user", "header"])
async def test_an_end_user_has_limits_of_its_own_and_the_ledger_has_a_hash_of_its_name(
    serve: Serve, field: str
) -> None:
    config = configured(end_users={"rpm": 1, "header": "x-end-user", "named": {"big": {"rpm": 2}}})

    async def call(name: str) -> str:
        return await (
            told(running, {"x-end-user": name}) if field == "header" else told(running, None, **{field: name})
        )

    async with serve(alpha=None, config=config, key=KEY, in_one_minute=True) as running:
        assert [await call(name) for name in ("ann@example.com", "bob", "big", "big")] == [""] * 4
        for name in ("ann@example.com", "bob", "big"):
            assert (await call(name)).startswith("429: this end user has reached its limit of ")
        assert await told(running) == ""  # nobody is named
        ann, bob, big, again, nobody = await tags(running)
        assert len({ann["end_user"], bob["end_user"], big["end_user"]}) == 3
        assert (big, nobody) == (again, {"team": "research"})
        assert "ann" not in str(await running.rows("select * from calls"))


async def test_a_name_that_is_null_does_not_hide_the_other(serve: Serve) -> None:
    async with serve(alpha=None, config=configured(end_users={"rpm": 1}), key=KEY, in_one_minute=True) as running:
        assert await told(running, safety_identifier=None, user="ann") == ""
        assert (await told(running, safety_identifier=None, user="ann")).startswith("429: this end user ")


async def test_a_key_can_name_its_end_user_whatever_its_requests_say(serve: Serve) -> None:
    config = configured(None, end_users={"rpm": 1})
    (settings,) = config["clients"].values()
    settings["end_user"] = "ann"
    async with serve(alpha=None, config=config, key=KEY, in_one_minute=True) as running:
        assert await told(running, user="bob") == ""
        assert (await told(running, user="carl")).startswith("429: this end user ")


async def test_what_is_held_for_a_call_that_another_level_refuses_is_given_back(serve: Serve) -> None:
    config = configured(teams={"research": {"rpm": 2, "end_users": {"rpm": 1}}}, end_users={"rpm": 50})
    async with serve(alpha=None, config=config, key=KEY, in_one_minute=True) as running:
        assert await told(running, user="ann") == ""
        assert (await told(running, user="ann")).startswith("429: this end user ")
        assert await told(running, user="bob") == ""


async def test_a_client_without_limits_is_not_counted_because_others_have_teams(serve: Serve) -> None:
    alpha = [Headers({"x-ratelimit-remaining-requests": "77"}), *answer("Hi")]
    async with serve(alpha=alpha, config=configured(None), key=KEY) as running, running.chat(keyed()) as response:
        await response.read()
        assert response.headers["x-ratelimit-remaining-requests"] == "77"  # the provider's, as without teams


async def test_a_client_cannot_say_that_it_is_of_a_team(serve: Serve) -> None:
    async with serve(alpha=None, config=configured(None), key=KEY) as running:
        said = {"x-holeshot-tags": "team=research, end_user=ann, job=nightly"}
        assert await told(running, said) == ""
        assert await tags(running) == [{"job": "nightly"}]


async def test_anthropics_clients_name_end_users_in_their_metadata(serve: Serve) -> None:
    async with serve(alpha=None, config=configured(end_users={"rpm": 1}), key=KEY, in_one_minute=True) as running:
        body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        body["metadata"] = {"user_id": "ann"}
        found = []
        for _ in range(2):
            async with running.http.post(f"{running.url}/v1/messages", json=body, headers=keyed()) as response:
                found.append(response.status)
        assert found == [200, 429]


async def test_what_else_is_in_the_metadata_hides_no_end_user(serve: Serve) -> None:
    async with serve(alpha=None, config=configured(end_users={"rpm": 1}), key=KEY, in_one_minute=True) as running:
        said = {"user_id": "ann", "cursorConversationId": ["5"]}
        assert await told(running, metadata=said) == ""
        assert (await told(running, metadata=said)).startswith("429: this end user has reached its limit of ")


HASH, ACCOUNT = "5f" * 32, "0b0c9d3e-41b4-4cf5-9b7b-6f1f0a4c2a11"


def claude_code(session: str, *, device: str = HASH, account: str = "", is_old: bool = False) -> str:
    """Return the user of Claude Code in a session; ``is_old``: as before 2.1.78."""
    if is_old:
        return f"user_{device}_account_{account}_session_{session}"
    return json.dumps({"device_id": device, "account_uuid": account, "session_id": session})


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        ([claude_code("one"), claude_code("two")], True),
        ([claude_code("one", is_old=True), claude_code("two", is_old=True)], True),
        ([claude_code("one", is_old=True), claude_code("two")], True),
        ([claude_code("one", account=ACCOUNT), claude_code("two", account=ACCOUNT, device="a1" * 32)], True),
        ([claude_code("one"), claude_code("one", device="a1" * 32)], False),
        (['{"session_id": "one"}', '{"session_id": "two"}'], False),
        (["user_ann_session_one", "user_ann_session_two"], False),
    ],
)
async def test_a_person_who_uses_claude_code_is_one_end_user_in_all_sessions(
    serve: Serve, names: list[str], is_one: bool
) -> None:
    async with serve(alpha=None, config=configured(end_users={"rpm": 1}), key=KEY, in_one_minute=True) as running:
        found = []
        for name in names:
            body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
            body["metadata"] = {"user_id": name}
            async with running.http.post(f"{running.url}/v1/messages", json=body, headers=keyed()) as response:
                found.append(response.status)
        assert found == [200, 429 if is_one else 200]


ANN, BOB = "5e3c1b1e-7a64-4f0e-9a53-0d3c52c1a9b7", "c1b9a0de-2f6b-4a5d-8a3e-61b0f1f2d3e4"


def codex(installation: str, session: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return a turn as Codex asks: it names its installation, the session and the turn, and no user."""
    told = json.dumps({"installation_id": installation, "session_id": session, "turn_id": "1", "sandbox": "seatbelt"})
    metadata = {"x-codex-installation-id": installation, "session_id": session, "thread_id": session, "turn_id": "1"}
    body = {
        "model": MODEL,
        "instructions": "You are Codex.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": None,
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": session,
        "client_metadata": {**metadata, "x-codex-window-id": f"{session}:0", "x-codex-turn-metadata": told},
    }
    return "/v1/responses", body, {"session-id": session, "thread-id": session}


def gemini_cli(installation: str, session: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return a turn as Gemini CLI asks: its installation is in a header, unless its statistics are switched off."""
    body = {"contents": [{"role": "user", "parts": [{"text": f"hi in {session}"}]}]}
    path = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
    return path, body, {"x-gemini-api-privileged-user-id": installation}


@pytest.mark.parametrize("agent", [codex, gemini_cli])
async def test_three_sessions_of_two_people_are_two_end_users(serve: Serve, agent: Any) -> None:
    config = configured(end_users={"rpm": 2, "header": "x-end-user"})
    async with serve(alpha=None, config=config, key=KEY, in_one_minute=True) as running:
        found = []
        for installation, session in ((ANN, "one"), (ANN, "two"), (BOB, "three"), (ANN, "one"), (BOB, "three")):
            path, body, said = agent(installation, session)
            async with running.http.post(f"{running.url}{path}", json=body, headers={**keyed(), **said}) as response:
                found.append(response.status)
        assert found == [200, 200, 200, 429, 200]
        path, body, said = agent(ANN, "one")
        asked = {**keyed(), **said, "x-end-user": "ann"}  # what the operator's own header says counts before it
        async with running.http.post(f"{running.url}{path}", json=body, headers=asked) as response:
            assert response.status == 200


async def test_of_a_name_in_a_header_no_more_is_kept_than_of_others(serve: Serve) -> None:
    async with serve(alpha=None, config=configured(end_users={"rpm": 1}), key=KEY, in_one_minute=True) as running:
        found = []
        for end in ("one", "two"):
            path, body, said = gemini_cli("a" * 512 + end, "one")
            async with running.http.post(f"{running.url}{path}", json=body, headers={**keyed(), **said}) as response:
                found.append(response.status)
        assert found == [200, 429]


async def test_a_team_that_a_reload_has_taken_away_refuses_its_keys_in_words(serve: Serve) -> None:
    config = configured(teams={"research": {"rpm": 1}})
    async with serve(alpha=None, config=config, key=KEY, in_one_minute=True) as running:
        assert await told(running) == ""
        running.gateway.reload(read({**running.config, "teams": {"research": {"rpm": 3}}}, running.folder))
        assert [await told(running) for _ in range(2)] == ["", ""]
        assert (await told(running)).startswith("429: the team 'research' has reached its limit of 3 ")


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"teams": {"reserach": {}}}, "there is no team 'research'; did you mean 'reserach'?"),
        ({"end_users": {"rpm": 1}, "page": {}}, "end_users needs page.signing_key"),
        (
            {"teams": {"research": {"end_users": {"rpm": 1}}}, "page": {}},
            "teams.research.end_users needs page.signing_key",
        ),
        ({"teams": {"research": {"rpm": 0}}}, "teams.research.rpm must be"),
    ],
)
def test_mistakes_are_told(serve: Serve, tmp_path: Any, changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read({**configured(), "providers": {}, **changed}, tmp_path)
    assert complaint in str(caught.value).replace(": needs", " needs").replace(": must", " must")


async def test_the_api_says_what_teams_end_users_and_models_have_used_and_names_only_configured_ones(
    serve: Serve,
) -> None:
    config = client(team="research", usd_per_day=5)
    config["clients"] |= {
        "loose": {"key_sha256": sha256("hs-loose")},
        "eye": {"key_sha256": sha256("hs-eye"), "role": "viewer"},
    }
    config |= {
        "page": SECRET,
        "teams": {
            "research": {"rpm": 100, "usd_per_day": 9, "end_users": {"usd_per_day": 3, "named": {"big": {"rpm": 50}}}},
            "idle": {},
        },
        "end_users": {"named": {"huge": {"rpm": 70}}},
        "models": {
            MODEL: {
                "deployments": [{"deployment": "alpha/m", "price_per_mtok": {"input": 1, "output": 2}}],
                "usd_per_day": 7,
                "tokens_per_month": 10_000,
            },
            "free": {"deployments": ["alpha/m2"]},
        },
    }
    async with serve(alpha=None, config=config, key=KEY) as running:
        eye = {"authorization": "Bearer hs-eye"}
        for user in ("ann", "big", "big"):
            assert await told(running, user=user) == ""
        assert await told(running) == ""  # nobody is named
        for headers in ({"authorization": "Bearer hs-loose"}, None):
            assert await told(running, headers, user="huge") == ""
        await tags(running)
        async with running.get("/api/teams?window=1h", headers=eye) as response:
            found = msgspec.json.decode(await response.read())
        async with running.get("/api/usage?window=1h", headers=eye) as response:
            assert [each["model"] for each in msgspec.json.decode(await response.read())["models"]] == [MODEL]
        async with running.get("/api/session", headers=eye) as response:
            assert msgspec.json.decode(await response.read())["payers"] is True
        rows = await running.rows("select tags, cost_usd, prompt_tokens, completion_tokens from calls order by id")
    research, loose, idle = found["data"]
    of_team = [row for row in rows if "team" in row["tags"]]
    assert (research["team"], research["calls"], research["failed"], research["end_users"]) == ("research", 5, 0, 3)
    for name in ("prompt_tokens", "completion_tokens", "cost_usd"):
        assert research[name] == pytest.approx(sum(row[name] for row in of_team))
        assert research[name] > 0
    assert {each["limit"]: each["of"] for each in research["limits"]} == {"rpm": 100, "usd_per_day": 9}
    by_name = {(each["name"], each["calls"]) for each in research["dearest"]}
    assert by_name == {("big", 2), (None, 1)}  # ann's name is nowhere, and huge is not named in this team
    assert len(research["dearest"]) == 3
    assert all("ann" not in str(each) for each in found["data"])
    [huge] = loose["dearest"]
    assert (loose["team"], loose["configured"], loose["limits"]) == (None, False, [])
    assert (huge["name"], huge["client"], huge["calls"]) == ("huge", "loose", 1)
    assert (idle["team"], idle["calls"], idle["dearest"], idle["configured"]) == ("idle", 0, [], True)
    for each in research["dearest"]:
        [limit] = each["limits"]
        own = (
            {"rpm": (50, {0, 1, 2})}
            if each["name"] == "big"
            else {"usd_per_day": (3, [pytest.approx(each["cost_usd"])])}
        )
        assert (limit["of"], limit["used"] in own[limit["limit"]][1]) == (own[limit["limit"]][0], True)
    [model] = found["models"]
    usd, tokens = (
        sum(row["cost_usd"] for row in rows),
        sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows),
    )
    assert model["model"] == MODEL
    assert {each["limit"]: (each["of"], each["used"]) for each in model["limits"]} == {
        "usd_per_day": (7, pytest.approx(usd)),
        "tokens_per_month": (10_000, tokens),
    }


async def test_a_gateway_without_teams_and_end_users_says_so_and_reads_nothing(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        async with running.chat({"x-holeshot-tags": "team=mine"}) as response:
            await response.read()
        async with running.get("/api/teams") as response:
            assert msgspec.json.decode(await response.read()) == {"data": [], "models": [], "sql": None}
        async with running.get("/api/session") as response:
            assert msgspec.json.decode(await response.read())["payers"] is False
