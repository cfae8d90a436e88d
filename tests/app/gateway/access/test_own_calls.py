"""A person sees their own calls, their speed and what they cost, and nothing of anybody else's."""

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.admin import ROUTES
from gateway.admin.sign_in import MUST_ASK
from tests.app.gateway.access.test_admission import KEYS, clients
from tests.app.gateway.access.test_sign_in import at_home
from tests.app.gateway.description import Description
from tests.app.gateway.identity_browser import Browser
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.running_gateway import RunningGateway, Serve, chat_body, read
from tests.identity import AUDIENCE, PAGE_ID, PAGE_SECRET, Identity

UNKNOWN = "0198f1d2-0000-7000-8000-000000000000"


@pytest.fixture
async def issuer() -> AsyncIterator[Identity]:
    async with Identity() as made:
        yield made


def company(issuer: Identity, /, *, people: bool = True, **more: Any) -> dict[str, Any]:
    """Settings in which an issuer's people are one client, in the team of their group, and sign in to the page."""
    named = clients(admin={"role": "admin"}, guest={"role": "viewer"}, plain={})["clients"]
    sign_in = {"issuer": issuer.url, "client_id": PAGE_ID, "client_secret": PAGE_SECRET, "viewers": ["staff"]}
    page = {"public_url": "https://page.example.com", "sign_in": sign_in, "signing_key": "k" * 32}
    entry = {"issuer": issuer.url, "audience": AUDIENCE, "client": "developers", "end_user": "sub", **more}
    return {
        "clients": {**named, "developers": {"models": ["llama"]}},
        "teams": {"platform": {}, "infra": {}},
        "end_users": {"usd_per_day": 5, "tokens_per_day": 1000},
        "issuers": {"company": {"teams": {"groups": {"eng": "platform", "ops": "infra"}}, **entry}},
        "page": {**page, **({"people": ["company"]} if people else {})},
    }


async def called(running: RunningGateway, key: str, **fields: Any) -> str:
    """Call, and return the call's id."""
    async with running.chat(bearer(key), **fields) as response:
        await response.read()
        assert response.status == 200
        return str(response.headers["x-holeshot-call-id"])


async def asked(running: RunningGateway, key: str, path: str, method: str = "GET") -> tuple[int, Any]:
    headers = bearer(key) | {"content-type": "application/json"}
    async with running.http.request(method, running.url + path, headers=headers, data=b"{}") as response:
        is_json = response.content_type == "application/json"
        return response.status, await (response.json() if is_json else response.text())


async def signed_in(running: RunningGateway, issuer: Identity, **claims: Any) -> Browser:
    """Return the browser of a person with these claims, who has signed in to the page."""
    issuer.claims = {"sub": "ann", "email": "ann@example.com", "groups": ["eng"], **claims}
    browser = at_home(running)
    assert await browser.sign_in() == (303, f"{running.url}/")
    return browser


async def test_a_person_sees_their_own_calls_by_a_token_and_signed_in_and_of_others_not_that_there_are_any(
    serve: Serve, issuer: Identity
) -> None:
    async with serve(config=company(issuer)) as running:
        ann, bob, eve = (
            issuer.token(sub=name, groups=[group]) for name, group in (("ann", "eng"), ("bob", "eng"), ("eve", "ops"))
        )
        mine = [await called(running, ann), await called(running, ann)]
        others = [
            await called(running, bob),
            await called(running, eve),
            await called(running, KEYS["plain"], user="ann"),  # by another client, which names its users itself
        ]
        browser = await signed_in(running, issuer)

        async def by_token(path: str) -> tuple[int, Any]:
            return await asked(running, ann, path)

        async def in_browser(path: str) -> tuple[int, Any]:
            return await browser.ask("GET", path)

        _, all_calls = await asked(running, KEYS["admin"], "/api/calls")
        ends = {each["id"]: each["tags"]["end_user"] for each in all_calls["data"]}
        assert set(ends) == {*mine, *others}
        for look in (by_token, in_browser):
            for is_stored in (False, True):
                if is_stored:
                    await running.rows("select 1 from calls")  # waits until what has ended is stored
                status, listed = await look("/api/calls?attempts=true")
                assert (status, {each["id"] for each in listed["data"]}) == (200, set(mine))
            for chosen in ("client=plain", f"tag=end_user:{ends[others[0]]}", "tag=team:infra"):
                assert (await look(f"/api/calls?{chosen}"))[1]["data"] == []
            status, found = await look(f"/api/calls/{mine[0]}")
            assert (status, found["call"]["client"]) == (200, "developers")
            assert {(each["key_name"], each["in_flight"]) for each in found["attempts"]} == {(None, None)}
            unknown = await look(f"/api/calls/{UNKNOWN}")
            assert unknown[0] == 404
            for other in others:
                assert await look(f"/api/calls/{other}") == unknown
            status, used = await look("/api/own")
            assert (status, used["client"], used["team"]) == (200, "developers", "platform")
            [total, model] = used["data"]
            assert (total["model"], total["calls"], model["model"], model["calls"]) == (None, 2, "llama", 2)
            assert total["ttft_p50_ms"] <= total["ttft_p95_ms"]
            tokens = total["prompt_tokens"] + total["completion_tokens"]
            limits = {each["limit"]: (each["of"], each["used"]) for each in used["limits"]}
            assert limits["tokens_per_day"] == (1000, tokens)
            status, session = await look("/api/session")
            assert (status, session["user"]["role"], session["clients"]) == (200, "person", [])
            assert (session["models"], session["payers"], session["calls_ever"]) == (["llama"], False, None)
        assert (await in_browser("/api/session"))[1]["user"]["name"] == "oidc:ann@example.com"
        description = await Description.of(running)
        for path in ("/api/own", "/api/calls", "/api/session"):
            async with running.get(path, headers=bearer(ann)) as response:
                await description.check(path, response)
        eves = await signed_in(running, issuer, sub="eve", email="eve@example.com", groups=["ops"])
        assert [each["id"] for each in (await eves.ask("GET", "/api/calls"))[1]["data"]] == [others[1]]
        nobody = await signed_in(running, issuer, sub="new", email="new@example.com", groups=["ops"])
        assert (await nobody.ask("GET", "/api/own"))[1]["data"] == []


