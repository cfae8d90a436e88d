"""A JWT counts as the key of the client that it names, if an issuer of the settings has made it for this gateway."""

import asyncio
import hmac
import json
import re
import subprocess
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from structlog.typing import EventDict

from providers.simulator import Delta, Hang, RoleOnly
from tests.app.gateway.access.test_admission import KEYS, clients, status_and_code
from tests.app.gateway.access.test_ended_keys import ended_as, is_cut_off, streaming
from tests.app.gateway.key_desk import Desk, bearer, in_database
from tests.app.gateway.running_gateway import RunningGateway, Serve, read
from tests.identity import AUDIENCE, EC_KEY, RSA_KEYS, Identity, public_jwk, signed
from tests.support.servers import free_port

WRONG = (401, "invalid_api_key")
ENDLESS = [RoleOnly(), Delta("a"), Hang()]


@pytest.fixture
async def issuer() -> AsyncIterator[Identity]:
    async with Identity() as made:
        yield made


def trusting(issuer: Identity, /, **more: Any) -> dict[str, Any]:
    """Settings that trust the issuer, with a client that has a key and two that only tokens name."""
    named = clients(admin={"role": "admin"}, plain={})["clients"]
    entry = {"issuer": issuer.url, "audience": AUDIENCE, "algorithms": ["RS256", "ES256"], **more}
    return {"clients": {**named, "app": {}, "team": {}}, "issuers": {"company": entry}}


async def asked(running: RunningGateway, token: str) -> int:
    async with running.chat(bearer(token)) as response:
        return int(response.status)


async def refused(running: RunningGateway, token: str, headers: Mapping[str, str] | None = None) -> str:
    """Return why a token is refused as a wrong key."""
    async with running.chat({**bearer(token), **(headers or {})}) as response:
        body = await response.json()
        assert (response.status, body["error"]["code"]) == WRONG
        return str(body["error"]["message"])


# Answers to many wrong keys from one address are delayed.
BEHIND_A_PROXY = {"trusted_proxies": ["127.0.0.1/32"]}


def sent_from(number: int) -> dict[str, str]:
    """Return the header by which a proxy says that a request is from an address of its own."""
    return {"x-forwarded-for": f"192.0.2.{number}"}


@pytest.mark.parametrize("key", ["first", "curve"])
async def test_a_token_is_the_key_of_the_client_that_it_names(serve: Serve, issuer: Identity, key: str) -> None:
    async with serve(config=trusting(issuer)) as running:
        assert await asked(running, issuer.token(key)) == 200
        assert (await running.call())["client"] == "app"
        async with running.chat({"x-api-key": KEYS["plain"]}) as response:
            assert response.status == 200


async def test_a_token_is_verified_once_and_its_client_may_what_the_settings_say(
    serve: Serve, issuer: Identity
) -> None:
    config = trusting(issuer)
    config["clients"]["app"] = {"models": []}
    async with serve(config=config) as running:
        token = issuer.token()
        assert [await asked(running, token) for _ in range(3)] == [403, 403, 403]
        assert len(running.gateway.context.admission.tokens or ()) == 1
        running.gateway.reload(read({**running.config, "clients": {**config["clients"], "app": {}}}, running.folder))
        assert await asked(running, token) == 200
        assert issuer.fetches() == 1


async def test_a_key_counts_beside_the_token_of_another_issuer(serve: Serve, issuer: Identity) -> None:
    async with Identity() as other, serve(config=trusting(issuer)) as running:
        for token in (other.token(), issuer.token(aud="https://other.example.com")):
            async with running.chat({**bearer(token), "x-api-key": KEYS["plain"]}) as response:
                assert response.status == 200
            async with running.chat({**bearer(token), "x-api-key": issuer.token()}) as response:
                assert response.status == 200
            assert await asked(running, token) == 401
        async with running.chat({**bearer(issuer.token()), "x-api-key": "hs-unknown"}) as response:
            assert response.status == 200


