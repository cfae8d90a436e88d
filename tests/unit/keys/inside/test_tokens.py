"""Tokens by a clock that a test moves: how often an issuer is asked, and when what is known ends."""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.core.errors import CutByExpiry, KeyExpired, KeysNotLoaded, SignerUnknown, WrongKey
from gateway.keys import Issuer, KeyTable, TokenClients, Web
from gateway.keys.issuers import OLD_S, REFETCH_S, RETRY_S
from gateway.settings import ClientRole, ClientSettings, IssuerSettings
from tests.identity import AUDIENCE, EC_KEY, Identity, public_jwk, signed
from tests.unit.keys.given import NOW, Clock

DIGEST = b"d" * 32
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


class Judged:
    """Tokens of one issuer, and of clients that have no keys; the clocks stand still."""

    def __init__(self, identity: Identity, clients: dict[str, ClientSettings], **more: Any) -> None:
        self.identity = identity
        self.clock = Clock()
        self.table: KeyTable[str] = KeyTable(lambda name, _: name, clients, stored=False, unix_clock=self.clock)
        self.tokens = TokenClients(
            self.table,
            lambda _: ClientRole.CLIENT,
            Web("tests"),
            person_of=lambda client, team, end_user: f"{client} {team} {end_user}",
            clock=self.clock,
            unix_clock=self.clock,
        )
        entry = {"issuer": identity.url, "audience": AUDIENCE, "algorithms": ["ES256"], "leeway_s": 30, **more}
        self.tokens.configure({"company": IssuerSettings.model_validate(entry)})

    @property
    def issuer(self) -> Issuer:
        return self.tokens.issuers["company"]

    def token(self, key_id: str = "curve", /, **claims: Any) -> str:
        """Return a token by the one key, under any id."""
        usual = {**self.identity.usual(), "exp": NOW.timestamp() + 600}
        return signed(EC_KEY, key_id, {**usual, **claims}, {"typ": "at+jwt"})

    def holder(self, token: str, digest: bytes = DIGEST) -> str:
        return self.tokens.holder(token, digest)

    async def ask(self, key_id: str) -> bool:
        """Send a token by a key with this id, and ask its issuer as the gateway does."""
        with pytest.raises(SignerUnknown) as unknown:
            self.holder(self.token(key_id))
        return await unknown.value.ask()


@pytest.fixture
async def judged() -> AsyncIterator[Judged]:
    async with Identity() as identity:
        made = Judged(identity, {"app": ClientSettings(), "brief": ClientSettings(expires=NOW + timedelta(minutes=5))})
        await made.issuer.start_fetch()
        yield made
        await made.tokens.close()


async def test_invented_key_ids_ask_the_issuer_once_in_thirty_seconds(judged: Judged) -> None:
    for number in range(200):
        assert not await judged.ask(f"invented-{number}")
    assert judged.identity.fetches() == 1
    judged.clock.move(REFETCH_S - 0.1)
    assert not await judged.ask("invented")
    assert judged.identity.fetches() == 1
    judged.clock.move(0.2)
    for number in range(200):
        assert not await judged.ask(f"invented-{number}")
    assert judged.identity.fetches() == 2


async def test_a_rotated_key_is_found_when_the_issuer_may_be_asked_again(judged: Judged) -> None:
    judged.identity.keys = {"next": EC_KEY}
    assert not await judged.ask("next")
    judged.clock.move(REFETCH_S)
    assert await judged.ask("next")
    assert judged.holder(judged.token("next")) == "app"
    with pytest.raises(SignerUnknown):
        judged.holder(judged.token("curve"), b"o" * 32)  # the old one is gone


async def test_keys_that_are_old_are_looked_for_again_while_they_are_used(judged: Judged) -> None:
    judged.identity.keys = {"next": EC_KEY}
    judged.clock.move(OLD_S)
    token = judged.token("curve", exp=judged.clock() + 60)
    assert judged.holder(token) == "app"  # nobody waits
    await judged.issuer.start_fetch()
    assert {key_id for key_id, _ in judged.issuer.keys} == {"next"}
    assert judged.identity.fetches() == 2


