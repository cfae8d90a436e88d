"""Checks across settings: names that must exist, keys that must be set, hosts that must not be open."""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import msgspec
from pydantic import SecretStr

from gateway.core.calls import Objective
from gateway.settings.deployment import DeploymentSettings, ProviderSettings
from gateway.settings.document import Complaint, Place, nearest
from gateway.settings.doors import unnamed
from gateway.settings.issuer_checks import check_issuers
from gateway.settings.model import ModelSettings, Settings
from gateway.settings.patterns import STAR, is_covered, is_pattern
from gateway.settings.presets import Catalog, Datasheets, kind_of, no_key_for, vendor_of
from gateway.settings.section_checks import (
    check_clients,
    check_page,
    check_targets,
    check_tracing,
    cors,
    doubtful_page,
    doubtful_targets,
    impossible,
)
from gateway.settings.sections import LONGEST_KEY, profile_timeouts
from gateway.settings.urls import is_loopback, path_of_one_api, without_api, without_secrets
from gateway.topology import RedisUrlError, read_url
from providers import (
    Api,
    DatasheetTable,
    ProviderKind,
    Vendor,
    apis_of,
    has_azure_identity,
    has_botocore,
    has_google_auth,
    has_litellm,
    how_to_install,
    traits_of,
)
from providers.dialects import DIALECTS
from providers.http import checked

_DATABASES = ("postgresql", "postgres", "postgresql+asyncpg", "sqlite", "sqlite+aiosqlite")
_NO_DEFAULTS = frozenset(
    {"background", "model", "n", "response_format", "store", "stream", "stream_options", "text", "tools"}
).union(dialect.requests.prompt for dialect in DIALECTS.values())
# The APIs of each kind of provider, if not all.
_POSSIBLE: Mapping[ProviderKind, tuple[Api, ...]] = {
    "bedrock": apis_of(None, "bedrock"),
    "invoke": apis_of(None, "invoke"),
    "vertex": apis_of(None, "vertex"),
    "litellm": apis_of(None, "litellm"),
}
_OF_THE_BODY = frozenset({"accept-encoding", "content-encoding", "content-type"})
_NO_KEY = "has a character that no key has, such as a line break or a curly quote: look where it is set"
_QUOTES = "\"'`"
_QUOTED = (
    "is in quotes, which are no part of a key: remove them where it is set (`docker run --env-file` passes them on,"
    " compose and shells do not)"
)
_SCHEME_OF_KEY = re.compile(r"\s*Bearer\b", re.IGNORECASE)
_WITH_SCHEME = "begins with 'Bearer', which the gateway adds itself: write the key alone"
OF_KEYS = re.compile(r"(^|-)(authorization|key|token|secret)$", re.IGNORECASE)  # names of headers
_BLANKS = "has blanks around it: remove them where it is set"
_NO_HEADER = "cannot be sent as a header field: is there a line break in it?"


def check(settings: Settings, catalog: Catalog) -> Iterator[Complaint]:
    """Yield every problem of ``settings`` as a whole, in the order of the file."""
    yield from _server(settings)
    yield from _stores(settings)
    for name, provider in settings.providers.items():
        yield from _provider(name, provider, catalog, is_brought=_is_brought(name, settings, catalog))
    for name in settings.models:
        yield from _model(name, settings, catalog)
    unread = [*_prices(settings)]
    yield from unread or _races(settings, catalog)
    yield from check_clients(settings)
    yield from _tenants(settings, catalog)
    yield from check_issuers(settings)
    yield from cors(settings)
    yield from check_page(settings)
    yield from check_tracing(settings)
    yield from check_targets(settings)


