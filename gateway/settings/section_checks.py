"""Checks of single sections: clients, the page, traces, targets, takeovers, CORS, and races."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from gateway.core.attempts import WinOn
from gateway.core.calls import Mode, Objective
from gateway.settings.deployment import DeploymentSettings
from gateway.settings.document import Complaint, Place, nearest, written
from gateway.settings.model import ClientSettings, IssuerSettings, ModelSettings, RaceSettings, Settings, signing_secret
from gateway.settings.patterns import is_any, is_covered, is_pattern
from gateway.settings.presets import Catalog, vendor_of
from gateway.settings.sections import FASTEST_TOK_S, SOONEST_TTFT_MS, Cause, ClientRole, TargetSettings, When
from gateway.settings.urls import UNSAFE, check_safe, is_safe_url
from providers import Api, Vendor, apis_of, has_oidc, has_otel, how_to_install, traits_of
from providers.dialects import DIALECTS, Dialect, Way
from providers.http import checked


def check_clients(settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of the file's clients: each key must belong to one client, and names in use must exist."""
    holders: dict[str, str] = {}
    for name, client in settings.clients.items():
        place: Place = ("clients", name)
        if not client.key_sha256 and not settings.issuers:
            yield Complaint(
                (*place, "key_sha256"),
                f"is missing: run `holeshot keys new {name}`. Only a client that tokens name (issuers) needs none",
            )
        if len(set(client.key_sha256)) < len(client.key_sha256):
            yield Complaint((*place, "key_sha256"), "has the same key twice: remove one")
        for digest in client.key_sha256:
            other = holders.setdefault(digest, name)
            if other != name:
                yield Complaint(
                    (*place, "key_sha256"), f"is also the key of client {other!r}: give each client its own"
                )
        yield from unknown_names(place, client, settings.models, settings.providers, settings.teams)
    yield from _check_end_users(settings)


def _check_end_users(settings: Settings) -> Iterator[Complaint]:
    """Yield a complaint if end users have limits, but there is no secret with which to hash their names."""
    of_teams = ((("teams", name, "end_users"), team.end_users) for name, team in settings.teams.items())
    places: list[Place] = [place for place, rules in ((("end_users",), settings.end_users), *of_teams) if rules]
    if places and not signing_secret(settings):
        yield Complaint(
            places[0], "needs page.signing_key: names of end users are kept as keyed hashes; use `openssl rand -hex 32`"
        )


def unknown_names(
    place: Place,
    client: ClientSettings,
    models: Collection[str],
    providers: Collection[str],
    teams: Collection[str],
) -> Iterator[Complaint]:
    """Yield a complaint for each model, provider and team of the client at ``place`` that is not configured."""
    for field, named, known in (
        ("models", client.models or (), models),
        ("only", client.only or (), providers),
        ("ignore", client.ignore, providers),
    ):
        for index, word in enumerate(named):
            if word not in known and not (field == "models" and is_any(word, known)):
                what = "model" if field == "models" else "provider"
                yield Complaint((*place, field, index), f"there is no {what} {word!r}; {nearest(word, known)}")
    if client.team is not None and client.team not in teams:
        yield Complaint((*place, "team"), f"there is no team {client.team!r}; {nearest(client.team, teams)}")


# Checks of the page's settings.

_PLACE: Place = ("page", "trusted_header")
# Headers of browsers, or of proxies without sign-in.
_OTHERS = frozenset({"authorization", "cookie", "forwarded", "host", "origin", "x-api-key", "x-forwarded-for"})
_SHORTEST = 16  # characters of a signing key


