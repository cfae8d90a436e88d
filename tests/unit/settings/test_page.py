"""The page's settings: whom a header may name, and which secrets are too short."""

import sys
from collections.abc import Callable

import pytest

from gateway.settings import ClientRole, Settings, doubtful
from providers import how_to_install

CLIENTS = "clients: { boss: { key_sha256: '" + "0" * 64 + "', role: admin } }\n"
Problems = Callable[..., list[str]]


def trusted(text: str) -> str:
    return f"{CLIENTS}page: {{ trusted_header: {{ {text} }} }}\n"


def test_a_proxy_names_viewers_by_default(loaded: Callable[..., Settings]) -> None:
    found = loaded(trusted("name: x-user, from: [10.0.0.7, '::1/128']")).page.trusted_header
    assert found is not None
    assert (found.role, [str(each) for each in found.from_]) == (ClientRole.VIEWER, ["10.0.0.7/32", "::1/128"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x-user", "from"),
        ("name: x-user, from: []", "from"),
        ("name: x-user, from: [proxy]", "from[0]"),
        ("name: x-user, from: [0.0.0.0/0]", "lets everybody say who they are"),
        ("name: x-user, from: ['::/0']", "lets everybody say who they are"),
        ("name: 'x user', from: [10.0.0.7]", "name"),
        ("name: Cookie, from: [10.0.0.7]", "does not say who has signed in"),
        ("name: X-Forwarded-For, from: [10.0.0.7]", "does not say who has signed in"),
        ("name: x-user, from: [10.0.0.7], role: client", "role"),
    ],
)
def test_what_would_let_others_in_is_an_error(problems: Problems, text: str, said: str) -> None:
    [problem] = problems(trusted(text))
    assert said in problem


def test_a_header_is_trusted_only_where_keys_are_needed(problems: Problems) -> None:
    [problem] = problems("page: { trusted_header: { name: x-user, from: [10.0.0.7] } }\n")
    assert "needs clients" in problem


def test_a_short_signing_key_is_an_error_and_none_is_the_default(
    problems: Problems, loaded: Callable[..., Settings]
) -> None:
    [problem] = problems("page: { signing_key: short-secret }\n")
    assert "openssl rand -hex 32" in problem
    assert "short-secret" not in problem
    assert loaded("page: { signing_key: '' }\n").page.signing_key.get_secret_value() == ""


OPERATOR = "clients: { ops: { key_sha256: '" + "0" * 63 + "1', role: %s } }\n"


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("", 0),
        (OPERATOR % "client", 0),
        (OPERATOR % "viewer", 0),  # with SQLite a key beside the file
        (OPERATOR % "admin", 0),
        (OPERATOR % "admin" + "redis_url: redis://redis\n", 1),  # replicas, each with a file of its own
        ("keys: database\n", 0),
        ("keys: database\ndatabase_url: postgresql://me@db/holeshot\n", 1),
        (OPERATOR % "admin" + "database_url: postgresql://me@db/holeshot\n", 1),
        (OPERATOR % "admin" + "database_url: postgresql://me:pass@db/holeshot\n", 0),
        (OPERATOR % "admin" + "page: { signing_key: 0123456789abcdef }\n", 0),
        ("redis_url: redis://redis\n", 1),  # what one of them has sealed the others cannot open
        ("redis_url: redis://redis\npage: { signing_key: 0123456789abcdef }\n", 0),
        ("redis_url: redis://redis\ndatabase_url: postgresql://me:pass@db/holeshot\n", 0),
    ],
)
def test_sessions_that_the_hash_of_a_key_can_make_are_noted(
    loaded: Callable[..., Settings], text: str, notes: int
) -> None:
    said = list(doubtful(loaded(text)))
    assert len(said) == notes
    assert all("page.signing_key" in each for each in said)


SIGN_IN = "sign_in: { issuer: 'https://login.example.com', client_id: page, viewers: [staff] }"
BOTH = "issuer: 'https://login.example.com', audience: [api, page]"
AT_HOME = "public_url: 'https://llm.example.com'"