def doubtful(settings: Settings) -> Iterator[str]:
    """Yield warnings about settings that work but may not be intended, apart from races."""
    yield from _limits(settings)
    yield from _fleet_limits(settings)
    yield from doubtful_page(settings)
    yield from doubtful_targets(settings)
    for name, model in settings.models.items():
        enabled = [deployment for deployment in model.deployments if deployment.enabled]
        if not enabled:
            others = "its fallbacks answer" if model.fallbacks else "its calls fail"
            yield f"model {name!r}: all its deployments are disabled, so {others}"
            continue
        yield from _lonely_canaries(name, enabled)
        if model.cache_marks is not None and not any(
            (traits := traits_of(each.same_as or each.deployment, "openai")).family == "claude" or traits.breakpoints
            for each in enabled
        ):
            yield f"model {name!r}: cache_marks does nothing here: it is for Claude, and for GPT from 5.6 to 6.1"
        longest_s = max(_ttft_timeout_s(settings, model, deployment) for deployment in enabled)
        if model.keepalive_s is not None and model.keepalive_s > longest_s:
            yield (
                f"model {name!r}: keepalive_s {model.keepalive_s:g} is longer than the limit for a first token"
                f" (ttft_timeout_s {longest_s:g}): lower it, or the first comment comes too late"
            )


def _server(settings: Settings) -> Iterator[Complaint]:
    if not settings.clients and settings.keys == "file" and not is_loopback(settings.host):
        yield Complaint(
            ("host",),
            f"{settings.host!r} lets others spend your keys: "
            "add clients with `holeshot keys new NAME`, or bind 127.0.0.1",
        )
    if settings.workers > 1 and settings.redis_url is None:
        yield Complaint(("workers",), "several workers need a leaderboard to share: set redis_url, or workers: 1")
    if settings.workers > 1 and _is_sqlite(settings.database_url):
        yield Complaint(("workers",), "SQLite has one writer: set database_url to a postgresql:// URL, or workers: 1")


def _stores(settings: Settings) -> Iterator[Complaint]:
    if _scheme(settings.database_url.get_secret_value()) not in _DATABASES:
        yield Complaint(("database_url",), "must begin with postgresql:// or sqlite:///")
    if settings.reports_database_url is not None:
        yield from _replica(settings.database_url, settings.reports_database_url)
    if settings.redis_url is not None:
        try:
            read_url(settings.redis_url.get_secret_value())
        except RedisUrlError as error:
            yield Complaint(("redis_url",), str(error))


def _replica(primary: SecretStr, replica: SecretStr) -> Iterator[Complaint]:
    place: Place = ("reports_database_url",)
    if _scheme(replica.get_secret_value()) not in _DATABASES or _is_sqlite(replica):
        yield Complaint(place, "must begin with postgresql://")
    elif _is_sqlite(primary):
        yield Complaint(place, "names a replica of database_url, and SQLite has none: remove it, or use Postgres")


def _is_sqlite(url: SecretStr) -> bool:
    return _scheme(url.get_secret_value()).startswith("sqlite")


def _provider(name: str, provider: ProviderSettings, catalog: Catalog, *, is_brought: bool) -> Iterator[Complaint]:
    """Yield the problems of a provider. ``is_brought``: clients may bring keys for it, so it needs no key itself."""
    place: Place = ("providers", name)
    if "/" in name or "," in name:
        yield Complaint(
            place, "a provider's name cannot have a slash or a comma: deployments are written provider/model"
        )
    if provider.base_url is not None and _scheme(provider.base_url) not in ("http", "https"):
        yield Complaint((*place, "base_url"), "must begin with http:// or https://")
    elif provider.base_url is not None and not _has_host(provider.base_url):
        yield Complaint((*place, "base_url"), "is not a URL: write it like https://api.example.com/v1")
    elif (
        provider.base_url is not None
        and kind_of(name, provider, catalog) != "litellm"
        and (path := path_of_one_api(provider.base_url)) is not None
    ):
        right = without_secrets(without_api(provider.base_url))
        yield Complaint((*place, "base_url"), f"ends with {path}, which the gateway adds itself: write {right}")
    vendor = vendor_of(name, provider, catalog)
    if provider.preset is not None and vendor is None:
        yield Complaint(
            (*place, "preset"), f"{provider.preset!r} is not in the catalog; {nearest(provider.preset, catalog)}"
        )
        return
    kind = kind_of(name, provider, catalog)
    yield from _apis((*place, "apis"), provider.apis, kind)
    yield from _libraries(place, provider, vendor, kind)
    yield from _no_keys(place, provider, may_have_lines=kind == "litellm")
    if kind != "litellm":  # litellm sends keys and headers in ways of its own
        yield from _unsendable(place, provider)
    known_url = provider.base_url or (vendor.base_url if vendor else None)
    has_own = vendor is not None and kind == vendor.kind and kind != "litellm"  # no address of another vendor is theirs
    if known_url is None and (has_own or kind in {"bedrock", "invoke", "openai_compatible", "vertex"}):
        if vendor is not None:
            yield Complaint(place, f"{vendor.title} has no base_url in the catalog: set yours")
        else:
            yield Complaint(place, f"is not in the catalog: set its base_url, or a preset; {nearest(name, catalog)}")
    own_host = provider.base_url is None or (vendor is not None and vendor.base_url is None)
    if vendor is not None and vendor.key_required and own_host and not (provider.has_key or is_brought):
        variables = " or ".join(vendor.key_env) or f"api_key of provider '{name}'"
        yield Complaint(place, f"{vendor.title} needs a key: set {variables}, or remove provider '{name}'")


