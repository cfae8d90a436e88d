"""People sign in to the page at their company's provider, and their groups decide what they may do."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from structlog.typing import EventDict

from tests.app.gateway.access.test_admission import KEYS
from tests.app.gateway.access.test_sessions import people, signed_in
from tests.app.gateway.identity_browser import Browser
from tests.app.gateway.running_gateway import RunningGateway, Serve, chat_body, read
from tests.identity import PAGE_ID, PAGE_SECRET, RSA_KEYS, Identity
from tests.support.servers import free_port


@pytest.fixture
async def issuer() -> AsyncIterator[Identity]:
    async with Identity() as made:
        yield made


def with_sign_in(issuer: Identity, /, **more: Any) -> dict[str, Any]:
    """Settings with the provider; the page's address is told once its port is known."""
    entry = {
        "issuer": issuer.url,
        "client_id": PAGE_ID,
        "client_secret": PAGE_SECRET,
        "viewers": ["staff"],
        "operators": ["on-call"],
        "admins": ["ops"],
    }
    return people(page={"public_url": "https://page.example.com", "sign_in": {**entry, **more}})


def at_home(running: RunningGateway, **more: Any) -> Browser:
    """Return a browser, after the page's own address was put into the settings."""
    config = json.loads(json.dumps(running.config))
    config["page"]["public_url"] = running.url
    config["page"]["sign_in"].update(more)
    running.config.update(config)
    running.gateway.reload(read(config, running.folder))
    return Browser(running)


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        (["staff"], "viewer"),
        (["staff", "on-call"], "operator"),
        (["x", "ops", "on-call", "staff"], "admin"),
        ("staff", "viewer"),
    ],
)
async def test_a_person_signs_in_with_the_role_of_their_groups(
    serve: Serve, issuer: Identity, groups: Any, role: str
) -> None:
    issuer.claims["groups"] = groups
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        assert (await browser.session())[0] == 401
        assert await browser.sign_in() == (303, f"{running.url}/")
        status, session = await browser.session()
        assert (status, session["user"]) == (200, {"name": "oidc:ann@example.com", "role": role})
        assert (session["sign_in"], session["trusted_header"]) == (True, False)
        played = await browser.ask("POST", "/api/playground", chat_body())
        assert played[0] == (403 if role == "viewer" else 200)
        rows = await running.rows("select client from calls")
        assert rows == ([] if role == "viewer" else [{"client": "oidc:ann@example.com"}])


async def test_what_is_asked_of_the_provider_and_what_the_browser_keeps(serve: Serve, issuer: Identity) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        location = await browser.begin()
        asked = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        assert location.startswith(f"{issuer.url}/authorize?")
        assert asked["redirect_uri"] == f"{running.url}/api/signed-in"
        assert (asked["response_type"], asked["scope"], asked["client_id"]) == ("code", "openid profile email", PAGE_ID)
        assert asked["code_challenge_method"] == "S256"
        assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
        assert browser.attributes(browser.begun) == ["Max-Age=600", "HttpOnly", "SameSite=Lax"]
        await browser.come_back(await browser.at_provider(location))
        assert browser.attributes("holeshot-person") == ["Max-Age=43200", "HttpOnly", "SameSite=Strict"]
        assert browser.begun not in browser.cookies


async def test_the_page_is_told_where_to_sign_in(serve: Serve, issuer: Identity) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        async with running.get("/api/session") as response:
            assert (response.status, response.headers["x-holeshot-sign-in"]) == (401, "api/sign-in")
        assert await (await signed_in(running)).look() == 200  # with a key, as before
        assert (await browser.session())[0] == 401
    async with serve(config=people()) as running, running.get("/api/session") as response:
        assert "x-holeshot-sign-in" not in response.headers
        async with running.get("/api/sign-in", allow_redirects=False) as none:
            assert none.status == 404


Lie = Callable[[Identity, Browser], object]


def _instead(**claims: Any) -> Lie:
    return lambda issuer, _: issuer.instead.update(claims)


def _claims(**claims: Any) -> Lie:
    return lambda issuer, _: issuer.claims.update(claims)


