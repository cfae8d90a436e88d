"""Checks of issuers of tokens: the issuers' clients must exist, and must not be people of other companies."""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from gateway.settings.document import Complaint, Place, nearest
from gateway.settings.model import IssuerSettings, Settings
from gateway.settings.sections import ClientRole
from gateway.settings.urls import check_safe, is_safe_url
from providers import has_oidc, how_to_install


def check_issuers(settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of ``issuers``."""
    if settings.issuers and not has_oidc():
        yield Complaint(("issuers",), f"need the packages that verify tokens: {how_to_install('oidc')}, or remove them")
    if settings.issuers and not settings.clients and settings.keys == "file":
        yield Complaint(("issuers",), "need clients: a token names one, and what it may do is only there")
    names: dict[str, str] = {}
    for name, issuer in settings.issuers.items():
        place: Place = ("issuers", name)
        other = names.setdefault(issuer.issuer, name)
        if other != name:
            yield Complaint((*place, "issuer"), f"is also that of {other!r}: one entry may have several audiences")
        yield from check_safe(place, issuer=issuer.issuer, jwks_url=issuer.jwks_url)
        for value, client in issuer.clients.items() if settings.keys == "file" else ():
            if client not in settings.clients:
                words = f"there is no client {client!r}; {nearest(client, settings.clients)}"
                yield Complaint((*place, "clients", value), words)
        former = next((other for other in settings.issuers if settings.issuers[other].login is not None), name)
        if issuer.login is not None and former != name:
            words = f"{former!r} has one: `holeshot login` is told one place to sign in at"
            yield Complaint((*place, "login"), words)
        if issuer.login is not None and _lets_id_tokens_in(issuer, issuer.login.client_id):
            yield Complaint(
                (*place, "audience"),
                "is login.client_id, to which ID tokens are made out: register the API under a name of its own, or"
                " require what only access tokens have, as `requires: { scp: call }`. With `sends: id` ID tokens count"
                " without it",
            )
        yield from _check_people(place, issuer, settings)
        sign_in = settings.page.sign_in
        if sign_in is not None and issuer.issuer == sign_in.issuer and sign_in.client_id in issuer.audience:
            yield Complaint(
                (*place, "audience"),
                "is page.sign_in.client_id, to which ID tokens are made out: register the API under a name of its own",
            )


def _lets_id_tokens_in(issuer: IssuerSettings, client_id: str) -> bool:
    """Whether a program's ID tokens could count as access tokens, by their `typ`, their audience and their claims."""
    return issuer.typ == "JWT" and client_id in issuer.audience and not {"scope", "scp"}.intersection(issuer.requires)


# Who has accounts at an issuer. There is no list of all issuers that serve everybody. So an issuer is trusted only if
# its address shows that it is a company's own, or if the file says so (docs/contributing/decisions.md).

# learn.microsoft.com/entra/identity-platform/id-token-claims-reference (2026-11-29): the `tid` of personal accounts.
_MICROSOFT = (
    *("login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn"),
    *("login.windows.net", "sts.windows.net"),
)
# Issuers where anybody can have an account, each with the claims that name the account's company, if any are known.
# developers.google.com/identity/openid-connect/openid-connect (2026-11-29): `hd` is the organization's domain.
# docs.github.com/actions/reference/security/oidc, docs.gitlab.com/ci/secrets/id_token_authentication: anybody's
# workflow gets a token, for any audience.
_OF_EVERYBODY: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(_MICROSOFT, ("tid",)),
    "accounts.google.com": ("hd",),
    "token.actions.githubusercontent.com": ("repository_owner", "repository_owner_id", "repository"),
    "gitlab.com": ("namespace_path", "namespace_id", "project_path", "project_id", "groups_direct"),
    "slack.com": ("https://slack.com/team_id",),
    "app.terraform.io": ("terraform_organization_id", "terraform_organization_name"),
    "agent.buildkite.com": ("organization_slug", "organization_id"),
    "appleid.apple.com": (),
    "login.salesforce.com": (),
    "sso.redhat.com": (),
}
_PERSONAL = "9188040d-6c67-4c5b-b112-36a304b66dad"
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A company's own issuers, by their form: the company's name is in the host (Okta, OneLogin), or its realm in the path
# (Keycloak). A tenant of Auth0 has that form too, but anybody can sign up there until the tenant's operator switches
# sign-ups off.
_OF_A_COMPANY = re.compile(
    r"(?!www\.|login\.|accounts?\.)[a-z0-9-]+\.(okta|oktapreview|okta-emea|okta-gov|onelogin|cloudflareaccess)\.com"
)
_REALM = re.compile(r"(/auth)?/realms/[^/]+/?")
# RFC 6761, 6762 and 8375, and ICANN's `.internal`: names that the Internet does not have.
_SPECIAL = re.compile(r"(.*\.)?(internal|local|localhost|test|invalid|example|home\.arpa|example\.(com|net|org))")
# Any tenant's token may have any value of these claims: they say what the token may do, or which program has the token.
_OF_NO_TENANT = frozenset(
    {"scope", "scp", "email_verified", "typ", "token_use", "azp", "aud", "iss", "client_id", "cid", "amr", "acr", "ver"}
)