def _libraries(
    place: Place, provider: ProviderSettings, vendor: Vendor | None, kind: ProviderKind
) -> Iterator[Complaint]:
    """Yield a complaint for each package that a provider needs and that is not installed."""
    if kind == "litellm" and not has_litellm():
        yield Complaint(place, f"needs litellm: {how_to_install('litellm')}")
    if provider.keys:
        return
    own = vendor if vendor is not None and kind == vendor.kind else None
    if ((vendor is not None and vendor.auth == "google") or kind == "vertex") and not has_google_auth():
        yield Complaint(place, f"needs google-auth: {how_to_install('vertex')}")
    if kind in {"bedrock", "invoke"} and not has_botocore():
        yield Complaint(place, f"needs a key of Bedrock's, or botocore: {how_to_install('bedrock')}")
    if own is not None and own.signs and not has_botocore():
        yield Complaint(place, f"needs a key of {own.title}, or botocore: {how_to_install('bedrock')}")
    if own is not None and own.tokens == "azure" and not has_azure_identity():
        yield Complaint(place, f"needs a key of {own.title}, or azure-identity: {how_to_install('foundry')}")


def lacking(vendor: Vendor) -> str | None:
    """Return what is missing to ask a vendor without a key, such as a package; None: nothing."""
    return next((told.message for told in _libraries((), ProviderSettings(), vendor, vendor.kind)), None)


def _no_keys(place: Place, provider: ProviderSettings, *, may_have_lines: bool) -> Iterator[Complaint]:
    """Yield a complaint for each key with characters other than printable ASCII; the key is not shown."""
    keys: dict[Place, SecretStr | None] = {(*place, "api_key"): provider.api_key}
    keys |= {(*place, "api_keys", name): key for name, key in provider.api_keys.items()}
    for here, secret in keys.items():
        yield from _no_key(here, secret, may_have_lines=may_have_lines)


def _no_key(here: Place, secret: SecretStr | None, *, may_have_lines: bool = False) -> Iterator[Complaint]:
    key = "" if secret is None else secret.get_secret_value()
    if key:
        if not key.isascii() or not (key.isprintable() or may_have_lines):
            yield Complaint(here, _NO_KEY)
        elif key[0] in _QUOTES:
            yield Complaint(here, _QUOTED)
        elif _SCHEME_OF_KEY.match(key) is not None:
            yield Complaint(here, _WITH_SCHEME)
        elif key != key.strip(" \t"):
            yield Complaint(here, _BLANKS)


def _is_brought(provider: str, settings: Settings, catalog: Catalog) -> bool:
    """Whether clients may bring keys for a provider."""
    are_in_settings = any(provider in each.provider_keys for each in settings.clients.values())
    if not (settings.tenant_keys.header or are_in_settings):
        return False
    return not no_key_for(provider, settings.providers[provider], catalog)


