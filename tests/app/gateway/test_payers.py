"""Limits of teams and end users, as callers meet them, and what the ledger and the settings say of both."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.settings import ConfigurationError
from providers.simulator.script import Headers, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, read
from tests.app.gateway.test_objectives import KEY, client, keyed

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
