"""/admin/keys over sockets: keys are made, changed, rotated and revoked while the gateway runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.typing import EventDict

from gateway.keys.keys import KeyWatch
from tests.app.gateway.key_desk import ROOT, Desk, bearer, in_database, sha256
from tests.app.gateway.running_gateway import MODEL, Serve


@asynccontextmanager
async def at_desk(serve: Serve, clients: dict[str, Any] | None = None, **scripts: Any) -> AsyncIterator[Desk]:
    async with serve(config=in_database(**(clients or {})), **scripts) as running:
        yield Desk(running)


async def test_a_key_works_as_soon_as_it_was_made_and_is_shown_only_then(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        made = await desk.ask("POST", "", {"name": "app", "models": [MODEL], "expires": "2099-01-01"})
        assert made.status == 201
        assert made.key.startswith("hs-")
        assert await desk.status_with(made.key) == (200, None)

        found = await desk.ask("GET", "/app")
        listed = await desk.ask("GET")
        call = await desk.running.call()
    shown = {name: value for name, value in made.body.items() if name != "key"}
    assert found.body == shown
    assert [each["name"] for each in listed.body["data"]] == ["root", "app"]
    assert listed.body["data"][1] == shown
    assert (shown["source"], shown["role"], shown["models"]) == ("database", "client", [MODEL])
    assert shown["expires"] == "2099-01-01T00:00:00Z"
    assert [(key["hint"], key["state"], key["created_by"]) for key in shown["keys"]] == [
        (made.key[-4:], "active", "root")
    ]
    assert call["client"] == "app"
    assert made.key not in repr((found, listed))
    assert sha256(made.key) not in repr((found, listed))


async def test_with_an_empty_database_and_no_clients_nobody_is_let_in(serve: Serve) -> None:
    async with serve(config={"keys": "database"}) as running:
        desk = Desk(running)
        assert (await desk.status_with("hs-anything")) == (401, "invalid_api_key")
        assert (await desk.ask("GET", key=None)).status == 401
        async with running.chat() as response:
            assert response.status == 401
        assert running.requests == 0


async def test_a_rotated_key_ends_at_once_or_after_its_grace(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        first = await desk.create("app", max_width=1)
        second = await desk.rotate("app", grace_s=3600)
        assert await desk.status_with(first) == (200, None)
        assert await desk.status_with(second) == (200, None)
        states = [key["state"] for key in (await desk.ask("GET", "/app")).body["keys"]]
        assert states == ["retiring", "active"]

        third = await desk.rotate("app")
        assert await desk.status_with(first) == (401, "invalid_api_key")
        assert await desk.status_with(second) == (401, "invalid_api_key")
        assert await desk.status_with(third) == (200, None)
        shown = (await desk.ask("GET", "/app")).body
    assert (shown["max_width"], len(shown["keys"])) == (1, 1)


async def test_changed_settings_count_for_the_next_call(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        key = await desk.create("app", models=[])
        assert await desk.status_with(key) == (403, "forbidden")
        changed = await desk.ask("PATCH", "/app", {"models": None, "require": {"regions": ["eu"]}})
        assert (changed.status, changed.body["require"]) == (200, {"regions": ["eu"]})
        assert "models" not in changed.body
        assert "key" not in changed.body
        assert (await desk.status_with(key))[0] == 400  # no deployment is known to be there
        await desk.ask("PATCH", "/app", {"require": None})
        assert await desk.status_with(key) == (200, None)


async def test_an_expired_key_is_refused_with_a_sentence_that_says_so(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        key = await desk.create("app", expires="2026-01-31T18:00:00+02:00")
        async with desk.running.chat(bearer(key)) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"], error["type"]) == (401, "key_expired", "authentication_error")
        assert "expired at 2026-01-31 16:00 UTC" in error["message"]
        assert (await desk.ask("GET", "/app")).body["keys"][0]["state"] == "expired"
        await desk.ask("PATCH", "/app", {"expires": None})
        assert await desk.status_with(key) == (200, None)


async def test_who_sends_an_expired_key_is_named_in_the_refusal_and_not_delayed_as_a_guesser(
    serve: Serve, logged: list[EventDict]
) -> None:
    async with at_desk(serve) as desk:
        key = await desk.create("app", expires="2026-01-31")
        for _ in range(7):
            assert await desk.status_with(key) == (401, "key_expired")
        wrong_keys = desk.running.gateway.context.wrong_keys
        assert (wrong_keys.delayed, wrong_keys.at_once) == (0, 0)
    refused = [entry for entry in logged if entry["event"] == "request.refused"]
    assert {(entry["reason"], entry["client"]) for entry in refused} == {("key_expired", "app")}


async def test_limits_of_a_client_change_while_the_gateway_runs(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        key = await desk.create("app", tpm=1)
        assert await desk.status_with(key) == (400, "tokens_exceed_limit")
        assert (await desk.ask("PATCH", "/app", {"tpm": None, "max_parallel": 5})).body["max_parallel"] == 5
        assert await desk.status_with(key) == (200, None)
        wrong = await desk.ask("PATCH", "/app", {"usd_per_dya": 1})
        assert "did you mean 'usd_per_day'?" in wrong.error["message"]


async def test_revoked_keys_are_gone_all_or_one_and_stay_in_the_record(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        first = await desk.create("app")
        second = await desk.rotate("app", grace_s=60)
        one = await desk.ask("DELETE", f"/app?key={first[-4:]}")
        assert [each["hint"] for each in one.body["revoked"]] == [first[-4:]]
        assert await desk.status_with(first) == (401, "invalid_api_key")
        assert await desk.status_with(second) == (200, None)
        assert (await desk.ask("DELETE", "/app")).status == 200
        assert await desk.status_with(second) == (401, "invalid_api_key")
        assert (await desk.ask("GET", "/app")).status == 404
        listed = (await desk.ask("GET", "?all=1")).body["data"]
        audit = await desk.running.rows("select who, action, name from key_changes order by id")
    assert [key["state"] for key in listed[1]["keys"]] == ["revoked", "revoked"]
    assert [(row["who"], row["action"]) for row in audit] == [
        ("root", "created"),
        ("root", "rotated"),
        ("root", "revoked"),
        ("root", "revoked"),
    ]


@pytest.mark.parametrize(("asked", "shown"), [("1", 1), ("yes", 1), ("True", 1), ("0", 0), ("false", 0), ("", 0)])
async def test_any_value_but_a_no_lists_revoked_keys_too(serve: Serve, asked: str, shown: int) -> None:
    async with at_desk(serve) as desk:
        await desk.create("app")
        await desk.ask("DELETE", "/app")
        listed = (await desk.ask("GET", f"?all={asked}&now=1")).body["data"]
    assert len([each for each in listed if each["name"] == "app"]) == shown


async def test_a_programs_unknown_parameters_are_ignored_where_they_do_no_harm(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        statuses = [
            (await desk.ask(method, f"{path}?dry=1&dry=2", body)).status
            for method, path, body in (
                ("POST", "", {"name": "app"}),
                ("GET", "", None),
                ("GET", "/app", None),
                ("PATCH", "/app", {"rpm": 1}),
                ("POST", "/app/rotate", None),
                ("DELETE", "/app", None),
            )
        ]
    assert statuses == [201, 200, 200, 200, 200, 400]


async def test_who_rotates_the_key_of_the_very_request_gets_the_new_one(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        own = await desk.create("ann", role="admin")
        made = await desk.ask("POST", "/ann/rotate", key=own)
        assert made.status == 200
        assert (await desk.ask("GET", key=own)).status == 401
        assert (await desk.ask("DELETE", "/ann", key=made.key)).status == 200
        assert (await desk.ask("GET", key=made.key)).status == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "words"),
    [
        (
            "POST",
            "",
            {"name": "app", "modles": []},
            400,
            "invalid_request",
            "modles: unknown key; did you mean 'models'",
        ),
        (
            "POST",
            "",
            {"name": "app", "models": ["lama"]},
            400,
            "invalid_request",
            "no model 'lama'; did you mean 'llama'",
        ),
        ("POST", "", {"name": "app", "max_width": 9}, 400, "invalid_request", "max_width: must be at most"),
        ("POST", "", {"name": "a b"}, 400, "invalid_request", "'a b' is not a valid client name"),
        ("POST", "", {"name": ROOT}, 400, "invalid_request", "name: this looks like a key"),
        ("POST", "", {}, 400, "invalid_request", "name: is missing"),
        ("POST", "", {"name": 7}, 400, "invalid_request", "not a valid client name"),
        ("POST", "", [], 400, "invalid_request", "must be a JSON object"),
        ("POST", "", {"name": "taken"}, 409, "conflict", "there is a client 'taken' already"),
        ("POST", "", {"name": "root"}, 409, "conflict", "in the configuration file, which wins"),
        ("PATCH", "/root", {"max_width": 1}, 409, "conflict", "in the configuration file"),
        ("DELETE", "/root", None, 409, "conflict", "in the configuration file"),
        ("POST", "/root/rotate", None, 409, "conflict", "in the configuration file"),
        ("PATCH", "/taken", {"max_width": 0}, 400, "invalid_request", "max_width: must be at least"),
        ("PATCH", "/nobody", {}, 404, "client_not_found", "no client 'nobody'"),
        ("DELETE", "/nobody", None, 404, "client_not_found", "no client 'nobody'"),
        ("DELETE", "/taken?key=nope", None, 404, "client_not_found", "has no key 'nope'"),
        ("DELETE", "/taken?kye=1", None, 400, "invalid_request", "'kye' is not asked for here; did you mean 'key'?"),
        ("POST", "/nobody/rotate", None, 404, "client_not_found", "no client 'nobody'"),
        ("PATCH", "/a%00b", {}, 404, "client_not_found", "no client can be called"),
        ("GET", "/takn", None, 404, "client_not_found", "did you mean 'taken'?"),
        ("POST", "/taken/rotate", {"grace": 1}, 400, "invalid_request", "grace: unknown key; did you mean 'grace_s'?"),
        ("POST", "/taken/rotate", {"grace_s": -1}, 400, "invalid_request", "grace_s must be from 0"),
        ("POST", "/taken/rotate", {"grace_s": True}, 400, "invalid_request", "grace_s must be a number"),
        ("PUT", "/taken", {}, 405, "method_not_allowed", "takes DELETE, GET"),
    ],
)
async def test_what_cannot_be_done_is_said_in_openais_format(  # noqa: PLR0917 - a row of the list above
    serve: Serve, method: str, path: str, body: Any, status: int, code: str, words: str
) -> None:
    async with at_desk(serve) as desk:
        await desk.create("taken")
        before = await desk.ask("GET")
        reply = await desk.ask(method, path, body)
        assert (reply.status, reply.error["code"]) == (status, code)
        assert words in reply.error["message"]
        assert await desk.ask("GET") == before


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"data": b"{"}, 400),
        ({"data": b"name=app"}, 415),
        ({"data": b""}, 400),
        ({"data": b'{"name": "\xff"}'}, 400),
        ({"data": b'{"name": "app", "models": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"}, 400),
    ],
    ids=["broken", "a form", "nothing", "no text", "too deep"],
)
async def test_a_body_is_json(serve: Serve, options: dict[str, Any], status: int) -> None:
    kind = "application/x-www-form-urlencoded" if status == 415 else "application/json"
    headers = {**bearer(ROOT), "content-type": kind}
    async with (
        at_desk(serve) as desk,
        desk.running.http.post(f"{desk.running.url}/admin/keys", headers=headers, **options) as response,
    ):
        assert response.status == status


async def test_each_role_does_what_it_may(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        keys = {role: await desk.create(role, role=role) for role in ("client", "viewer", "operator", "admin")}
        reading: dict[tuple[str, str], int] = {}
        calling: dict[tuple[str, str], int] = {}
        changing = {}
        for role, key in keys.items():
            for path in ("/metrics", "/leaderboard", "/admin/keys", f"/admin/keys/{role}", "/v1/models"):
                async with desk.running.get(path, headers=bearer(key)) as response:
                    reading[role, path] = response.status
            changing[role] = [
                (await desk.ask(method, path, body, key=key)).status
                for method, path, body in (
                    ("POST", "", {"name": f"by-{role}"}),
                    ("PATCH", f"/by-{role}", {"max_width": 1}),
                    ("POST", f"/by-{role}/rotate", None),
                    ("DELETE", f"/by-{role}", None),
                )
            ]
            calling[role, "raced"] = (await desk.status_with(key))[0]
            async with desk.running.post(
                {"model": MODEL, "input": "x"}, path="/v1/embeddings", headers=bearer(key)
            ) as response:
                calling[role, "relayed"] = response.status
        requests = desk.running.requests
    assert {path for (role, path), status in reading.items() if role == "client" and status == 200} == {"/v1/models"}
    assert all(status == 403 for (role, _), status in reading.items() if role == "client" and _ != "/v1/models")
    assert all(status == 200 for (role, _), status in reading.items() if role != "client")
    assert changing == {"client": [403] * 4, "viewer": [403] * 4, "operator": [403] * 4, "admin": [201, 200, 200, 200]}
    assert {role for (role, _), status in calling.items() if status == 403} == {"viewer"}
    assert all(status == 200 for (role, _), status in calling.items() if role != "viewer")
    assert requests == 6


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
async def test_web_pages_are_kept_out_even_with_a_key(serve: Serve, method: str) -> None:
    async with at_desk(serve) as desk:
        reply = await desk.ask(method, "" if method in {"GET", "POST"} else "/app", headers={"origin": "https://x"})
        assert (reply.status, reply.error["code"]) == (403, "forbidden")
        preflight = {"origin": "https://x", "access-control-request-method": "POST"}
        async with desk.running.http.options(f"{desk.running.url}/admin/keys", headers=preflight) as response:
            assert response.status == 405
            assert not [name for name in response.headers if name.lower().startswith("access-control")]


async def test_a_key_is_not_to_be_stored_by_a_cache(serve: Serve) -> None:
    async with (
        at_desk(serve) as desk,
        desk.running.post({"name": "app"}, path="/admin/keys", headers=bearer(ROOT)) as response,
    ):
        assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", "/root"), ("PATCH", "/app")])
async def test_where_keys_are_in_the_file_it_says_what_to_set(serve: Serve, method: str, path: str) -> None:
    async with serve(config={**in_database(), "keys": "file"}) as running:
        body = {"name": "app"} if method == "POST" else {} if method == "PATCH" else None
        reply = await Desk(running).ask(method, path, body)
        assert (reply.status, reply.error["code"]) == (409, "conflict")
        assert "set `keys: database`" in reply.error["message"]
        async with running.get("/health/ready") as response:
            assert (await response.json())["keys"] is None


async def test_on_equal_names_the_file_wins(serve: Serve, logged: list[EventDict]) -> None:
    async with at_desk(serve) as desk:
        stored = await desk.create("app", max_width=1)
        clients = {**in_database()["clients"], "app": {"key_sha256": sha256("hs-of-the-file"), "max_width": 3}}
        settings = desk.running.gateway.context.settings
        desk.running.gateway.reload(settings.model_validate({**desk.running.config, "clients": clients}))
        assert await desk.status_with("hs-of-the-file") == (200, None)
        assert await desk.status_with(stored) == (401, "invalid_api_key")
        listed = (await desk.ask("GET")).body["data"]
    both = [(each["source"], each.get("shadowed", False)) for each in listed if each["name"] == "app"]
    assert both == [("file", False), ("database", True)]
    assert [entry["client"] for entry in logged if entry["event"] == "keys.shadowed"] == ["app"]


async def test_two_keys_of_the_file_are_good_at_once(serve: Serve) -> None:
    clients = {"app": {"key_sha256": [sha256("hs-old"), sha256("hs-new")]}}
    async with serve(config={"clients": clients}) as running:
        desk = Desk(running)
        assert await desk.status_with("hs-old") == (200, None)
        assert await desk.status_with("hs-new") == (200, None)
        assert await desk.status_with("hs-other") == (401, "invalid_api_key")
        assert [row["client"] for row in await running.rows("select client from calls")] == ["app", "app"]


async def test_readiness_says_what_is_known_of_the_keys(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        await desk.create("app")
        async with desk.running.get("/health/ready") as response:
            ready = await response.json()
        async with desk.running.get("/metrics", headers=bearer(ROOT)) as response:
            metrics = await response.text()
    assert ready["keys"] == {"loaded": True, "stale_s": 0.0, "clients": 1}
    assert "holeshot_keys_stale_s 0.0\n" in metrics


async def test_a_key_that_another_process_makes_works_at_the_next_look(serve: Serve) -> None:
    async with at_desk(serve) as desk, serve(config=in_database()) as other:
        async with watch_of(desk)._looking:  # no look of its own comes between
            key = await Desk(other).create("app")
            assert await desk.status_with(key) == (401, "invalid_api_key")
        await watch_of(desk).look()
        assert await desk.status_with(key) == (200, None)


async def test_a_use_is_noted(serve: Serve) -> None:
    async with at_desk(serve) as desk:
        key = await desk.create("app")
        await desk.create("idle")
        await desk.status_with(key)
        uses = desk.running.gateway.context.admission.keys._uses
        assert uses is not None
        await uses.write()
        listed = (await desk.ask("GET")).body["data"]
    used = {each["name"]: each["keys"][0]["last_used_at"] is not None for each in listed if each["name"] != "root"}
    assert used == {"app": True, "idle": False}


async def test_no_key_is_logged_stored_or_said_in_an_error(serve: Serve, logged: list[EventDict]) -> None:
    async with at_desk(serve) as desk:
        keys = [await desk.create("app"), await desk.rotate("app", grace_s=60)]
        said = [
            await desk.ask("POST", "", {"name": keys[0]}),
            await desk.ask("POST", "", {"name": "x", "role": keys[0], keys[0]: 1}),
            await desk.ask("DELETE", "/app"),
            await desk.ask("GET", "?all=1"),
        ]
        said.append(await desk.ask("GET", key=keys[0]))
        await asyncio.gather(*(desk.status_with(key) for key in keys))
        tables = [
            await desk.running.rows(f"select * from {table}") for table in ("client_keys", "key_changes", "calls")
        ]
    for key in keys:
        secret = key.removeprefix("hs-")[:20]
        assert secret not in repr(logged)
        assert secret not in repr(tables)
        assert secret not in repr(said[2:])
        assert sha256(key) not in repr((logged, said, tables[1:]))


def watch_of(desk: Desk) -> KeyWatch:
    watch = desk.running.gateway.context.admission.keys._watch
    assert watch is not None
    return watch