def _tenants(settings: Settings, catalog: Catalog) -> Iterator[Complaint]:
    """Yield the problems of keys of providers that clients have in their settings."""
    for name, client in settings.clients.items():
        for provider, key in client.provider_keys.items():
            place: Place = ("clients", name, "provider_keys", provider)
            if provider not in settings.providers:
                yield Complaint(place, f"there is no provider {provider!r}; {nearest(provider, settings.providers)}")
            elif reason := no_key_for(provider, settings.providers[provider], catalog):
                yield Complaint(place, f"no key can be brought for {provider!r}: {reason}")
            elif not key.get_secret_value():
                yield Complaint(place, "is empty: set it, or remove it")
            elif len(key.get_secret_value()) > LONGEST_KEY:
                yield Complaint(place, f"is longer than {LONGEST_KEY} characters, as no key is")
            else:
                yield from _no_key(place, key)


def _unsendable(place: Place, provider: ProviderSettings) -> Iterator[Complaint]:
    """Yield a complaint for each header of a provider that no request could have, and for two logins at once."""
    for header, value in provider.headers.items():
        yield from _header((*place, "headers", header), header, value.get_secret_value())
    if provider.organization is not None and not _may_be_sent("openai-organization", provider.organization):
        yield Complaint((*place, "organization"), _NO_HEADER)
    url = provider.base_url
    if url is not None and provider.has_key and _has_host(url) and urlsplit(url).username is not None:
        yield Complaint((*place, "base_url"), "names a user, and there is a key: keep one of the two")


def _header(place: Place, header: str, value: str) -> Iterator[Complaint]:
    """Yield a complaint if no request could have this header, or if it is a key in quotes, maybe after a scheme."""
    if not _may_be_sent(header, value):
        yield Complaint(place, _NO_HEADER)
    elif OF_KEYS.search(header) is not None and value.rpartition(" ")[2].startswith(tuple(_QUOTES)):
        yield Complaint(place, _QUOTED)


def _may_be_sent(header: str, value: str) -> bool:
    try:
        checked({header: value})
    except ValueError:
        return False
    return True


def _model(name: str, settings: Settings, catalog: Catalog) -> Iterator[Complaint]:
    place: Place = ("models", name)
    if "," in name:
        yield Complaint(place, "a model's name cannot have a comma: requests use commas for lists of deployments")
    yield from _stars(place, name, settings.models[name])
    seen: dict[str, int] = {}
    for index, deployment in enumerate(settings.models[name].deployments):
        here = (*place, "deployments", index)
        provider = deployment.deployment.partition("/")[0]
        if (problem := unnamed(deployment, name, settings, catalog)) is not None:
            yield Complaint((*here, "deployment"), problem)
        elif provider not in settings.providers:
            yield Complaint(
                here,
                f"{deployment.deployment!r}: there is no provider {provider!r};"
                f" {_known_provider(provider, settings, catalog)}",
            )
        if deployment.name in seen:
            yield Complaint(
                here, f"{deployment.name!r} is listed twice: remove one, or give it another name with `as:`"
            )
        seen[deployment.name] = index
        if provider in settings.providers:
            kind = kind_of(provider, settings.providers[provider], catalog)
            yield from _apis((*here, "apis"), deployment.apis, kind)
            yield from _headers((*here, "extra_headers"), deployment)
    yield from _answering(place, name, settings)