def check_page(settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of ``page``."""
    if 0 < len(settings.page.signing_key.get_secret_value()) < _SHORTEST:
        yield Complaint(
            ("page", "signing_key"),
            f"is shorter than {_SHORTEST} characters, so it could be guessed: use `openssl rand -hex 32`",
        )
    yield from _check_sign_in(settings)
    yield from _check_own(settings)
    trusted = settings.page.trusted_header
    if trusted is None:
        return
    if not settings.clients and settings.keys == "file":
        yield Complaint(
            _PLACE,
            "needs clients: without keys everybody who reaches the gateway may do everything; "
            "add clients with `holeshot keys new NAME`, or remove trusted_header",
        )
    if trusted.name.lower() in _OTHERS:
        yield Complaint((*_PLACE, "name"), f"{trusted.name!r} does not say who has signed in: name the proxy's header")
    for index, network in enumerate(trusted.from_):
        if network.prefixlen == 0:
            yield Complaint(
                (*_PLACE, "from", index), f"{network} lets everybody say who they are: list the proxy's own addresses"
            )


def _check_sign_in(settings: Settings) -> Iterator[Complaint]:
    url, sign_in, place = settings.page.public_url, settings.page.sign_in, ("page", "sign_in")
    if url is not None and not is_safe_url(url):
        yield Complaint(("page", "public_url"), UNSAFE)
    elif url is not None and urlsplit(url).query:
        yield Complaint(("page", "public_url"), "has a query: write only the address, like https://llm.example.com")
    if sign_in is None:
        return
    if not has_oidc():
        yield Complaint(place, f"needs the packages that verify tokens: {how_to_install('oidc')}, or remove it")
    if not settings.clients and settings.keys == "file":
        yield Complaint(
            place,
            "needs clients: without keys everybody who reaches the gateway may do everything; "
            "add clients with `holeshot keys new NAME`, or remove sign_in",
        )
    if url is None:
        yield Complaint(
            ("page", "public_url"), "is missing: write where browsers find the gateway, like https://llm.example.com"
        )
    yield from check_safe(place, issuer=sign_in.issuer)
    if "openid" not in sign_in.scopes:
        yield Complaint((*place, "scopes"), "lacks openid: without it no provider says who signs in")
    if not (sign_in.viewers or sign_in.operators or sign_in.admins or settings.people_of_page):
        yield Complaint(
            place,
            "lets nobody in: list groups under viewers, operators or admins, or this issuer's entry of issuers under"
            " page.people",
        )
    is_sqlite = settings.database_url.get_secret_value().startswith("sqlite")
    if not is_sqlite and not signing_secret(settings):
        yield Complaint(
            ("page", "signing_key"),
            "is missing, and database_url has no password to use instead: sessions of sign_in could be forged. Set one"
            " (`openssl rand -hex 32`), the same in all replicas",
        )


def _check_own(settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of ``page.people``: people who see only their own calls must be told apart from all others."""
    for index, name in enumerate(settings.page.people):
        place: Place = ("page", "people", index)
        issuer = settings.issuers.get(name)
        if issuer is None:
            yield Complaint(place, f"there is no issuer {name!r}; {nearest(name, settings.issuers)}")
        elif issuer.client is None or issuer.end_user is None:
            words = f"{name!r} must have client and end_user: else nobody's calls can be told from another's"
            yield Complaint(place, words)
        elif also := [
            each for each, other in settings.issuers.items() if each != name and _may_be(other, issuer.client)
        ]:
            words = f"{name!r} must have a client of its own: people of {also[0]!r} are {issuer.client!r} too, and two"
            yield Complaint(place, f"{words} of the same name would see each other's calls")


def _may_be(issuer: IssuerSettings, client: str) -> bool:
    """Whether people of an issuer, told apart by the issuer's claim, are this client."""
    return issuer.client == client and issuer.end_user is not None


def doubtful_page(settings: Settings) -> Iterator[str]:
    """Yield a warning if a key's hash can forge sessions, or if only one replica can read what it signs and seals."""
    if signing_secret(settings):
        return
    may_sign_in = (
        settings.keys == "database"
        or settings.page.sign_in is not None
        or any(client.role is not ClientRole.CLIENT for client in settings.clients.values())
    )
    if settings.database_url.get_secret_value().startswith("sqlite"):
        if settings.redis_url is not None:  # with Redis there are replicas, each with a key beside its own file
            sessions = "do not accept each other's sessions of the page, and " if may_sign_in else ""
            yield (
                f"page.signing_key is not set: replicas with a SQLite file each {sessions}cannot read the reasoning"
                " that another has sealed for clients of other APIs. Set one (`openssl rand -hex 32`), the same in all"
                " replicas"
            )
    elif may_sign_in:
        yield (
            "page.signing_key is not set, and database_url has no password to use instead: anyone who reads the hash"
            " of an admin's key can sign in to the page. Set one (`openssl rand -hex 32`), the same in all replicas"
        )


# Checks of the settings of traces.

TRACES_PATH = "/v1/traces"


def check_tracing(settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of ``tracing``."""
    tracing = settings.tracing
    if tracing.enabled and not has_otel():
        yield Complaint(
            ("tracing", "enabled"), f"needs the OpenTelemetry packages: {how_to_install('otel')}, or set it to false"
        )
    if tracing.endpoint is not None and (problem := _problem(tracing.endpoint)) is not None:
        yield Complaint(("tracing", "endpoint"), problem)
    for name, value in tracing.headers.items():
        try:
            checked({name: value.get_secret_value()})
        except ValueError:
            yield Complaint(
                ("tracing", "headers", name), "cannot be sent as a header field: is there a line break in it?"
            )


def _problem(endpoint: str) -> str | None:
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError:
        return "is not a URL"
    if parts.username is not None or parts.password is not None:
        return "has a user name or password: put the key into tracing.headers"
    if parts.query or parts.fragment:
        return "has a query or fragment: write only the address, like http://localhost:4318"
    if parts.path.rstrip("/").endswith(TRACES_PATH):
        return f"ends with {TRACES_PATH}, which is added: write only what is before it"
    return None


# Checks of targets: names in targets exist, and the ledger's sums reach back far enough.


def check_targets(settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of the file's targets."""
    clients = settings.clients if settings.keys == "file" else None  # the database may have more clients
    models = settings.models or None  # without models, the simulated fleet has its own
    yield from unknown_subjects(settings.slo, models, clients, settings.providers)
    kept = settings.ledger.keep_rollups_days
    for name, target in settings.slo.items():
        if kept is not None and kept < target.days:
            yield Complaint(
                ("slo", name, "days"),
                f"{target.days} days are more than the {kept:g} for which sums are kept: "
                "raise ledger.keep_rollups_days, or lower days",
            )


def doubtful_targets(settings: Settings) -> Iterator[str]:
    """Yield a warning for each target with conditions on speed or gaps whose model does not stream."""
    for name, target in settings.slo.items():
        model = None if target.model is None else settings.models.get(target.model)
        useless = [field for field in ("tok_s", "gap_ms") if getattr(target, field) is not None]
        streams = model is None or any(each.upstream_stream for each in model.deployments if each.enabled)
        if useless and not streams:
            yield (
                f"slo {name!r}: no deployment of model {target.model!r} streams, so {' and '.join(useless)} cannot be"
                " judged: every answer counts as fast enough"
            )


def unknown_subjects(
    slo: Mapping[str, TargetSettings],
    models: Collection[str] | None,
    clients: Collection[str] | None,
    providers: Collection[str],
) -> Iterator[Complaint]:
    """Yield a complaint for each model and client in a target that is not configured; None: all names are allowed.

    A target may also name a deployment as its model, ``provider/model``.
    """
    for name, target in slo.items():
        provider, _, rest = (target.model or "").partition("/")
        named = None if rest and provider in providers else target.model
        if named is not None and is_pattern(named):
            yield Complaint(("slo", name, "model"), f"{named!r} stands for many models: name one")
            continue
        for field, word, known in (("model", named, models), ("client", target.client, clients)):
            if (
                word is not None
                and known is not None
                and not (is_covered(word, known) if field == "model" else word in known)
            ):
                yield Complaint(("slo", name, field), f"there is no {field} {word!r}; {nearest(word, known)}")


# Checks of takeovers: whether some deployment is known to continue another's answer.

_TWO = 2  # the deployment that breaks, and the deployment that continues


def ways_of(settings: DeploymentSettings, vendor: Vendor | None, base_url: str | None) -> tuple[Way, ...] | None:
    """Return the ways in which a deployment continues an answer; None if it does not, or no way is known."""
    if settings.continues is not None:
        return None if settings.continues == "no" else (settings.continues,)
    if vendor is None:
        return None
    model = settings.deployment.partition("/")[2]
    is_there = vendor.continues_at is None or vendor.continues_at == (base_url or vendor.base_url or "").rstrip("/")
    return vendor.continues if is_there and traits_of(settings.same_as or model).prefill else None


def doubtful_takeovers(settings: Settings, catalog: Catalog) -> Iterator[str]:
    """Yield a warning for each model whose broken answers would not be finished although takeover is on."""
    for name, model in settings.models.items():
        if model.takeover.when is When.NEVER:
            continue
        enabled = [each for each in model.deployments if each.enabled]
        if enabled:
            enabled += _of_fallbacks(settings, model)
        if len(enabled) == 1:
            yield f"model {name!r}: takeover has no other deployment to finish an answer that breaks: add one"
        elif enabled:
            yield from _by_api(name, _Continuers(settings, catalog, enabled))


def _of_fallbacks(settings: Settings, model: ModelSettings) -> Iterator[DeploymentSettings]:
    """Yield the fallbacks' deployments that may finish a model's answer, without the model's own deployments."""
    own = {each.name for each in model.deployments}
    for fallback in model.fallbacks:
        other = settings.models.get(fallback.model)
        if other is None or Cause.FAILED not in fallback.causes:
            continue
        if other.takeover.when is not When.NEVER or "when" not in other.takeover.model_fields_set:
            yield from (each for each in other.deployments if each.enabled and each.name not in own)


class _Continuers:
    """The deployments of a model that continue answers, by API."""

    def __init__(self, settings: Settings, catalog: Catalog, deployments: Sequence[DeploymentSettings]) -> None:
        self._known: list[tuple[str, tuple[Api, ...], tuple[Way, ...]]] = []
        for each in deployments:
            name = each.deployment.partition("/")[0]
            provider = settings.providers[name]
            vendor = vendor_of(name, provider, catalog)
            apis = each.apis or provider.apis or apis_of(vendor, provider.kind, provider.base_url)
            self._known.append((each.name, apis, ways_of(each, vendor, provider.base_url) or ()))

    def speak(self, dialect: Dialect) -> bool:
        """Whether any of these deployments has the API."""
        return any(dialect.name in apis for _, apis, _ in self._known)

    def of(self, dialect: Dialect) -> list[str]:
        """Return the names of the deployments that continue answers of this API."""
        if dialect.continuing is None:
            return []
        by_itself, known = dialect.continues_by_itself, dialect.continuing.ways
        return [
            name for name, apis, ways in self._known if dialect.name in apis and (by_itself or known.intersection(ways))
        ]


def _by_api(name: str, continuers: _Continuers) -> Iterator[str]:
    able = {dialect: continuers.of(dialect) for dialect in DIALECTS.values() if continuers.speak(dialect)}
    works = [dialect.name for dialect, names in able.items() if len(names) >= _TWO]
    unfinished = [dialect.name for dialect, names in able.items() if not names]
    lonely = {dialect.name: names[0] for dialect, names in able.items() if len(names) == 1}
    only = f"takeover finishes only answers of {', '.join(works)}" if works else "takeover finishes few answers"
    declare = (
        "set `continues:` at deployments that do (the page 'What wins, and what if it breaks' of the documentation)"
    )
    if unfinished:
        yield f"model {name!r}: {only}, as none is known to continue those of {', '.join(unfinished)}: {declare}"
    for api, alone in lonely.items():
        yield f"model {name!r}: only {alone} is known to continue answers of {api}; none of its own is: {declare}"


# Checks the origins of web pages that may call.

# In the form that browsers send in `origin`: lower case, ASCII, no path, no default port.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_-]+(\.[a-z0-9_-]+)*)(:[1-9][0-9]{0,4})?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def cors(settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of ``cors``."""
    if settings.cors and not settings.clients and settings.keys == "file":
        yield Complaint(
            ("cors",),
            "needs clients: a web page calls with a key of its own, and without keys everybody may do everything; "
            "add clients with `holeshot keys new NAME`, or remove cors",
        )
    for index, origin in enumerate(settings.cors):
        if (problem := _cors_problem(origin)) is not None:
            yield Complaint(("cors", index), problem)


def _cors_problem(origin: str) -> str | None:
    """Return the problem of an origin; None if it is valid."""
    if "*" in origin:
        return (
            "names no origin: any page that is opened could then try keys here, from inside your network; "
            "list each origin, like https://chat.example.com"
        )
    if origin == "null":
        return (
            "'null' is the origin of every local file and every sandboxed frame: serve the page, and list its origin,"
            " like http://localhost:5173"
        )
    right = _corrected(origin)
    if right == origin:
        return None
    if right is None:
        return "is not an origin: write scheme://host or scheme://host:port, like https://chat.example.com"
    return f"is not an origin as browsers write it: write {right}"


def _corrected(text: str) -> str | None:
    """Return the origin that ``text`` probably means; None: ``text`` means no origin."""
    try:
        scheme = "http" if text.startswith(("localhost", "127.")) else "https"
        parts = urlsplit((text if "://" in text else f"{scheme}://{text}").strip())
        host, port = parts.hostname or "", parts.port
        host = f"[{host}]" if ":" in host else host.rstrip(".").encode("idna").decode()
    except ValueError:  # UnicodeError too
        return None
    shown = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    origin = f"{parts.scheme}://{host}{shown}"
    return origin if _ORIGIN.fullmatch(origin) else None


# Checks how models are raced: contradictions, and settings that work but may not be intended.

# Settings for one attempt at a time: no second attempt beside the first, even if that hangs.
ONE_AT_A_TIME: Mapping[str, Any] = MappingProxyType({"mode": Mode.SINGLE, "budget": 0.0})


def set_price(model: str) -> str:
    """Return the advice for an unknown price, with the place in the file."""
    return f"set price_per_mtok in {written(('models', model))}.deployments[]"


def contradictions(race: RaceSettings, explicit: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield contradictory settings, each with its field and the reason; ``explicit``: the fields that were set."""
    if race.hedge_delay_s is not None and race.mode is not Mode.HEDGE and "hedge_delay_s" in explicit:
        yield "hedge_delay_s", f"has an effect in mode hedge only, not in {race.mode}: set mode: hedge, or remove it"
    if race.keep_rival and race.mode is Mode.SINGLE and "keep_rival" in explicit:
        yield "keep_rival", "needs a second attempt, and mode single starts none: set mode: race, hedge or auto"
    if race.win_on is WinOn.VALID and race.mode is Mode.SINGLE:
        yield "win_on", "valid needs a second deployment to ask if an answer is not: set mode: race, hedge or auto"
    if race.objective is Objective.COST and race.ttft_ms is None:
        yield "objective", "cost chooses the cheapest that is fast enough: set ttft_ms"
    if race.ttft_ms is not None and race.ttft_ms < SOONEST_TTFT_MS:
        yield (
            "ttft_ms",
            f"{race.ttft_ms:g} cannot be met: no first token is measured below {SOONEST_TTFT_MS:g} ms",
        )
    if race.min_tok_s is not None and race.min_tok_s > FASTEST_TOK_S:
        yield (
            "min_tok_s",
            f"{race.min_tok_s:g} cannot be met: above {FASTEST_TOK_S:g} tok/s an answer counts as a burst",
        )


def impossible(name: str, model: ModelSettings, is_priced: Callable[[DeploymentSettings], bool]) -> Iterator[Complaint]:
    """Yield the problems of the race of model ``name``; ``is_priced`` returns whether a deployment's price is known."""
    race, place = model.race, ("models", name, "race")
    for field, reason in contradictions(race, race.model_fields_set):
        yield Complaint((*place, field), reason)
    count = len(model.deployments)
    if race.mode is Mode.RACE and race.width > count > 1:
        yield Complaint(
            (*place, "width"), f"{race.width} deployments cannot race, the model has {count}: add one, or lower width"
        )
    if race.objective is Objective.COST and not any(map(is_priced, model.deployments)):
        yield Complaint((*place, "objective"), f"cost needs a known price: {set_price(name)}")


def _unvalued(name: str, race: RaceSettings) -> Iterator[str]:
    if not race.value_usd_per_s:
        return
    if race.mode is not Mode.AUTO:
        yield f"model {name!r}: value_usd_per_s has no effect in mode {race.mode}: set mode: auto"
    elif race.objective is Objective.COST:
        yield f"model {name!r}: value_usd_per_s has no effect under the objective cost, which buys no seconds"
    elif not race.budget:
        yield f"model {name!r}: value_usd_per_s has no effect, because budget is 0: no extra attempt is started"


def doubtful_model(
    name: str, model: ModelSettings, *, priced: bool, counted: bool = False, bounded: bool = False
) -> Iterator[str]:
    """Yield warnings about a model's settings that work but may not be intended.

    ``priced``: the price of at least one deployment is known. ``bounded``: or the highest price of the vendor is known,
    which limits in dollars count. ``counted``: clients have limits in dollars.
    """
    race = model.race
    for limit in ("usd_per_day", "extra_usd_per_call", "value_usd_per_s"):
        is_set = race.value_usd_per_s if limit == "value_usd_per_s" else getattr(race, limit) is not None  # 0 is none
        if is_set and not priced:
            yield f"model {name!r}: {limit} has no effect, because no price is known: {set_price(name)}"
    if counted and not (priced or bounded):
        yield f"model {name!r}: clients' limits in dollars do not count it, as no price is known: {set_price(name)}"
    for limit in [] if priced or bounded else model.in_dollars:
        yield f"model {name!r}: its {limit} has no effect, because no price is known: {set_price(name)}"
    yield from _unvalued(name, race)
    if race.mode is Mode.RACE and race.width - 1 > race.budget:
        yield (
            f"model {name!r}: races of {race.width} start {race.width - 1} extra attempts a call, the budget pays for"
            f" {race.budget:g}: many will be narrower"
        )
    if race.hold and race.objective is Objective.COST:
        yield f"model {name!r}: hold has no effect under the objective cost, which compares no speeds"
    if race.keep_rival and not race.budget:
        yield f"model {name!r}: keep_rival has no rival to keep, because budget is 0: no second attempt is started"
    if race.win_on is WinOn.VALID and len(model.deployments) == 1 and race.mode is not Mode.RACE:
        yield f"model {name!r}: win_on: valid has no other deployment to ask: add one, or race this one with itself"
    elif race.win_on is WinOn.VALID and not race.budget:
        yield f"model {name!r}: win_on: valid asks no other deployment after an invalid answer, because budget is 0"