def _is_company_only(host: str, path: str) -> bool:
    """Whether an issuer's address shows that all accounts there are of one company."""
    if host in _MICROSOFT:
        tenant = path.lower().strip("/").partition("/")[0]
        return _GUID.fullmatch(tenant) is not None and tenant != _PERSONAL
    if host in _OF_EVERYBODY:
        return False
    with suppress(ValueError):
        return not ipaddress.ip_address(host).is_global
    is_private = "." not in host or _SPECIAL.fullmatch(host) is not None
    return is_private or _OF_A_COMPANY.fullmatch(host) is not None or _REALM.fullmatch(path) is not None


def _check_tenant(place: Place, issuer: IssuerSettings) -> Iterator[Complaint]:
    """Yield a complaint if people of other companies could be the issuer's client."""
    parts = urlsplit(issuer.issuer)
    host = (parts.hostname or "").rstrip(".")
    if _is_company_only(host, parts.path):
        return
    is_shared, known = host in _OF_EVERYBODY, _OF_EVERYBODY.get(host, ())
    named = [
        claim
        for claim, value in issuer.requires.items()
        if (claim in known if known else claim not in _OF_NO_TENANT and not isinstance(value, bool))
        and value != _PERSONAL
    ]
    if named or (issuer.company_only and not is_shared):
        return
    if is_shared:
        which = f"`{known[0]}`" if known else "name or number, by a claim of its tokens"
        yield Complaint(
            (*place, "requires"),
            f"must name your company's {which}: anybody can have an account at this issuer, and would be"
            f" {issuer.client!r}",
        )
    else:
        yield Complaint(
            (*place, "company_only"),
            f"is missing: whoever has an account at {host} would be {issuer.client!r}. Write `company_only: true` if"
            " all of them are of your company, else `requires` with the claim that names it, such as `hd` or `tid`",
        )


def _check_people(place: Place, issuer: IssuerSettings, settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of an issuer with ``client``: each valid token of the issuer is that client."""
    if issuer.client is None:
        unused = [field for field in ("end_user", "teams", "team", "company_only") if getattr(issuer, field)]
        yield from (Complaint((*place, field), "needs client: the one that all its tokens are") for field in unused)
        return
    if issuer.clients:
        yield Complaint((*place, "clients"), "and client contradict: keep one of them")
    if is_safe_url(issuer.issuer):
        yield from _check_tenant(place, issuer)
    client = settings.clients.get(issuer.client)
    if client is None and settings.keys == "file":
        words = f"there is no client {issuer.client!r}; {nearest(issuer.client, settings.clients)}"
        yield Complaint((*place, "client"), words)
    if client is not None and client.role is not ClientRole.CLIENT:
        yield Complaint((*place, "client"), f"is of role {client.role}: whoever signs in would be that")
    has_end_users = settings.end_users is not None or any(each.end_users for each in settings.teams.values())
    if issuer.end_user is not None and not has_end_users:
        words = "needs end_users, with their limits or `end_users: {}`: else nobody is told apart"
        yield Complaint((*place, "end_user"), words)
    yield from _check_teams(place, issuer, settings)


def _check_teams(place: Place, issuer: IssuerSettings, settings: Settings) -> Iterator[Complaint]:
    named: list[tuple[Place, str]] = [
        (("teams", claim, value), team) for claim, teams in issuer.teams.items() for value, team in teams.items()
    ]
    if issuer.team is not None:
        named.append((("team",), issuer.team))
    for where, team in named:
        if team not in settings.teams:
            yield Complaint((*place, *where), f"there is no team {team!r}; {nearest(team, settings.teams)}")