LIES: Mapping[str, tuple[Lie, str]] = {
    "another state": (lambda _, browser: browser.answer.update(state="x" * 43), "not begun in this browser"),
    "no state": (lambda _, browser: browser.answer.pop("state"), "not begun in this browser"),
    "another browser": (lambda _, browser: browser.cookies.clear(), "not begun in this browser"),
    "a changed cookie": (lambda _, browser: browser.bend(browser.begun), "not begun in this browser"),
    "another issuer": (lambda _, browser: browser.answer.update(iss="https://evil.example.com"), "another provider"),
    "no issuer": (lambda _, browser: browser.answer.pop("iss"), "another provider"),
    "no code": (lambda _, browser: browser.answer.pop("code"), "no code"),
    "a code that is no code": (lambda _, browser: browser.answer.update(code="code 1"), "no code"),
    "an unknown code": (lambda _, browser: browser.answer.update(code="code-9"), "used before"),
    "refused there": (lambda _, browser: browser.answer.update(error="access_denied"), "has refused"),
    "another nonce": (_instead(nonce="n"), "nonce"),
    "no nonce": (_instead(nonce=None), "nonce"),
    "an ID token for another": (_instead(aud="other"), "for another program"),
    "an ID token by way of another": (_instead(azp="other"), "for another program"),
    "an ID token of another": (_instead(iss="https://evil.example.com"), "for another program"),
    "an old ID token": (_instead(exp=1.7e9), "expired"),
    "an ID token without an end": (_instead(exp=None), "expired"),
    "an ID token of nobody": (_instead(sub=None), "for another program"),
    "an ID token by another's key": (
        lambda issuer, _: issuer.keys.update(first=RSA_KEYS[1]),
        "not good",
    ),
    "no groups": (_claims(groups=None), "says nothing of groups"),
    "empty groups": (_claims(groups=[]), "says nothing of groups"),
    "groups that are no texts": (_claims(groups=[1, {"ops": 1}]), "says nothing of groups"),
    "other groups": (_claims(groups=["guests"]), "none of your groups"),
    "too many groups": (_claims(groups=None, _claim_names={"groups": "src1"}), "too many"),
    "too many groups to say so": (_claims(groups=None, hasgroups=True), "too many"),
}


@pytest.mark.parametrize(("lie", "words"), LIES.values(), ids=LIES)
async def test_what_is_not_wholly_right_lets_nobody_in(
    serve: Serve, issuer: Identity, logged: list[EventDict], lie: Lie, words: str
) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        browser.answer = await browser.at_provider(await browser.begin())
        lie(issuer, browser)
        status, text = await browser.come_back(browser.answer)
        assert status == 403
        assert words in text
        assert "holeshot-person" not in browser.cookies
        assert (await browser.session())[0] == 401
        running.gateway.context.refusals.close()
        [row] = await running.rows("select reason, n from refusals")
        assert row == {"reason": "sign_in_refused", "n": 1}
    assert PAGE_SECRET not in repr(logged)
    for form in issuer.forms:
        assert form["code_verifier"] not in repr(logged)
        assert form["code"] not in repr(logged)


async def test_who_is_not_let_in_reads_as_whom_the_provider_knows_them_and_nobody_else_does(
    serve: Serve, issuer: Identity, logged: list[EventDict]
) -> None:
    issuer.claims["groups"] = ["guests", "<b>bold</b>", *(f"team-{number:02}" for number in range(30))]
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        status, text = await browser.sign_in()
        assert status == 403
        assert "<strong>ann@example.com</strong>" in text
        assert "<strong>&lt;b&gt;bold&lt;/b&gt;</strong>, <strong>guests</strong>, <strong>team-00</strong>" in text
        assert "team-17</strong> and 12 more" in text
        issuer.claims["groups"] = None
        assert "<strong>ann@example.com</strong>, in no group" in (await browser.sign_in())[1]
        assert "ann@example.com" not in (await browser.come_back({"state": "another", "code": "x"}))[1]
        running.gateway.context.refusals.close()
        assert "guests" not in repr(await running.rows("select * from refusals"))
    assert "guests" not in repr(logged)


async def test_a_code_and_its_answer_are_good_once(serve: Serve, issuer: Identity) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        answer = await browser.at_provider(await browser.begin())
        kept = dict(browser.cookies)
        assert (await browser.come_back(answer))[0] == 303
        thief = at_home(running)
        assert (await thief.come_back(answer))[0] == 403  # without the cookie
        thief.cookies = kept
        status, text = await thief.come_back(answer)  # with it, the provider refuses the code
        assert (status, "used before" in text) == (403, True)


async def test_a_code_of_another_sign_in_is_not_taken(serve: Serve, issuer: Identity) -> None:
    """Whoever is made to come back with an attacker's code does not become the attacker: PKCE."""
    async with serve(config=with_sign_in(issuer)) as running:
        attacker, victim = at_home(running), at_home(running)
        stolen = await attacker.at_provider(await attacker.begin())
        own = await victim.at_provider(await victim.begin())
        assert (await victim.come_back({**own, "code": stolen["code"]}))[0] == 403


async def test_groups_may_be_where_the_access_token_leads(serve: Serve, issuer: Identity) -> None:
    issuer.claims["groups"] = None
    issuer.userinfo = {"sub": "ann-1", "groups": ["ops"]}
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        assert (await browser.sign_in())[0] == 303
        assert (await browser.session())[1]["user"]["role"] == "admin"
        issuer.userinfo = {"sub": "another", "groups": ["ops"]}
        assert (await at_home(running).sign_in())[0] == 403


