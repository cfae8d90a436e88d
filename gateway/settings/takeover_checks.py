"""Checks of takeovers: whether anybody is known to continue an answer that another has begun."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from gateway.settings.deployment import DeploymentSettings
from gateway.settings.model import Settings
from gateway.settings.presets import Catalog, vendor_of
from gateway.settings.takeover import When
from providers.catalog import Api, Vendor, apis_of
from providers.dialects.continuing import Way
from providers.dialects.dialect import Dialect
from providers.dialects.index import DIALECTS

_TWO = 2  # the one that breaks, and the one that goes on


def ways_of(settings: DeploymentSettings, vendor: Vendor | None, base_url: str | None) -> tuple[Way, ...] | None:
    """Return how a deployment is asked to continue an answer; unknown means that it is not asked."""
    if settings.continues is not None:
        return None if settings.continues == "no" else (settings.continues,)
    if vendor is None:
        return None
    model = settings.deployment.partition("/")[2]
    is_there = vendor.continues_at is None or vendor.continues_at == (base_url or vendor.base_url or "").rstrip("/")
    is_able = vendor.continues_models is None or any(fnmatchcase(model, each) for each in vendor.continues_models)
    return vendor.continues if is_there and is_able else None


def doubtful_takeovers(settings: Settings, catalog: Catalog) -> Iterator[str]:
    """Yield where answers that break would not be finished, although that is switched on."""
    for name, model in settings.models.items():
        if model.takeover.when is When.NEVER:
            continue
        enabled = [each for each in model.deployments if each.enabled]
        if len(enabled) == 1:
            yield f"model {name!r}: takeover has no other deployment to finish an answer that breaks: add one"
        elif enabled:
            yield from _by_api(name, _Continuers(settings, catalog, enabled))


class _Continuers:
    """Which of a model's deployments continue answers of an API."""

    def __init__(self, settings: Settings, catalog: Catalog, deployments: Sequence[DeploymentSettings]) -> None:
        self._known: list[tuple[str, tuple[Api, ...], tuple[Way, ...]]] = []
        for each in deployments:
            name = each.deployment.partition("/")[0]
            provider = settings.providers[name]
            vendor = vendor_of(name, provider, catalog)
            apis = each.apis or provider.apis or apis_of(vendor, provider.kind)
            self._known.append((each.name, apis, ways_of(each, vendor, provider.base_url) or ()))

    def speak(self, dialect: Dialect) -> bool:
        """Whether any of them has the API."""
        return any(dialect.name in apis for _, apis, _ in self._known)

    def of(self, dialect: Dialect) -> list[str]:
        """Return those that continue its answers."""
        if dialect.continuing is None:
            return []
        by_itself, known = dialect.continues_by_itself, dialect.continuing.ways
        return [
            name for name, apis, ways in self._known if dialect.name in apis and (by_itself or known.intersection(ways))
        ]


def _by_api(name: str, continuers: _Continuers) -> Iterator[str]:
    able = {dialect: continuers.of(dialect) for dialect in DIALECTS.values() if continuers.speak(dialect)}
    works = [dialect.name for dialect, names in able.items() if len(names) >= _TWO]
    nobody = [dialect.name for dialect, names in able.items() if not names]
    lonely = {dialect.name: names[0] for dialect, names in able.items() if len(names) == 1}
    only = f"takeover finishes only answers of {', '.join(works)}" if works else "takeover finishes few answers"
    declare = "set `continues:` at deployments that do (docs/takeover.md)"
    if nobody:
        yield f"model {name!r}: {only}, as none is known to continue those of {', '.join(nobody)}: {declare}"
    for api, alone in lonely.items():
        yield f"model {name!r}: only {alone} is known to continue answers of {api}; none of its own is: {declare}"