def _stars(place: Place, name: str, model: ModelSettings) -> Iterator[Complaint]:
    """Yield a complaint for each star in the names of a model and its deployments that stands for nothing."""
    if STAR in name[:-1]:
        yield Complaint(place, "a star in a model's name stands at its end, once: for all names that begin so")
    for index, each in enumerate(model.deployments):
        here = (*place, "deployments", index)
        provider, _, name_there = each.deployment.partition("/")
        if STAR in provider or name_there.count(STAR) > 1:
            yield Complaint(here, f"{each.deployment!r} may have one star, in the model's name")
        elif STAR in name_there and not is_pattern(name):
            yield Complaint(
                here, f"{each.deployment!r} has a star, but the model's name has none: end that in a star too"
            )
        if STAR in (each.as_ or ""):
            yield Complaint((*here, "as"), "is one name for all of them: write it without a star")
        limit = each.max_in_flight if each.max_in_flight_fleet is None else each.max_in_flight_fleet
        if STAR in name_there and each.as_ is None and limit is not None:
            yield Complaint(
                here, f"{each.deployment!r} stands for many, and max_in_flight is of one: give all one name with `as:`"
            )


def _known_provider(provider: str, settings: Settings, catalog: Catalog) -> str:
    """Return a hint: the provider that may be meant, or how to configure one, with the vendors of the catalog."""
    hint = nearest(provider, [*settings.providers, *catalog])
    return hint if "?" in hint else f"give it a section in `providers:` with its base_url; {nearest(provider, catalog)}"