async def test_an_issuer_that_was_never_there_is_asked_every_two_seconds() -> None:
    async with Identity() as identity:
        identity.is_away = True
        judged = Judged(identity, {"app": ClientSettings()})
        for _ in range(20):
            with pytest.raises(KeysNotLoaded):
                await judged.ask("curve")
        assert judged.issuer.fetches == 1
        judged.clock.move(RETRY_S)
        identity.is_away = False
        assert await judged.ask("curve")
        assert judged.holder(judged.token()) == "app"
        await judged.tokens.close()


@pytest.mark.parametrize(("claims", "seconds", "is_good"), [
    ({}, 629.9, True),
    ({}, 630.0, False),
    ({"nbf": NOW.timestamp() + 30}, 0.0, True),
    ({"nbf": NOW.timestamp() + 31}, 0.0, False),
    ({"nbf": NOW.timestamp() + 31}, 1.0, True),
])  # fmt: skip
async def test_clocks_may_differ_by_the_leeway(
    judged: Judged, claims: dict[str, float], seconds: float, is_good: bool
) -> None:
    judged.clock.move(seconds)
    if is_good:
        assert judged.holder(judged.token(**claims)) == "app"
    else:
        with pytest.raises((KeyExpired, WrongKey)):
            judged.holder(judged.token(**claims))


async def test_a_known_token_ends_in_its_instant_and_is_forgotten(judged: Judged) -> None:
    token = judged.token()
    assert judged.holder(token) == "app"
    assert len(judged.tokens) == 1
    judged.clock.move(630)
    with pytest.raises(KeyExpired):
        judged.holder(token)
    assert len(judged.tokens) == 0


async def test_the_end_of_a_client_without_keys_cuts_what_its_tokens_run(judged: Judged) -> None:
    token = judged.token(client_id="brief")
    ended: dict[bytes, Any] = {}
    judged.table.on_ended = ended.update
    assert judged.holder(token) == "brief"
    running = judged.tokens.of(DIGEST)
    assert judged.table.next_end == (NOW + timedelta(minutes=5)).timestamp()
    judged.clock.move(300)
    with pytest.raises(KeyExpired):
        judged.holder(token)
    judged.table.end_expired()
    assert running is not None
    assert ended[DIGEST] is CutByExpiry


