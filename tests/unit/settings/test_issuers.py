"""Issuers of tokens: what `check` says of settings that would trust the wrong one, or none."""

import sys
from collections.abc import Callable

import pytest

from gateway.settings import Settings
from providers import how_to_install

Problems = Callable[..., list[str]]

CLIENTS = "clients: { app: { rpm: 60 }, ops: { role: admin, key_sha256: '" + "0" * 64 + "' } }\n"
COMPANY = "issuer: https://login.example.com, audience: gateway"


def issuers(text: str, name: str = "company") -> str:
    return f"{CLIENTS}issuers: {{ {name}: {{ {text} }} }}\n"


def test_an_issuer_needs_little_and_its_clients_need_no_key(loaded: Callable[..., Settings]) -> None:
    settings = loaded(issuers(COMPANY))
    issuer = settings.issuers["company"]
    assert (issuer.audience, issuer.algorithms, issuer.typ, issuer.claim) == (
        ("gateway",),
        ("RS256",),
        "at+jwt",
        "client_id",
    )
    assert settings.clients["app"].key_sha256 == ()


def test_what_verifies_tokens_must_be_installed(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)  # as if it were not installed
    [problem] = problems(issuers(COMPANY))
    assert how_to_install("oidc") in problem


PEOPLE = f"{COMPANY}, client: app, end_user: sub, teams: {{ groups: {{ eng: platform }} }}, team: platform"
WITH_TEAMS = "teams: { platform: { end_users: {} } }\npage: { signing_key: '" + "k" * 32 + "' }\n"


def test_people_of_a_company_need_no_more_than_this(loaded: Callable[..., Settings], problems: Problems) -> None:
    issuer = loaded(issuers(PEOPLE) + WITH_TEAMS).issuers["company"]
    assert (issuer.client, issuer.end_user, issuer.teams) == ("app", "sub", {"groups": {"eng": "platform"}})
    google = "issuer: https://accounts.google.com, audience: gateway, client: app, requires: { hd: example.com }"
    assert loaded(issuers(google)).issuers["company"].requires == {"hd": "example.com"}
    owned = "requires: { repository_owner_id: 42 }"
    github = f"issuer: https://token.actions.githubusercontent.com, audience: gateway, client: app, {owned}"
    assert loaded(issuers(github)).issuers["company"].client == "app"
    [problem] = problems(issuers(f"{COMPANY}, client: app, end_user: sub"))
    assert "end_user: needs end_users" in problem


OWN = [  # whose address tells that they are one company's
    "https://company.okta.com",
    "https://company.okta.com/oauth2/default",
    "https://company.oktapreview.com",
    "https://company.onelogin.com/oidc/2",
    "https://company.cloudflareaccess.com",
    "https://sso.company.com/realms/staff",
    "https://sso.company.com/auth/realms/staff",
    "https://login.microsoftonline.com/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/v2.0",
    "https://login.microsoftonline.us/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/v2.0",
    "https://sts.windows.net/0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0/",
    "http://127.0.0.1:8080",
    "https://[::1]:8080/x",
    "https://10.1.2.3",
    "https://sso",
    "https://sso.corp.internal",
]
OF_EVERYBODY = {  # and what would name the company there; None: nothing that is known
    "https://slack.com": "https://slack.com/team_id",
    "https://appleid.apple.com": None,
    "https://login.salesforce.com": None,
    "https://sso.redhat.com/auth/realms/redhat-external": None,
    "https://login.microsoftonline.us/common/v2.0": "tid",
    "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0": "tid",
    "https://login.microsoftonline.com/9188040D-6C67-4C5B-B112-36A304B66DAD/v2.0": "tid",
    "https://login.microsoftonline.com": "tid",
    "https://LOGIN.microsoftonline.com/organizations/v2.0": "tid",
    "https://sts.windows.net/9188040d-6c67-4c5b-b112-36a304b66dad/": "tid",
    "https://accounts.google.com/": "hd",
    "https://accounts.google.com.": "hd",
    "https://app.terraform.io": "terraform_organization_id",
    "https://agent.buildkite.com": "organization_slug",
}
UNKNOWN = [  # to nobody but those who run them
    "https://login.company.com",
    "https://www.okta.com",
    "https://login.auth0.com",
    "https://company.auth0.com/",  # where anybody can sign up, unless that is switched off
    "https://company.eu.auth0.com/",
    "https://okta.com",
    "https://company.okta.com.strangers.com",
    "https://notokta.com",
    "https://id.company.com/realms",
    "https://8.8.8.8",
    "https://securetoken.google.com/a-project",
]


def people_of(issuer: str, more: str = "") -> str:
    return issuers(f"issuer: '{issuer}', audience: gateway, client: app{more}")


@pytest.mark.parametrize("issuer", OWN)
def test_an_issuer_whose_address_names_one_company_needs_no_more(loaded: Callable[..., Settings], issuer: str) -> None:
    assert loaded(people_of(issuer)).issuers["company"].issuer == issuer


@pytest.mark.parametrize("issuer", OF_EVERYBODY)
def test_an_issuer_that_serves_everybody_needs_a_claim_that_names_the_company(
    loaded: Callable[..., Settings], problems: Problems, issuer: str
) -> None:
    claim = OF_EVERYBODY[issuer]
    for more in (
        "",
        ", company_only: true",
        ", requires: { email_verified: true, scope: call, 'tid': '9188040d-6c67-4c5b-b112-36a304b66dad' }",
    ):
        [problem] = problems(people_of(issuer, more))
        assert "issuers.company.requires: must name your company's " + (f"`{claim}`" if claim else "name") in problem
    assert loaded(people_of(issuer, f", requires: {{ '{claim or 'org'}': ours }}")).issuers


@pytest.mark.parametrize("issuer", UNKNOWN)
def test_an_unknown_issuer_is_the_companys_where_the_file_says_so(
    loaded: Callable[..., Settings], problems: Problems, issuer: str
) -> None:
    for more in ("", ", company_only: false", ", requires: { email_verified: true, scope: call, azp: laptops }"):
        [problem] = problems(people_of(issuer, more))
        assert "issuers.company.company_only: is missing" in problem
        assert "Write `company_only: true` if all of them are of your company, else `requires`" in problem
    assert loaded(people_of(issuer, ", company_only: true")).issuers
    assert loaded(people_of(issuer, ", requires: { org_id: ours }")).issuers