# What a person may ask for; everything else is refused. Signing in asks nobody who they are.
OWN = {("GET", "/api/session"), ("GET", "/api/calls"), ("GET", "/api/calls/{id}"), ("GET", "/api/own")}
OF_ANYBODY = {("POST", "/api/session"), ("DELETE", "/api/session"), ("GET", "/api/sign-in"), ("GET", "/api/signed-in")}


async def test_of_all_routes_four_are_a_persons_and_who_signed_in_makes_no_calls(
    serve: Serve, issuer: Identity
) -> None:
    async with serve(config=company(issuer)) as running:
        browser, token = await signed_in(running, issuer), issuer.token(sub="ann", groups=["eng"])
        for route in ROUTES:
            place = (route.method, route.path)
            if not route.path.startswith(("/api/", "/admin/", "/metrics", "/leaderboard")) or place in OF_ANYBODY:
                continue
            path = route.path.format(id=UNKNOWN, name="nobody")
            by_token = (await asked(running, token, path, route.method))[0]
            in_browser = (await browser.ask(route.method, path, {}))[0]
            if place in OWN:
                right = 404 if "{id}" in route.path else 200
                assert (by_token, in_browser) == (right, right), place
            elif place == ("POST", "/api/playground"):
                assert (by_token, in_browser) == (400, 403)  # a token calls, here as there; the body is none
            else:
                assert by_token == 403, place
                assert in_browser in ({403} if route.path.startswith("/api/") else {401, 403}), place
        played = await browser.ask("POST", "/api/playground", chat_body())
        assert (played[0], running.requests) == (403, 0)
        async with running.chat(browser.carried) as response:
            assert response.status == 401
        for name in ("admin", "guest"):  # who sees all is nobody in particular
            assert (await asked(running, KEYS[name], "/api/own"))[0] == 403


PUBLIC = {
    "/health/live",
    "/health/ready",
    "/.well-known/holeshot",
    "/",
    "/favicon.ico",
    "/page/{path:.+}",
    "/docs",
    "/openapi.json",
}