async def test_known_tokens_are_bounded_and_the_one_unused_for_longest_goes(
    judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.keys.tokens.MOST", 3)
    digests = [bytes([number]) * 32 for number in range(5)]
    for number, digest in enumerate(digests):
        judged.holder(judged.token(jti=str(number)), digest)
        judged.holder("is known", digests[0])
    assert [judged.tokens.of(digest) is not None for digest in digests] == [True, False, False, True, True]


async def test_a_change_of_an_issuer_verifies_its_tokens_again_with_the_keys_that_are_known(judged: Judged) -> None:
    token, before = judged.token(), judged.tokens._settings["company"]
    assert judged.holder(token) == "app"
    judged.tokens.configure({"company": before.model_copy(update={"audience": ("another",)})})
    with pytest.raises(WrongKey, match="aud"):
        judged.holder(token)
    judged.tokens.configure({"company": before})
    assert judged.holder(token) == "app"
    assert judged.identity.fetches() == 1


# An issuer's people: all valid tokens are one client, a claim names the end user, and groups the team.

PEOPLE = {"client": "app", "end_user": "email", "teams": {"groups": {"eng": "platform", "ops": "infra"}}}
ANN = {"sub": "ann-1", "oid": "o-1", "email": "ann@example.com", "email_verified": True, "groups": ["all", "eng"]}


@pytest.fixture
async def identity() -> AsyncIterator[Identity]:
    async with Identity() as made:
        yield made


@pytest.mark.parametrize(
    ("settings", "claims", "found"),
    [
        ({}, {}, "app platform ann@example.com"),
        ({"end_user": "sub"}, {}, "app platform ann-1"),
        ({"end_user": "oid"}, {"email_verified": False}, "app platform o-1"),
        ({"end_user": None}, {"email": None}, "app platform None"),
        ({}, {"groups": ["ops", "eng"]}, "app platform ann@example.com"),  # in the order of the settings
        ({}, {"groups": "ops"}, "app infra ann@example.com"),
        ({"team": "guests"}, {"groups": ["all"]}, "app guests ann@example.com"),
        ({"teams": {}, "team": "guests"}, {"groups": None}, "app guests ann@example.com"),
        ({"teams": {}, "end_user": None}, {}, "app"),
        ({}, {"client_id": "brief"}, "app platform ann@example.com"),  # which client a token names does not matter
        ({}, {"email_verified": False}, "`email` is not verified"),
        ({}, {"email_verified": "true"}, "`email` is not verified"),
        ({}, {"email_verified": None}, "`email` is not verified"),
        ({}, {"email": None}, "has no `email`"),
        ({"end_user": "oid"}, {"oid": ""}, "has no `oid`"),
        ({}, {"groups": ["all"]}, "no group that may use this gateway"),
        ({}, {"groups": None}, "no group that may use this gateway"),
        ({"requires": {"hd": "example.com"}}, {"hd": "example.org"}, "`hd` lacks"),
        ({"requires": {"hd": "example.com"}}, {"hd": "example.com"}, "app platform ann@example.com"),
        ({"deny": ["ann-1"]}, {}, "is denied"),
        ({}, {"aud": "https://another.example.com"}, "`aud` is not this gateway"),
        ({}, {"aud": ["https://another.example.com", AUDIENCE]}, "app platform ann@example.com"),
        ({}, {"nbf": NOW.timestamp() + 31}, "not valid yet"),
        ({}, {"exp": NOW.timestamp() - 31}, "expired"),
        ({}, {"exp": None}, "no `exp`"),
        ({}, {"iss": "https://another.example.com"}, "`iss` is not an issuer"),
    ],
)
async def test_a_valid_token_is_one_of_a_clients_people(
    identity: Identity, settings: dict[str, Any], claims: dict[str, Any], found: str
) -> None:
    judged = Judged(identity, {"app": ClientSettings()}, **{**PEOPLE, **settings})
    await judged.issuer.start_fetch()
    said = {name: each for name, each in {**ANN, **claims}.items() if each is not None}
    token = judged.token(**said) if claims.get("exp", 0) is not None else _without_end(judged, said)
    try:
        assert judged.holder(token) == found
        assert judged.holder(token) is judged.holder(token)
    except (WrongKey, KeyExpired) as error:
        if found not in error.message:
            raise
    finally:
        await judged.tokens.close()


PERSON = {"sub": "ann-1", "email": "ann@example.com"}
# What a token without a kind says, for an audience that may be a program's id, and whether it is an access token.
KINDS: dict[str, tuple[dict[str, Any], bool]] = {
    "a person's, to a program": (PERSON, False),
    "a person's, by when they signed in": ({"auth_time": 5}, False),
    "to the program that got it": ({**PERSON, "azp": "gateway", "client_id": "gateway"}, False),
    "by its hash": ({"at_hash": "h", "scope": "openid"}, False),
    "Keycloak's": ({"typ": "ID", "azp": "gateway"}, False),
    "Cognito's": ({"token_use": "id"}, False),
    "a scope": ({**PERSON, "scope": "call"}, True),
    "Entra's scope, one program": ({**PERSON, "scp": "call", "azp": "gateway"}, True),
    "got by another program": ({**PERSON, "azp": "laptops"}, True),
    "Okta's": ({**PERSON, "cid": "laptops"}, True),
    "Keycloak's access": ({**PERSON, "typ": "Bearer"}, True),
    "Cognito's access": ({**PERSON, "token_use": "access"}, True),
    "to an address": ({**PERSON, "aud": AUDIENCE}, True),
    "a program's": ({"sub": "system:serviceaccount:ci:build", "kubernetes.io": {"namespace": "ci"}}, True),
}


@pytest.mark.parametrize(("claims", "is_taken"), KINDS.values(), ids=KINDS)
async def test_without_a_kind_a_token_that_tells_a_program_who_its_person_is_is_an_id_token(
    identity: Identity, claims: dict[str, Any], is_taken: bool
) -> None:
    more = {"audience": ["gateway", AUDIENCE], "typ": "JWT", "client": "app"}
    judged = Judged(identity, {"app": ClientSettings()}, **more)
    await judged.issuer.start_fetch()
    usual = {"iss": identity.url, "aud": "gateway", "sub": "robot", "exp": NOW.timestamp() + 600}
    token = signed(EC_KEY, "curve", {**usual, **claims}, {"typ": "JWT"})
    if is_taken:
        assert judged.holder(token) == "app"
    else:
        with pytest.raises(WrongKey, match="this is an ID token"):
            judged.holder(token)
    await judged.tokens.close()


def _without_end(judged: Judged, claims: dict[str, Any]) -> str:
    usual = {name: each for name, each in {**judged.identity.usual(), **claims}.items() if name != "exp"}
    return signed(EC_KEY, "curve", usual, {"typ": "at+jwt"})


async def test_forged_tokens_are_nobody_of_a_company(identity: Identity) -> None:
    """RFC 8725: no algorithm, a symmetric one with the public key, another key of its own, a key that it brings."""
    judged = Judged(identity, {"app": ClientSettings()}, **PEOPLE)
    await judged.issuer.start_fetch()
    claims = {**identity.usual(), **ANN, "exp": NOW.timestamp() + 600}
    public = EC_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    jwk = public_jwk(OTHER_KEY, "curve")

    def encoded(header: dict[str, Any], signature: bytes | None = None) -> str:
        parts = [urlsafe_b64encode(msgspec.json.encode(each)).rstrip(b"=") for each in (header, claims)]
        signed_part = b".".join(parts)
        made = hmac.digest(public, signed_part, "sha256") if signature is None else signature
        return b".".join([signed_part, urlsafe_b64encode(made).rstrip(b"=")]).decode()

    forged = {
        "none": encoded({"alg": "none", "typ": "at+jwt", "kid": "curve"}, b""),
        "None": encoded({"alg": "None", "typ": "at+jwt", "kid": "curve"}, b""),
        "HS256 with the public key": encoded({"alg": "HS256", "typ": "at+jwt", "kid": "curve"}),
        "ES256 by name, HMAC by nature": encoded({"alg": "ES256", "typ": "at+jwt", "kid": "curve"}),
        "ES256 of zeros": encoded({"alg": "ES256", "typ": "at+jwt", "kid": "curve"}, b"\0" * 64),
        "another key under its id": signed(OTHER_KEY, "curve", claims, {"typ": "at+jwt"}),
        "a key that it brings": signed(OTHER_KEY, "curve", claims, {"typ": "at+jwt", "jwk": jwk}),
        "another issuer's id of a key": signed(OTHER_KEY, "foreign", claims, {"typ": "at+jwt"}),
        "an ID token": signed(EC_KEY, "curve", {**claims, "nonce": "n"}, {"typ": "JWT"}),
        "a token of a logout": signed(EC_KEY, "curve", {**claims, "events": {}}, {"typ": "logout+jwt"}),
    }
    for name, token in forged.items():
        with pytest.raises((WrongKey, SignerUnknown)):
            pytest.fail(f"{name}: {judged.holder(token)}")
    assert judged.holder(signed(EC_KEY, "curve", claims, {"typ": "at+jwt"})) == "app platform ann@example.com"
    await judged.tokens.close()