async def test_a_public_client_sends_no_secret_and_a_claim_may_be_one_text(serve: Serve, issuer: Identity) -> None:
    async with serve(
        config=with_sign_in(issuer, client_secret=None, groups="email", viewers=["ann@example.com"])
    ) as running:
        browser = at_home(running)
        assert (await browser.sign_in())[0] == 403  # this provider wants the secret
        assert issuer.forms[-1]["client_id"] == PAGE_ID
        config = json.loads(json.dumps(running.config))
        config["page"]["sign_in"]["client_secret"] = PAGE_SECRET
        running.gateway.reload(read(config, running.folder))
        issuer.claims["email_verified"] = False
        assert "not verified" in str(await Browser(running).sign_in())
        issuer.claims["email_verified"] = True
        assert (await Browser(running).sign_in())[0] == 303


@pytest.mark.parametrize(
    "change", [{"viewers": ["others"]}, {"operators": []}, {"client_id": "another"}, {"admins": []}], ids=str
)
async def test_a_session_ends_when_the_settings_of_signing_in_change(
    serve: Serve, issuer: Identity, change: dict[str, Any]
) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        await browser.sign_in()
        running.gateway.reload(read({**running.config, "region": "eu"}, running.folder))
        assert (await browser.session())[0] == 200
        after = at_home(running, **change)
        after.cookies = browser.cookies
        status, body = await after.session()
        assert (status, body["error"]["code"]) == (401, "session_ended")


async def test_a_forged_session_is_none(serve: Serve, issuer: Identity) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        await browser.sign_in()
        good = browser.cookies["holeshot-person"]
        assert good.startswith("viewer.")
        for bad in (
            good.replace("viewer", "admin", 1),
            f"{good[:-1]}{'A' if good[-1] != 'A' else 'B'}",
            "viewer.YQ.9.x",
        ):
            browser.cookies["holeshot-person"] = bad
            status, body = await browser.session()
            assert (status, body["error"]["code"]) == (401, "session_ended")


async def test_signing_out_ends_the_session_here_and_says_where_it_ends_there(serve: Serve, issuer: Identity) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        await browser.sign_in()
        status, body = await browser.ask("DELETE", "/api/session")
        query = urlencode({"client_id": PAGE_ID, "post_logout_redirect_uri": f"{running.url}/"})
        assert (status, body) == (200, {"leave": f"{issuer.url}/end?{query}"})
        assert browser.cookies == {}
        assert (await browser.session())[0] == 401


async def test_other_pages_neither_begin_a_sign_in_nor_use_its_session(serve: Serve, issuer: Identity) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        cross = {"sec-fetch-site": "cross-site"}
        async with running.get("/api/sign-in", headers=cross, allow_redirects=False) as response:
            assert response.status == 403
        await browser.sign_in()
        async with running.get("/api/session", headers={**browser.carried, **cross}) as response:
            assert response.status == 403
        async with running.get("/v1/models", headers=browser.carried) as response:
            assert response.status == 401


async def test_while_the_provider_is_away_keys_let_people_in(serve: Serve, logged: list[EventDict]) -> None:
    issuer = Identity(free_port())
    async with issuer:
        config = with_sign_in(issuer)
    async with serve(config=config) as running:
        browser = at_home(running)
        for _ in range(3):
            async with running.get("/api/sign-in", allow_redirects=False) as response:
                assert (response.status, response.content_type) == (503, "text/html")
                assert "sign in with a key" in await response.text()
        assert await (await signed_in(running)).look() == 200
        said = {entry["problem"] for entry in logged if entry["event"] == "page.provider_unreachable"}
        assert "it was asked a moment ago" in said
        running.gateway.operations.sign_in()._failed_at = None  # two seconds later
        async with issuer:
            assert (await browser.sign_in())[0] == 303


async def test_no_secret_of_signing_in_is_shown_or_logged(
    serve: Serve, issuer: Identity, logged: list[EventDict]
) -> None:
    async with serve(config=with_sign_in(issuer)) as running:
        browser = at_home(running)
        answer = await browser.at_provider(await browser.begin())
        seed = browser.cookies[browser.begun]
        await browser.come_back(answer)
        shown = [
            await browser.ask("GET", "/api/configuration"),
            running.gateway.context.settings,
            running.gateway.context.settings.model_dump(),
            running.gateway.operations,
            logged,
        ]
        for secret in (
            PAGE_SECRET,
            answer["code"],
            seed,
            browser.cookies["holeshot-person"],
            *issuer.made,
            KEYS["admin"],
        ):
            assert len(secret) > 5
            assert secret not in repr(shown)
