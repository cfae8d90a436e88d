"""The page's settings: whom a header names, who signs in, and who sees their own calls."""

import sys
from collections.abc import Callable

import pytest

from gateway.settings import ClientRole, Settings
from providers import how_to_install

CLIENTS = "clients: { boss: { key_sha256: '" + "0" * 64 + "', role: admin } }\n"
Problems = Callable[..., list[str]]


def test_a_proxy_names_viewers_by_default(loaded: Callable[..., Settings]) -> None:
    header = "trusted_header: { name: x-user, from: [10.0.0.7, '::1/128'] }"
    found = loaded(f"{CLIENTS}page: {{ {header} }}\n").page.trusted_header
    assert found is not None
    assert (found.role, [str(each) for each in found.from_]) == (ClientRole.VIEWER, ["10.0.0.7/32", "::1/128"])


SIGN_IN = "sign_in: { issuer: 'https://login.example.com', client_id: page, viewers: [staff] }"
AT_HOME = "public_url: 'https://llm.example.com'"


def test_signing_in_needs_little(loaded: Callable[..., Settings]) -> None:
    found = loaded(f"{CLIENTS}page: {{ {AT_HOME}, {SIGN_IN} }}\n").page.sign_in
    assert found is not None
    assert (found.groups, found.algorithms, found.client_secret) == ("groups", ("RS256",), None)


def test_signing_in_needs_what_verifies_tokens(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)  # as if it were not installed
    [problem] = problems(f"{CLIENTS}page: {{ {AT_HOME}, {SIGN_IN} }}\n")
    assert how_to_install("oidc") in problem


WITH_PEOPLE = (
    "clients: { dev: {}, boss: { key_sha256: '" + "0" * 64 + "', role: admin } }\nend_users: {}\n"
    "issuers: { company: { issuer: 'https://idp.example.com', audience: api, client: dev, %s } }\n"
    "page: { signing_key: kkkkkkkkkkkkkkkk, people: [company]%s }\n"
)
OF_PEOPLE = ", public_url: 'https://llm.example.com', sign_in: { issuer: 'https://idp.example.com', client_id: page }"
OF_ANOTHER = "issuer: 'https://other.example.com', audience: api, client: dev"


@pytest.mark.parametrize(
    ("entry", "more"),
    [
        ("end_user: sub", ""),
        ("end_user: sub", OF_PEOPLE),  # no group gives more
        (f"end_user: sub }}, other: {{ {OF_ANOTHER}", ""),
    ],
)
def test_people_who_see_their_own_calls_are_those_of_an_issuer_that_tells_them_apart(
    loaded: Callable[..., Settings], entry: str, more: str
) -> None:
    assert (loaded(WITH_PEOPLE % (entry, more)).people_of_page is not None) is bool(more)