def _answering(place: Place, name: str, settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of a model's defaults, fallbacks and canaries."""
    for parameter in _NO_DEFAULTS.intersection(settings.models[name].defaults):
        yield Complaint((*place, "defaults", parameter), "can only be set by a request: remove it")
    for index, fallback in enumerate(settings.models[name].fallbacks):
        here = (*place, "fallbacks", index)
        if is_pattern(fallback.model):
            yield Complaint(here, f"{fallback.model!r} stands for many models: name one")
        elif not is_covered(fallback.model, settings.models):
            yield Complaint(here, f"there is no model {fallback.model!r}; {nearest(fallback.model, settings.models)}")
        elif fallback.model == name:
            yield Complaint(here, "a model cannot be its own fallback")
    shares = [deployment.canary or 0.0 for deployment in settings.models[name].deployments if deployment.enabled]
    if sum(shares) > 1:
        yield Complaint(place, f"its canaries get {sum(shares):.0%} of the calls; the most is 100%")


def _apis(place: Place, apis: tuple[Api, ...] | None, kind: ProviderKind) -> Iterator[Complaint]:
    possible = _POSSIBLE.get(kind)
    wrong = [] if possible is None else [api for api in apis or () if api not in possible]
    if possible is not None and wrong:
        yield Complaint(
            place,
            f"providers of kind {kind} support only {' and '.join(possible)}, not {', '.join(wrong)}:"
            " remove it, or give the provider a base_url and kind: openai_compatible if it has OpenAI's API",
        )


def _headers(place: Place, deployment: DeploymentSettings) -> Iterator[Complaint]:
    """Yield a complaint for each header of a deployment that cannot be sent, or that the gateway sets itself."""
    for header, value in deployment.extra_headers.items():
        if header.lower() in _OF_THE_BODY:
            yield Complaint((*place, header), "is set by the gateway: remove it")
            continue
        yield from _header((*place, header), header, value.get_secret_value())


def _limits(settings: Settings) -> Iterator[str]:
    """Yield notes on ``max_in_flight`` that is divided between workers, or shared by models with different values."""
    by_deployment: dict[str, dict[str, int | None]] = {}  # deployment → model → value
    for name, model in settings.models.items():
        for each in model.deployments:
            by_deployment.setdefault(each.name, {})[name] = each.max_in_flight
    workers = settings.workers
    for deployment, by_model in by_deployment.items():
        limits = [limit for limit in by_model.values() if limit is not None]
        if not limits:
            continue
        limit = min(limits)
        if len(set(by_model.values())) > 1:
            yield f"{deployment}: {', '.join(by_model)} share its max_in_flight of {limit}"
        if workers > 1 and limit < workers:
            yield (
                f"{deployment}: max_in_flight {limit} is less than workers {workers}: each worker takes one, so"
                f" {workers} may be in flight; set fewer workers"
            )
        elif workers > 1:
            share = limit // workers
            of_all = f"each of the {workers} workers takes {share}, {share * workers} in all"
            yield f"{deployment}: of max_in_flight {limit} {of_all}"


def _fleet_limits(settings: Settings) -> Iterator[str]:
    """Yield notes on ``max_in_flight_fleet`` that does not hold, has no effect, or differs between models."""
    by_deployment: dict[str, dict[str, int | None]] = {}  # deployment → model → value
    own: dict[str, int] = {}
    for name, model in settings.models.items():
        for each in model.deployments:
            by_deployment.setdefault(each.name, {})[name] = each.max_in_flight_fleet
            if each.max_in_flight is not None:
                own[each.name] = min(each.max_in_flight, own.get(each.name, each.max_in_flight))
    for deployment, by_model in by_deployment.items():
        limit = min((limit for limit in by_model.values() if limit is not None), default=None)
        if limit is None:
            continue
        if len(set(by_model.values())) > 1:
            yield f"{deployment}: {', '.join(by_model)} share its max_in_flight_fleet of {limit}"
        if settings.redis_url is None:
            yield (
                f"{deployment}: max_in_flight_fleet {limit} is counted in Redis: set redis_url, as without it each"
                f" replica may have {limit} in flight"
            )
        if own.get(deployment, 0) > limit:
            yield (
                f"{deployment}: max_in_flight {own[deployment]} of one replica is more than max_in_flight_fleet {limit}"
                " of all: remove it, or set less"
            )


def _lonely_canaries(name: str, enabled: list[DeploymentSettings]) -> Iterator[str]:
    """Yield a warning if all deployments are canaries, unless their shares add up to all calls, as in an A/B test."""
    shares = [deployment.canary or 0.0 for deployment in enabled]
    if not all(shares):
        return
    if len(enabled) == 1:
        yield (
            f"model {name!r}: {enabled[0].name} is the only enabled deployment, and a canary, so it gets every call:"
            " remove `canary`, or add a deployment"
        )
    elif sum(shares) < 1:
        yield (
            f"model {name!r}: all its deployments are canaries, but their shares are only {sum(shares):.0%} in all:"
            " remove `canary` from one, or add a deployment"
        )


def _ttft_timeout_s(settings: Settings, model: ModelSettings, deployment: DeploymentSettings) -> float:
    """Return the first-token timeout of ``deployment`` in calls of ``model``, in seconds."""
    provider = settings.providers[deployment.deployment.partition("/")[0]]
    levels = (
        deployment.timeouts,
        model.timeouts,
        profile_timeouts(model.race.profile),
        provider.timeouts,
        settings.timeouts,
    )
    return next((level.ttft_timeout_s for level in levels if level.ttft_timeout_s is not None), float("inf"))


def _prices(settings: Settings) -> Iterator[Complaint]:
    """Yield the problems of the operator's file of prices; the file may not be there yet."""
    if settings.prices.file is None:
        return
    try:
        DatasheetTable.shipped(settings.prices.file).source()
    except OSError as error:
        yield Complaint(("prices", "file"), f"cannot be read: {error.strerror or error}")
    except msgspec.DecodeError as error:
        yield Complaint(
            ("prices", "file"), f"is no table of prices in litellm's format ({error}): correct it, or delete it"
        )


def _races(settings: Settings, catalog: Catalog) -> Iterator[Complaint]:
    def is_priced(item: DeploymentSettings) -> bool:
        if STAR in item.deployment:
            return True  # each name that is asked for may be
        name = item.deployment.partition("/")[0]
        provider = settings.providers.get(name)
        vendor = None if provider is None else vendor_of(name, provider, catalog)
        return datasheets.of(vendor, item).price is not None

    by_cost = any(model.race.objective is Objective.COST for model in settings.models.values())
    datasheets = Datasheets(
        settings, catalog, DatasheetTable.shipped(settings.prices.file) if by_cost else DatasheetTable(None)
    )
    for name, model in settings.models.items():
        yield from impossible(name, model, is_priced)


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else ""


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # an incomplete IPv6 address, or an invalid port
        return False
