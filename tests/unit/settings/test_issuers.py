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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("audience: gateway", "issuers.company.issuer: is missing"),
        ("issuer: https://login.example.com", "issuers.company.audience: is missing"),
        (f"{COMPANY}, audience: []", "audience"),
        (f"{COMPANY}, algorithms: [HS256]", "algorithms[0]"),
        (f"{COMPANY}, algorithms: [none]", "algorithms[0]"),
        (f"{COMPANY}, algorithms: []", "algorithms: must not be empty"),
        (f"{COMPANY}, typ: jwt", "typ"),
        (f"{COMPANY}, leeway_s: 900", "leeway_s"),
        (f"{COMPANY}, clients: {{ build: ap }}", "clients.build: there is no client 'ap'; did you mean 'app'?"),
        ("issuer: http://login.example.com, audience: gateway", "issuer: must be an https:// address"),
        ("issuer: login.example.com, audience: gateway", "issuer: must be an https:// address"),
        ("issuer: 'https://me:secret@login.example.com', audience: gateway", "issuer: must be an https:// address"),
        (f"{COMPANY}, jwks_url: 'http://10.0.0.1/keys'", "jwks_url: must be an https:// address"),
    ],
)
def test_what_would_trust_the_wrong_one_is_an_error(problems: Problems, text: str, said: str) -> None:
    parts = dict(part.split(": ", 1) for part in text.split(", ") if ": " in part)
    [problem] = problems(issuers(", ".join(f"{name}: {value}" for name, value in parts.items())))
    assert said in problem
    assert "secret" not in problem


def test_an_issuer_on_this_machine_needs_no_tls(loaded: Callable[..., Settings]) -> None:
    assert loaded(issuers("issuer: 'http://127.0.0.1:8080/realms/x', audience: gateway")).issuers


def test_an_issuer_has_one_entry(problems: Problems) -> None:
    [problem] = problems(f"{CLIENTS}issuers: {{ a: {{ {COMPANY} }}, b: {{ {COMPANY} }} }}\n")
    assert "issuers.b.issuer: is also that of 'a'" in problem


def test_without_clients_a_token_names_nobody(problems: Problems) -> None:
    [problem] = problems(f"issuers: {{ a: {{ {COMPANY} }} }}\n")
    assert "need clients" in problem


def test_clients_of_the_database_cannot_be_checked(loaded: Callable[..., Settings]) -> None:
    assert loaded(f"keys: database\nissuers: {{ a: {{ {COMPANY}, clients: {{ build: any }} }} }}\n").issuers


def test_without_issuers_a_client_needs_a_key(problems: Problems) -> None:
    [problem] = problems("clients: { app: { rpm: 60 } }\n")
    assert "clients.app.key_sha256: is missing: run `holeshot keys new app`" in problem


def test_what_verifies_tokens_must_be_installed(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)  # as if it were not installed
    [problem] = problems(issuers(COMPANY))
    assert how_to_install("oidc") in problem


PEOPLE = f"{COMPANY}, client: app, end_user: sub, teams: {{ groups: {{ eng: platform }} }}, team: platform"
WITH_TEAMS = "teams: { platform: { end_users: {} } }\npage: { signing_key: '" + "k" * 32 + "' }\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{COMPANY}, client: ap", "client: there is no client 'ap'; did you mean 'app'?"),
        (f"{COMPANY}, client: ops", "client: is of role admin: whoever signs in would be that"),
        (f"{COMPANY}, client: app, clients: {{ build: app }}", "clients: and client contradict"),
        (f"{COMPANY}, end_user: sub", "end_user: needs client"),
        (f"{COMPANY}, team: platform", "team: needs client"),
        (f"{COMPANY}, teams: {{ groups: {{ eng: platform }} }}", "teams: needs client"),
        (f"{COMPANY}, client: app, end_user: name", "end_user: must be"),
        (f"{COMPANY}, client: app, teams: {{ groups: {{ eng: platfrom }} }}", "teams.groups.eng: there is no team"),
        (f"{COMPANY}, client: app, team: nope", "team: there is no team 'nope'"),
        (
            "issuer: https://accounts.google.com, audience: gateway, client: app",
            "requires: must name your company's `hd`",
        ),
        (
            "issuer: https://login.microsoftonline.com/common/v2.0, audience: gateway, client: app",
            "requires: must name your company's `tid`",
        ),
        (
            "issuer: https://token.actions.githubusercontent.com, audience: gateway, client: app",
            "requires: must name your company's `repository_owner`",
        ),
        (
            "issuer: https://gitlab.com, audience: gateway, client: app, requires: { ref_protected: true }",
            "requires: must name your company's `namespace_path`",
        ),
    ],
)
def test_who_would_let_strangers_in_or_names_nobody_is_told(problems: Problems, text: str, said: str) -> None:
    [problem] = problems(issuers(text) + WITH_TEAMS)
    assert said in problem


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


def test_without_client_it_does_not_matter_whose_an_issuer_is(
    loaded: Callable[..., Settings], problems: Problems
) -> None:
    assert loaded(issuers("issuer: 'https://login.company.com', audience: gateway")).issuers
    [problem] = problems(issuers(f"{COMPANY}, company_only: true"))
    assert "company_only: needs client" in problem


LAPTOPS = "issuer: https://login.example.com, login: { client_id: laptops }"


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("audience: [gateway, laptops], typ: JWT", False),
        ("audience: laptops, typ: JWT, requires: { tid: ours }", False),
        ("audience: laptops, typ: JWT, requires: { scp: call }", True),
        ("audience: laptops", True),
        ("audience: gateway, typ: JWT", True),
    ],
)
def test_the_client_at_which_laptops_sign_in_is_no_audience_where_its_id_tokens_would_count(
    loaded: Callable[..., Settings], problems: Problems, text: str, is_right: bool
) -> None:
    if is_right:
        assert loaded(issuers(f"{LAPTOPS}, {text}")).issuers
        return
    [problem] = problems(issuers(f"{LAPTOPS}, {text}"))
    assert "issuers.company.audience: is login.client_id, to which ID tokens are made out" in problem
