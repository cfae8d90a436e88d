"""All models of one version of the configuration, leased by calls and replaced by reloads.

A fleet is built from one version of the settings and never changes. A reload builds the next one, which takes over the
upstreams (with their connections) of unchanged providers. A call leases the fleet it began with; upstreams that no
newer fleet took over are closed when the last lease ends.
"""

import asyncio
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from gateway.errors import Forbidden, ModelNotFound
from gateway.fleet.model import Model
from gateway.fleet.resolving import FindDatasheet, Resolver, limits
from gateway.settings.joint import joined
from gateway.settings.model import ModelSettings, Settings
from gateway.settings.provider import ProviderSettings
from providers.catalog import Vendor
from providers.exchange import Upstream

ADHOC_KEPT = 256  # ad-hoc models kept: their names come from clients, so the number is limited

# The last argument: further secrets to be masked in messages, besides the provider's.
OpenUpstream = Callable[[str, ProviderSettings, Vendor | None, tuple[str, ...]], Upstream]


class Fleet:
    """All models of one version of the configuration."""

    def __init__(
        self,
        settings: Settings,
        catalog: Mapping[str, Vendor],
        *,
        open_upstream: OpenUpstream,
        find_datasheet: FindDatasheet,
        previous: "Fleet | None" = None,
    ) -> None:
        self._settings = settings
        self.limits = limits(settings)
        self._leases = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._upstreams: dict[str, Upstream] = {}
        self._resolver = Resolver(settings, catalog, self._upstreams, find_datasheet)
        for name, provider in settings.providers.items():
            secrets = self._secrets_sent_to(name)
            kept = previous.upstream_of(name, provider, secrets) if previous is not None else None
            self._upstreams[name] = kept or open_upstream(name, provider, self._resolver.vendor(name), secrets)
        self.models: Mapping[str, Model] = {
            name: self._resolver.model(name, model) for name, model in settings.models.items()
        }
        self._adhoc: dict[str, Model] = {}

    def find(self, name: str, *, adhoc: bool) -> Model:
        """Return the model called ``name``; for a comma list of models, all of them as one.

        With ``adhoc`` also ``provider/model`` and comma lists of these.

        Raises:
            ModelNotFound: with the nearest known names.
            Forbidden: it names deployments, but ``adhoc`` is false.
            InvalidRequest: these models cannot be used as one.

        """
        model = self.models.get(name) or self._joint_model(name) or (self._adhoc_model(name) if adhoc else None)
        if model is None and not adhoc and self._deployments_in(name):
            raise Forbidden(
                f"this key may not name deployments directly, as {name!r} does: ask for one of GET /v1/models, or have"
                " the operator set 'adhoc: true' for it",
                param="model",
            )
        if model is None:
            raise ModelNotFound(self._explain_unknown(name, adhoc=adhoc), param="model")
        return model

    def upstream_of(self, name: str, settings: ProviderSettings, secrets: tuple[str, ...]) -> Upstream | None:
        """Return the upstream of provider ``name`` if it was opened with the same settings and ``secrets``."""
        same = self._settings.providers.get(name) == settings and self._secrets_sent_to(name) == secrets
        return self._upstreams[name] if same else None

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Every provider's upstream, by the provider's name."""
        return self._upstreams

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Keep this fleet's upstreams open while a call uses them."""
        self.hold()
        try:
            yield
        finally:
            self.let_go()

    def hold(self) -> None:
        """Keep this fleet's upstreams open until ``let_go``."""
        self._leases += 1
        self._idle.clear()

    def let_go(self, _task: object = None) -> None:
        """Undo one ``hold``."""
        self._leases -= 1
        if not self._leases:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no call uses this fleet."""
        await self._idle.wait()

    async def aclose(self, successor: "Fleet | None" = None) -> None:
        """Close the upstreams that ``successor`` did not take over."""
        kept = set(map(id, successor.upstreams.values())) if successor is not None else set()
        for upstream in self._upstreams.values():
            if id(upstream) not in kept:
                await upstream.aclose()

    def _secrets_sent_to(self, provider: str) -> tuple[str, ...]:
        """Return the values of the extra headers of all deployments at ``provider``."""
        headers = (
            value.get_secret_value()
            for model in self._settings.models.values()
            for each in model.deployments
            if each.deployment.startswith(f"{provider}/")
            for value in each.extra_headers.values()
        )
        return tuple(sorted(set(headers)))

    def _joint_model(self, name: str) -> Model | None:
        parts = [part.strip() for part in name.split(",")]
        if len(parts) == 1 or not all(part in self.models for part in parts):
            return None
        if (known := self._adhoc.get(name)) is not None:
            return known
        return self._remembered(name, joined([self._settings.models[part] for part in parts]), payer=parts[0])

    def _remembered(self, name: str, settings: ModelSettings, *, payer: str = "") -> Model:
        if len(self._adhoc) >= ADHOC_KEPT:
            self._adhoc.pop(next(iter(self._adhoc)))
        model = self._adhoc[name] = self._resolver.model(name, settings, adhoc=True, payer=payer)
        return model

    def _adhoc_model(self, name: str) -> Model | None:
        if (known := self._adhoc.get(name)) is not None:
            return known
        parts = self._deployments_in(name)
        if not parts:
            return None
        settings = ModelSettings.model_validate({"deployments": [self._resolver.facts_of(part) for part in parts]})
        return self._remembered(name, settings)

    def _deployments_in(self, name: str) -> list[str]:
        """Return the deployments in a comma list of ``provider/model``, without duplicates; empty if it is none."""
        parts = list(dict.fromkeys(part.strip() for part in name.split(",")))
        for part in parts:
            provider, _, name_there = part.partition("/")
            if not name_there or provider not in self._settings.providers:
                return []
        return parts

    def _explain_unknown(self, name: str, *, adhoc: bool) -> str:
        near = difflib.get_close_matches(name, self.models, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(map(repr, near))}?"
            if near
            else f"known models: {', '.join(self.models) or 'none'}"
        )
        provider, slash, _ = name.partition("/")
        if adhoc and slash and provider not in self._settings.providers:
            hint += f"; {provider!r} is not a configured provider ({', '.join(self._settings.providers) or 'none'})"
        return f"the model {name!r} does not exist; {hint}"