def test_the_row_of_what_needs_no_key_names_each_such_route() -> None:
    page = (Path(__file__).parents[4] / "docs" / "security.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith("|") and line.endswith("| no key |")]
    files = {"/", "/favicon.ico", "/page/{path:.+}"}
    assert set(re.findall(r"`(/[^`]*)`", row)) == PUBLIC - files
    assert "files of the page" in row


async def test_of_all_routes_each_role_has_its_own_and_those_of_the_roles_below(serve: Serve, issuer: Identity) -> None:
    config = company(issuer)
    config["clients"] |= clients(admin={"role": "admin"}, guest={"role": "viewer"}, plain={"role": "operator"})[
        "clients"
    ]
    async with serve(config=config) as running:

        async def status(key: str | None, route: Any) -> int:
            path = running.url + route.path.replace(":.+", "").format(id=UNKNOWN, name="nobody", path="app.js")
            headers = {"content-type": "application/json", **(bearer(key) if key else {})}
            async with running.http.request(route.method, path, headers=headers, data=b"{}") as response:
                return int(response.status)

        for route in ROUTES:
            place = (route.method, route.path)
            if place in OF_ANYBODY:
                continue
            is_public = route.path in PUBLIC
            plays, is_of_nobody = place == ("POST", "/api/playground"), route.path == "/api/own"
            reads = route.method == "GET" and not is_of_nobody and not route.path.startswith("/api/keys")
            may = {
                None: is_public,
                issuer.token(sub="ann", groups=["eng"]): is_public or plays or place in OWN,
                KEYS["guest"]: is_public or reads,
                KEYS["plain"]: is_public or plays or reads,
                KEYS["admin"]: not is_of_nobody,
            }
            for key, is_right in may.items():
                refused = 401 if key is None else 403
                assert (await status(key, route) != refused) == is_right, (place, key)


@pytest.mark.parametrize("role", ["viewer", None])
async def test_groups_of_the_page_give_more_and_nobody_is_let_in_where_it_is_not_turned_on(
    serve: Serve, issuer: Identity, role: str | None
) -> None:
    async with serve(config=company(issuer, people=role is not None)) as running:
        if role:
            browser = await signed_in(running, issuer, groups=["eng", "staff"])
            assert (await browser.session())[1]["user"]["role"] == role
            return
        token = issuer.token(sub="ann", groups=["eng"])
        await called(running, token)
        for path in ("/api/session", "/api/calls", "/api/own", f"/api/calls/{UNKNOWN}"):
            assert (await asked(running, token, path))[0] == 403
        issuer.claims["groups"] = ["eng"]
        browser = at_home(running)
        status, text = await browser.sign_in()
        assert status == 403
        assert "none of your groups may look" in text


REFUSED: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {  # settings, claims, and what is said
    "no group of a team": ({}, {"groups": ["guests"]}, "no group that may use this gateway"),
    "too many groups": ({"team": "infra"}, {"groups": None, "_claim_names": {"groups": "src1"}}, "too many"),
    "denied": ({"deny": ["ann"]}, {}, "is denied"),
    "another tenant": ({"requires": {"tid": "ours"}}, {"tid": "theirs"}, "lacks what this gateway requires"),
    "an address that is not verified": ({"end_user": "email"}, {}, "is not verified"),
    "no name": ({"end_user": "oid"}, {}, "has no `oid`"),
}


@pytest.mark.parametrize(("settings", "claims", "said"), REFUSED.values(), ids=REFUSED)
async def test_who_is_not_one_of_the_companys_people_neither_signs_in_nor_sees_anything_by_a_token(
    serve: Serve, issuer: Identity, settings: Mapping[str, Any], claims: Mapping[str, Any], said: str
) -> None:
    async with serve(config=company(issuer, **settings)) as running:
        issuer.claims = {"sub": "ann", "email": "ann@example.com", "groups": ["eng"], **claims}
        browser = at_home(running)
        status, text = await browser.sign_in()
        assert status == 403
        assert said in text
        assert "holeshot-person" not in browser.cookies
        status, body = await asked(running, issuer.token(**issuer.claims), "/api/calls")
        assert status == 401
        assert said in body["error"]["message"]


async def test_claims_that_the_id_token_lacks_are_those_of_userinfo(serve: Serve, issuer: Identity) -> None:
    issuer.userinfo = {"sub": "ann", "email_verified": True, "email": "ann@example.com"}
    async with serve(config=company(issuer, end_user="email")) as running:
        token = issuer.token(sub="ann", groups=["eng"], email="ann@example.com", email_verified=True)
        mine = await called(running, token)
        browser = await signed_in(running, issuer, email=None)
        assert [each["id"] for each in (await browser.ask("GET", "/api/calls"))[1]["data"]] == [mine]


async def test_who_has_a_role_signs_in_without_what_the_companys_people_need(serve: Serve, issuer: Identity) -> None:
    issuer.userinfo = {"sub": "ann"}
    async with serve(config=company(issuer, end_user="email")) as running:
        browser = await signed_in(running, issuer, groups=["staff"], email=None)
        assert (await browser.session())[0] == 200
        assert browser.cookies["holeshot-person"].startswith("viewer.")
    assert "/userinfo" not in issuer.asked


CHANGES: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "denied": lambda config: config["issuers"]["company"].update(deny=["ann"]),
    "its client has ended": lambda config: config["clients"]["developers"].update(expires="2020-01-01T00:00:00Z"),
    "turned off": lambda config: config["page"].update(people=[]),
    "of another claim": lambda config: config["issuers"]["company"].update(end_user="oid"),
    "other teams": lambda config: config["issuers"]["company"].update(teams={"groups": {"ops": "infra"}}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_session_is_over_when_what_lets_people_in_changes(
    serve: Serve, issuer: Identity, change: Callable[[dict[str, Any]], object]
) -> None:
    async with serve(config=company(issuer)) as running:
        browser = await signed_in(running, issuer)
        assert (await browser.session())[0] == 200
        change(running.config)
        running.gateway.reload(read(running.config, running.folder))
        assert (await browser.session())[0] == 401


@pytest.mark.parametrize(("lasts_s", "most_s"), [(300, 330), (36_000, 3600)])
async def test_a_session_ends_with_the_token_of_the_sign_in_and_the_provider_renews_it_without_a_word(
    serve: Serve, issuer: Identity, lasts_s: int, most_s: int
) -> None:
    async with serve(config=company(issuer)) as running:
        before_s = int(time.time())
        issuer.instead = {"exp": before_s + lasts_s}
        browser = await signed_in(running, issuer)
        ends_at = int(browser.cookies["holeshot-person"].split(".")[2])
        assert before_s + most_s <= ends_at <= time.time() + most_s
        issuer.instead = {"exp": before_s - 20}  # the provider's clock is behind
        browser = await signed_in(running, issuer)
        assert int(browser.cookies["holeshot-person"].split(".")[2]) == before_s + 10
        issuer.instead = {}
        del browser.cookies["holeshot-person"]  # as at its end
        location = await browser.begin("?prompt=none")
        assert "prompt=none" in location
        assert await browser.come_back(await browser.at_provider(location)) == (303, f"{running.url}/")
        assert (await browser.session())[0] == 200
        assert "prompt" not in await browser.begin()


async def test_two_tabs_whose_session_ends_at_once_are_both_renewed(serve: Serve, issuer: Identity) -> None:
    async with serve(config=company(issuer)) as running:
        browser = await signed_in(running, issuer)
        del browser.cookies["holeshot-person"]
        begun = [await browser.begin("?prompt=none") for _ in range(3)]
        answers = [await browser.at_provider(location) for location in begun]
        for answer in ({**answers[0], "error": "login_required"}, {"state": answers[1]["state"]}, {"error": "x"}):
            await browser.come_back(answer)  # what is over for one of them is not for the others
        assert await browser.come_back(answers[2]) == (303, f"{running.url}/")
        assert (await browser.session())[0] == 200
        assert [name for name in browser.cookies if name.startswith("holeshot-sign-in")] == []


@pytest.mark.parametrize("error", sorted(MUST_ASK))
async def test_who_was_removed_at_the_provider_is_brought_back_to_the_page_and_is_not_signed_in(
    serve: Serve, issuer: Identity, error: str
) -> None:
    async with serve(config=company(issuer)) as running:
        browser = await signed_in(running, issuer)
        del browser.cookies["holeshot-person"]
        issuer.must_ask = True
        answer = await browser.at_provider(await browser.begin("?prompt=none"))
        assert answer["error"] == "login_required"
        assert await browser.come_back({**answer, "error": error}) == (303, f"{running.url}/")
        assert "holeshot-person" not in browser.cookies
        assert (await browser.session())[0] == 401
        status, text = await browser.come_back({"error": "access_denied"})
        assert (status, "You are not signed in" in text) == (403, True)


async def test_the_name_in_a_token_is_hashed_as_one_that_a_request_names(serve: Serve, issuer: Identity) -> None:
    config = company(issuer, end_user="email")
    config["clients"]["plain"]["team"] = "platform"
    async with serve(config=config) as running:
        email = "ann@example.com"
        token = issuer.token(sub="ann-1", email=email, email_verified=True, groups=["eng"])
        await called(running, token, user="somebody-else")
        await called(running, KEYS["plain"], user=email)
        await called(running, KEYS["plain"], user="ann-1")
        by_token, by_name, other = (
            json.loads(each["tags"]) for each in await running.rows("select tags from calls order by id")
        )
        assert by_token["end_user"] == by_name["end_user"] != other["end_user"]
        assert not re.search("ann|somebody", str(await running.rows("select * from calls")))


async def test_no_cookie_becomes_another_persons(serve: Serve, issuer: Identity) -> None:
    async with serve(config=company(issuer)) as running:
        browser = await signed_in(running, issuer)
        good = browser.cookies["holeshot-person"]
        assert good.startswith("own.")
        for bad in (good.replace("own.", "admin.", 1), good.replace("own.", "viewer.", 1), good + "x", "own.e30.9.x"):
            browser.cookies["holeshot-person"] = bad
            assert (await browser.session())[0] == 401
        browser.cookies["holeshot-person"] = good
        browser.bend("holeshot-person")
        assert (await browser.session())[0] == 401