def _claims(issuer: Identity) -> dict[str, Any]:
    payload = issuer.token().split(".")[1]
    return dict(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


def _part(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _unsigned(issuer: Identity) -> str:
    return f"{_part({'alg': 'none', 'typ': 'at+jwt'})}.{_part(_claims(issuer))}."


def _changed(token: str) -> str:
    head, _, signature = token.split(".")
    return f"{head}.{_part({'iss': 'x'})}.{signature}"


def _confused(issuer: Identity) -> str:
    """Sign with the published key as HMAC's secret, as if the algorithm were the token's to choose."""
    secret = RSA_KEYS[0].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    said = f"{_part({'alg': 'HS256', 'kid': 'first', 'typ': 'at+jwt'})}.{_part(_claims(issuer))}"
    signature = hmac.digest(secret, said.encode(), "sha256")
    return f"{said}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"


LIES: dict[str, Callable[[Identity], str]] = {
    "signed by another's key": lambda issuer: signed(RSA_KEYS[1], "first", _claims(issuer), {"typ": "at+jwt"}),
    "changed": lambda issuer: _changed(issuer.token()),
    "without a signature": _unsigned,
    "signed with the public key as if it were a secret": _confused,
    "by an algorithm that is not configured": lambda issuer: issuer.token(header={"alg": "PS256"}),
    "for somebody else": lambda issuer: issuer.token(aud="https://other.example.com"),
    "for nobody": lambda issuer: issuer.token(aud=None),
    "of another issuer": lambda issuer: issuer.token(iss=f"{issuer.url}/"),
    "of no issuer": lambda issuer: issuer.token(iss=None),
    "not valid yet": lambda issuer: issuer.token(nbf=9e9),
    "without an end": lambda issuer: issuer.token(exp=None),
    "with an end that is none": lambda issuer: issuer.token(exp="tomorrow"),
    "with an endless end": lambda issuer: issuer.token(exp=1e300),
    "an ID token": lambda issuer: issuer.token(header={"typ": "JWT"}, nonce="n"),
    "of no kind": lambda issuer: issuer.token(header={"typ": None}),
    "with demands": lambda issuer: issuer.token(header={"crit": ["b64"], "b64": True}),
    "of a client that is not there": lambda issuer: issuer.token(client_id="nobody"),
    "of no client": lambda issuer: issuer.token(client_id=None),
    "of an admin that the settings do not name": lambda issuer: issuer.token(client_id="admin"),
    "no JSON": lambda _: "bm8.bm8.bm8",
    "no object": lambda _: ".".join((_part({"alg": "RS256"}), _part([]), "AA")),
    "nothing": lambda _: "..",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_what_is_not_wholly_right_is_a_wrong_key(
    serve: Serve, issuer: Identity, logged: list[EventDict], lie: Callable[[Identity], str]
) -> None:
    async with serve(config=trusting(issuer)) as running:
        token = lie(issuer)
        message = await refused(running, token)
        assert running.requests == 0
        assert not len(running.gateway.context.admission.tokens or ())
    for part in token.split("."):
        assert len(part) < 9 or part not in message + repr(logged)


async def test_no_key_that_a_token_brings_along_is_used(serve: Serve, issuer: Identity) -> None:
    """Neither one in its header nor one at an address that the header names."""
    async with Identity() as stranger, serve(config=trusting(issuer)) as running:
        stranger.keys = {"first": RSA_KEYS[1]}
        own = public_jwk(RSA_KEYS[1], "first")
        for header in ({"jku": f"{stranger.url}/keys"}, {"x5u": f"{stranger.url}/keys"}, {"jwk": own}):
            token = signed(RSA_KEYS[1], "first", _claims(issuer), {"typ": "at+jwt", **header})
            assert "signature" in await refused(running, token)
        assert await asked(running, issuer.token(header={"jku": f"{stranger.url}/keys"})) == 200
        assert stranger.asked == []


async def test_an_issuers_secrets_and_keys_for_encryption_verify_nothing(serve: Serve, issuer: Identity) -> None:
    issuer.keys = {"first": RSA_KEYS[0]}
    issuer.more_keys = [
        {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "oct", "alg": "RS256"},
        {**public_jwk(RSA_KEYS[1], "enc"), "use": "enc"},
        {**public_jwk(RSA_KEYS[1], "other"), "alg": "RS512"},
        {"kty": "RSA", "kid": "half", "n": "AQAB"},
    ]
    async with serve(config=trusting(issuer)) as running:
        for key_id in ("enc", "other", "half", "oct"):
            token = signed(RSA_KEYS[1], key_id, _claims(issuer), {"typ": "at+jwt"})
            assert "publishes" in await refused(running, token)
        assert await asked(running, issuer.token(header={"kid": None})) == 200  # there is but one


async def test_an_expired_token_is_told_so(serve: Serve, issuer: Identity) -> None:
    async with serve(config=trusting(issuer, leeway_s=5)) as running:
        assert await status_and_code(running.chat(bearer(issuer.token(exp=1.7e9)))) == (401, "key_expired")
        running.gateway.context.refusals.close()
        assert await running.rows("select client, reason from refusals") == [{"client": "app", "reason": "key_expired"}]


PLAIN = {"header": {"typ": "JWT"}}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (PLAIN, 200),
        ({"header": {"typ": None}}, 200),
        ({}, 200),
        ({"header": {"typ": "logout+jwt"}}, 401),
        ({**PLAIN, "nonce": "n"}, 401),
        ({**PLAIN, "at_hash": "h"}, 401),
        ({**PLAIN, "typ": "ID"}, 401),
        ({**PLAIN, "typ": "Refresh"}, 401),
        ({**PLAIN, "typ": "Bearer"}, 200),
    ],
    ids=str,
)
async def test_where_issuers_write_plain_jwts_what_marks_an_id_token_is_refused(
    serve: Serve, issuer: Identity, fields: dict[str, Any], status: int
) -> None:
    async with serve(config=trusting(issuer, typ="JWT")) as running:
        assert await asked(running, issuer.token(**fields)) == status


async def test_claims_name_clients_by_the_settings_in_their_order(serve: Serve, issuer: Identity) -> None:
    mapped = {
        "claim": "groups",
        "clients": {"admins": "admin", "dev": "team"},
        "requires": {"scope": "call", "tid": "t1"},
    }
    async with serve(config=trusting(issuer, **mapped)) as running:
        right: Any = {"scope": "read call", "tid": "t1"}
        assert await asked(running, issuer.token(groups=["dev", "app"], **right)) == 200
        assert (await running.call())["client"] == "team"
        async with running.get(
            "/leaderboard", headers=bearer(issuer.token(groups=["dev", "admins"], **right))
        ) as admin:
            assert admin.status == 200  # the settings name it
        assert "groups" in await refused(running, issuer.token(groups=["app", 1, None], **right))
        assert "scope" in await refused(running, issuer.token(groups=["dev"], scope="caller", tid="t1"))
        assert "tid" in await refused(running, issuer.token(groups=["dev"], scope="call", tid="t1 t2"))


async def test_a_new_key_of_the_issuer_is_looked_for_once(serve: Serve, issuer: Identity) -> None:
    """Many requests with it come at once; those with ids that nobody has ask for nothing more."""
    async with serve(config=trusting(issuer)) as running:
        tokens = running.gateway.context.admission.tokens
        assert tokens is not None
        [known] = tokens.issuers.values()
        await known.start_fetch()
        before = issuer.fetches()
        known._tried_at = None  # as if that was long ago
        issuer.keys = {"second": RSA_KEYS[1], "curve": EC_KEY}
        token = issuer.token("second")
        assert await asyncio.gather(*(asked(running, token) for _ in range(5))) == [200] * 5
        assert issuer.fetches() == before + 1
        for number in range(4):
            await refused(running, issuer.token("curve", header={"kid": f"invented-{number}"}))
        assert issuer.fetches() == before + 1


async def test_while_the_issuer_was_never_there_its_tokens_wait_and_keys_work(
    serve: Serve, logged: list[EventDict]
) -> None:
    issuer = Identity(free_port())
    async with issuer:
        config, token = trusting(issuer), issuer.token()
    async with serve(config=config) as running:  # refused connections
        assert await status_and_code(running.chat(bearer(token))) == (503, "keys_not_loaded")
        assert await asked(running, KEYS["plain"]) == 200
        assert "keys.issuer_unreachable" in {entry["event"] for entry in logged}
        async with issuer:
            tokens = running.gateway.context.admission.tokens
            assert tokens is not None
            for each in tokens.issuers.values():
                each._tried_at = None  # two seconds later
            assert await asked(running, token) == 200


async def test_the_last_keys_stay_good_while_the_issuer_is_away(serve: Serve, issuer: Identity) -> None:
    async with serve(config=trusting(issuer)) as running:
        assert await asked(running, issuer.token()) == 200
        issuer.is_away = True
        tokens = running.gateway.context.admission.tokens
        assert tokens is not None
        [known] = tokens.issuers.values()
        known._tried_at = None
        await refused(running, issuer.token(header={"kid": "unknown"}))
        assert known.fetches == 2
        assert await asked(running, issuer.token(jti="another")) == 200


async def test_keys_may_be_named_by_their_own_address(serve: Serve, issuer: Identity) -> None:
    async with serve(config=trusting(issuer, jwks_url=f"{issuer.url}/keys")) as running:
        assert await asked(running, issuer.token()) == 200
        assert set(issuer.asked) == {"/keys"}


async def test_a_document_of_another_issuer_is_not_believed(serve: Serve, issuer: Identity) -> None:
    config = trusting(issuer)
    config["issuers"]["company"]["issuer"] = f"{issuer.url}/"
    async with serve(config=config) as running:
        token = issuer.token(iss=f"{issuer.url}/")
        assert await status_and_code(running.chat(bearer(token))) == (503, "keys_not_loaded")
        assert issuer.fetches() == 0


def denying(*denied: str) -> Callable[[dict[str, Any]], None]:
    return lambda config: config["issuers"]["company"].update(deny=list(denied))


@pytest.mark.parametrize(
    "change",
    [
        denying("robot-1"),
        denying("somebody", "token-1"),
        lambda config: config["clients"].pop("app"),
        lambda config: config["issuers"].pop("company"),
    ],
    ids=["by subject", "by id", "client gone", "issuer gone"],
)
async def test_what_runs_with_a_token_is_cut_when_it_is_denied(
    serve: Serve, issuer: Identity, change: Callable[[dict[str, Any]], None]
) -> None:
    async with serve(alpha=ENDLESS, config=trusting(issuer)) as running:
        token, other = issuer.token(), issuer.token(sub="robot-2", jti="token-2", client_id="team")
        async with streaming(running, token) as cut, streaming(running, KEYS["plain"]), streaming(running, other):
            config = json.loads(json.dumps(running.config))
            change(config)
            if not config["issuers"]:
                del config["clients"]["app"], config["clients"]["team"]
            running.gateway.reload(read(config, running.folder))
            await is_cut_off(cut)
            await running["alpha"].reach(disconnects_mid_stream=1 if config["issuers"] else 2)
            assert (await ended_as(running, "app")) == [(499, "key_revoked")]
            assert (await ended_as(running, "plain")) == []
            assert bool(await ended_as(running, "team")) is not bool(config["issuers"])
        assert await refused(running, token)


async def test_a_denied_token_is_found_although_it_had_to_make_room(
    serve: Serve, issuer: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.keys.tokens.MOST", 2)
    async with serve(alpha=ENDLESS, config=trusting(issuer)) as running, streaming(running, issuer.token()) as cut:
        for number in range(5):
            async with streaming(running, issuer.token(jti=f"later-{number}", sub="robot-2")):
                pass
        assert len(running.gateway.context.admission.tokens or ()) == 2
        config = json.loads(json.dumps(running.config))
        denying("robot-1")(config)
        running.gateway.reload(read(config, running.folder))
        await is_cut_off(cut)


async def test_a_call_goes_on_when_its_token_expires(serve: Serve, issuer: Identity) -> None:
    async with serve(alpha=ENDLESS, config=trusting(issuer)) as running:
        token = issuer.token()
        async with streaming(running, token) as response:
            tokens = running.gateway.context.admission.tokens
            assert tokens is not None
            for each in tokens._verified.values():
                each.ends_at = 0.0  # its time has come
            assert await status_and_code(running.chat(bearer(token))) == (401, "key_expired")
            running.gateway.reload(read(running.config | {"region": "eu"}, running.folder))
            assert await ended_as(running, "app") == []
            assert not response.content.at_eof()


async def test_a_client_of_the_database_is_named_too(serve: Serve, issuer: Identity) -> None:
    config = {**in_database(), "issuers": trusting(issuer)["issuers"]}
    async with serve(alpha=ENDLESS, config=config) as running:
        desk = Desk(running)
        assert (await desk.ask("POST", "", {"name": "app"})).status == 201
        token = issuer.token()
        async with streaming(running, token) as response:
            assert (await desk.ask("DELETE", "/app")).status == 200
            await is_cut_off(response)
        await refused(running, token)


async def test_a_client_that_only_tokens_name_has_its_limits_and_its_team(serve: Serve, issuer: Identity) -> None:
    config = {**trusting(issuer), "teams": {"search": {"rpm": 2}}}
    config["clients"]["app"] = {"team": "search", "usd_per_day": 5}
    async with serve(config=config, in_one_minute=True) as running:
        token = issuer.token()
        assert [await asked(running, token) for _ in range(3)] == [200, 200, 429]
        async with running.get("/api/usage", headers=bearer(KEYS["admin"])) as response:
            shown = await response.json()
        [app] = [each for each in shown["data"] if each["client"] == "app"]
        assert "usd_per_day" in {each["limit"] for each in app["limits"]}


async def test_issuers_come_with_a_reload(serve: Serve, issuer: Identity) -> None:
    async with serve(config=clients(plain={})) as running:
        assert running.gateway.context.admission.tokens is None
        await refused(running, issuer.token())
        running.gateway.reload(read({**running.config, **trusting(issuer)}, running.folder))
        assert await asked(running, issuer.token()) == 200


def test_without_issuers_nothing_that_verifies_tokens_is_loaded() -> None:
    """The libraries take 9 MB in each worker."""
    code = "import gateway.app.gateway, gateway.server.server, sys; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert not re.findall(r"'(jwt|cryptography|gateway\.keys\.(?:tokens|issuers))'", loaded)
    assert "'gateway.keys.keys'" in loaded


async def test_a_plain_key_with_two_dots_stays_one(serve: Serve, issuer: Identity, monkeypatch: Any) -> None:
    monkeypatch.setitem(KEYS, "plain", "a.plain.key")
    async with serve(config=trusting(issuer)) as running:
        assert await asked(running, "a.plain.key") == 200


async def test_a_companys_people_are_one_client_with_limits_of_their_own_and_of_their_team(
    serve: Serve, issuer: Identity
) -> None:
    config = trusting(issuer, client="app", end_user="sub", teams={"groups": {"eng": "platform", "ops": "infra"}})
    config["teams"] = {"platform": {"end_users": {"rpm": 2}}, "infra": {"rpm": 1}}
    config["page"] = {"signing_key": "k" * 32}
    async with serve(config=config, in_one_minute=True) as running:
        ann, bob, eve = (
            issuer.token(sub=name, groups=[group]) for name, group in (("ann", "eng"), ("bob", "eng"), ("eve", "ops"))
        )
        named = {"user": "somebody-else"}  # by a request: it changes nothing
        answers = []
        for token in (ann, ann, ann, bob, eve, eve):
            async with running.chat(bearer(token), **named) as response:
                answers.append((response.status, (await response.json()).get("error", {}).get("message", "")[:24]))
        assert [status for status, _ in answers] == [200, 200, 429, 200, 200, 429]
        assert (answers[2][1], answers[5][1]) == ("this end user has reache", "the team 'infra' has rea")
        calls = await running.rows("select client, tags from calls where status_code = 200")
        tags = [json.loads(each["tags"]) for each in calls]
        assert {each["client"] for each in calls} == {"app"}
        assert sorted(each["team"] for each in tags) == ["infra", "platform", "platform", "platform"]
        assert len({each.get("end_user") for each in tags if each["team"] == "platform"}) == 2
        assert await asked(running, issuer.token(sub="mallory", groups=["all"])) == 401


OURS = {"sub": "ann", "email": "ann@example.com", "email_verified": True, "groups": ["eng"], "tid": "our-tenant"}
NOT_OURS: dict[str, tuple[dict[str, Any], str]] = {  # claims, and what is said
    "of another tenant": ({"tid": "their-tenant"}, "`tid` lacks"),
    "of no tenant": ({"tid": None}, "`tid` lacks"),
    "of a tenant that is no text": ({"tid": {"our-tenant": True}}, "`tid` lacks"),
    "for others": ({"aud": ["https://one.example.com", "https://two.example.com"]}, "`aud`"),
    "for an empty list": ({"aud": []}, "`aud`"),
    "for a number": ({"aud": 5}, "`aud`"),
    "for an object": ({"aud": {AUDIENCE: True}}, "`aud`"),
    "for a longer name": ({"aud": f"{AUDIENCE}/v1"}, "`aud`"),
    "whose address nobody verified": ({"email_verified": False}, "not verified"),
    "whose address is verified by a word": ({"email_verified": "true"}, "not verified"),
    "whose address is verified by 1": ({"email_verified": 1}, "not verified"),
    "without an address": ({"email": None}, "no `email`"),
    "whose address is a list": ({"email": ["ann@example.com"]}, "no `email`"),
    "with too many groups": ({"groups": None, "_claim_names": {"groups": "src1"}, "_claim_sources": {}}, "too many"),
    "with too many groups to say so": ({"groups": None, "hasgroups": True}, "too many"),
    "with no group of ours": ({"groups": ["english"]}, "no group"),
    "with groups in one text": ({"groups": "eng ops"}, "no group"),
    "not valid for an hour": ({"nbf": 9e9}, "not valid yet"),
    "made by an issuer with a slash": ({"iss": "{}/"}, "`iss`"),
    "made by an issuer in capitals": ({"iss": "HTTP{}"}, "`iss`"),
    "removed": ({"sub": "gone"}, "is denied"),
}


async def test_over_http_nobody_but_a_companys_own_people_gets_in(serve: Serve, issuer: Identity) -> None:
    company = {"client": "app", "end_user": "email", "teams": {"groups": {"eng": "platform"}}}
    config = trusting(issuer, **company, requires={"tid": "our-tenant"}, deny=["gone"])
    config |= {"teams": {"platform": {}}, "end_users": {}, "page": {"signing_key": "k" * 32}}
    async with serve(config=config | BEHIND_A_PROXY) as running:
        for number, (name, (claims, word)) in enumerate(NOT_OURS.items()):
            said = {**OURS, **claims}
            if "iss" in said:
                said["iss"] = str(said["iss"]).format(issuer.url if said["iss"] == "{}/" else issuer.url[4:])
            assert word in await refused(running, issuer.token(**said), sent_from(number)), name
        assert running.requests == 0
        assert not len(running.gateway.context.admission.tokens or ())
        right: list[dict[str, Any]] = [{}, {"aud": ["https://one.example.com", AUDIENCE]}, {"azp": "a-laptop"}]
        for claims in (*right, {"groups": ["all", "eng"]}):
            assert await asked(running, issuer.token(**{**OURS, **claims})) == 200


def _raw(header: str, payload: str = "{}") -> str:
    return ".".join(urlsafe_b64encode(each.encode()).rstrip(b"=").decode() for each in (header, payload, "signature"))


STRANGE: dict[str, Callable[[Identity], str]] = {  # what anybody can send, without a key of anybody's
    "a deep header": lambda _: _raw('{"alg": "RS256", "x": ' + "[" * 9000 + "]" * 9000 + "}"),
    "a deep payload": lambda _: _raw('{"alg": "RS256"}', "[" * 9000 + "]" * 9000),
    "a header that ends early": lambda _: _raw('{"alg": "RS256", "x": ' + "[" * 9000),
    "a number of many digits": lambda _: _raw('{"alg": "RS256", "x": ' + "9" * 9000 + "}"),
    "an algorithm that is a list": lambda issuer: _raw('{"alg": ["RS256"]}', json.dumps(_claims(issuer))),
    "an algorithm that is null": lambda issuer: _raw('{"alg": null}', json.dumps(_claims(issuer))),
    "an algorithm twice": lambda issuer: _raw(
        '{"alg": "none", "alg": "RS256", "kid": "first"}', json.dumps(_claims(issuer))
    ),
    "an id of a key that is a number": lambda issuer: _raw('{"alg": "RS256", "kid": 5}', json.dumps(_claims(issuer))),
    "an id of a key that is a path": lambda issuer: _raw(
        '{"alg": "RS256", "kid": "../../dev/null"}', json.dumps(_claims(issuer))
    ),
    "an issuer that is a list": lambda issuer: _raw('{"alg": "RS256"}', json.dumps({"iss": [issuer.url]})),
    "surrogates": lambda issuer: _raw('{"alg": "RS256", "kid": "\\ud800"}', json.dumps(_claims(issuer))),
    "a token in a token": lambda issuer: _raw('{"alg": "RS256", "cty": "JWT", "kid": "first"}', issuer.token()),
    "an encrypted one": lambda _: "eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.a.b.c.d",
    "Google's opaque one": lambda _: "ya29.a0AfH6SMBx.Jq-7wZ2",
    "one that is not base64": lambda _: "é.ü.ß",
}


async def test_whatever_anybody_sends_as_a_token_is_a_wrong_key_and_no_error_of_the_gateway(
    serve: Serve, issuer: Identity, logged: list[EventDict]
) -> None:
    async with serve(config=trusting(issuer, client="app") | BEHIND_A_PROXY) as running:
        for number, (name, made) in enumerate(STRANGE.items()):
            async with running.chat({**bearer(made(issuer)), **sent_from(number)}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == WRONG, name
        assert await asked(running, issuer.token()) == 200
        assert issuer.fetches() <= 2
    assert not [entry for entry in logged if entry["log_level"] in {"error", "critical"}]


@pytest.mark.parametrize("typ", ["at+jwt", "JWT"])
async def test_a_kind_that_is_no_text_is_no_kind(serve: Serve, issuer: Identity, typ: str) -> None:
    async with serve(config=trusting(issuer, typ=typ)) as running:
        for kind in (["at+jwt"], {"at+jwt": 1}, 5, True):
            assert "`typ`" in await refused(running, issuer.token(header={"typ": kind}))


async def test_a_key_that_the_issuer_no_longer_publishes_is_good_for_no_new_token(
    serve: Serve, issuer: Identity
) -> None:
    async with serve(config=trusting(issuer)) as running:
        assert await asked(running, issuer.token("first")) == 200
        tokens = running.gateway.context.admission.tokens
        assert tokens is not None
        stolen = issuer.token("first", jti="stolen")
        issuer.keys = {"second": RSA_KEYS[1]}
        for known in tokens.issuers.values():
            known._tried_at = None  # as if that was long ago
        assert await asked(running, issuer.token("second")) == 200
        await refused(running, stolen)