def test_signing_in_needs_little(loaded: Callable[..., Settings]) -> None:
    found = loaded(f"{CLIENTS}page: {{ {AT_HOME}, {SIGN_IN} }}\n").page.sign_in
    assert found is not None
    assert (found.groups, found.algorithms, found.client_secret) == ("groups", ("RS256",), None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{CLIENTS}page: {{ {SIGN_IN} }}", "page.public_url: is missing: write where browsers find the gateway"),
        (f"{CLIENTS}page: {{ public_url: 'http://llm.example.com', {SIGN_IN} }}", "public_url: must be an https://"),
        (f"{CLIENTS}page: {{ public_url: 'https://llm.example.com/?a=b', {SIGN_IN} }}", "nor a query"),
        (f"page: {{ {AT_HOME}, {SIGN_IN} }}", "page.sign_in: needs clients"),
        (f"{CLIENTS}page: {{ {AT_HOME}, {SIGN_IN.replace('https', 'http')} }}", "sign_in.issuer: must be an https://"),
        (f"{CLIENTS}page: {{ {AT_HOME}, {SIGN_IN.replace('[staff]', '[]')} }}", "page.sign_in: lets nobody in"),
        (f"{CLIENTS}page: {{ {AT_HOME}, {SIGN_IN.replace(' }', ', scopes: [profile] }')} }}", "scopes: lacks openid"),
        (
            f"{CLIENTS}database_url: 'postgresql://ann@db/holeshot'\npage: {{ {AT_HOME}, {SIGN_IN} }}",
            "page.signing_key: is missing",
        ),
        (
            f"{CLIENTS}issuers: {{ a: {{ {BOTH} }} }}\npage: {{ {AT_HOME}, {SIGN_IN} }}",
            "issuers.a.audience: is page.sign_in.client_id",
        ),
    ],
)
def test_a_sign_in_that_nobody_or_anybody_could_use_is_an_error(problems: Problems, text: str, said: str) -> None:
    [problem] = problems(f"{text}\n")
    assert said in problem


def test_signing_in_needs_what_verifies_tokens(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)  # as if it were not installed
    [problem] = problems(f"{CLIENTS}page: {{ {AT_HOME}, {SIGN_IN} }}\n")
    assert how_to_install("oidc") in problem


WITH_PEOPLE = (
    "clients: { dev: {}, boss: { key_sha256: '" + "0" * 64 + "', role: admin } }\nend_users: {}\n"
    "issuers: { company: { issuer: 'https://idp.example.com', audience: api, client: dev, %s } }\n"
    "page: { signing_key: kkkkkkkkkkkkkkkk, people: [%s]%s }\n"
)
OF_PEOPLE = ", public_url: 'https://llm.example.com', sign_in: { issuer: 'https://%s.example.com', client_id: page }"
OF_ANOTHER = "issuer: 'https://other.example.com', audience: api, client: dev"


@pytest.mark.parametrize(
    ("entry", "people", "more", "said"),
    [
        ("end_user: sub", "company", "", None),
        ("end_user: sub", "company", OF_PEOPLE % "idp", None),  # no group gives more
        ("end_user: sub", "company", OF_PEOPLE % "other", "lets nobody in"),
        ("end_user: sub", "compnay", "", "there is no issuer 'compnay'; did you mean 'company'?"),
        ("end_user: null", "company", "", "must have client and end_user"),
        (f"end_user: sub }}, other: {{ {OF_ANOTHER}, end_user: oid", "company", "", "'other' are 'dev' too"),
        (f"end_user: sub }}, other: {{ {OF_ANOTHER}", "company", "", None),
    ],
)
def test_people_who_see_their_own_calls_are_those_of_an_issuer_that_tells_them_apart(
    request: pytest.FixtureRequest, entry: str, people: str, more: str, said: str | None
) -> None:
    problems, loaded = request.getfixturevalue("problems"), request.getfixturevalue("loaded")
    text = WITH_PEOPLE % (entry, people, more)
    if said is None:
        assert (loaded(text).people_of_page is not None) is bool(more)
        return
    [problem] = problems(text)
    assert said in problem
