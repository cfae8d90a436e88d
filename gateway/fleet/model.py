"""A model as calls see it: a public name, the deployments behind it, and how they are raced."""

from collections.abc import Iterable, Mapping
from math import inf

import msgspec

from gateway.fleet.deployment import Deployment
from gateway.parameters import Parameters
from gateway.settings.fallbacks import FallbackSettings
from gateway.settings.model import RaceSettings
from gateway.settings.profiles import Profile
from gateway.settings.takeover import TakeoverSettings
from providers.dialects.dialect import Dialect
from providers.prices import Price


class Common(msgspec.Struct, frozen=True):
    """What all deployments of a model have in common: for most calls, single deployments need not be checked."""

    speaks: frozenset[Dialect]  # dialects that all speak natively, without losing any part of a request
    context_tokens: float  # the shortest known
    max_output_tokens: float  # likewise

    @classmethod
    def of(cls, deployments: Iterable[Deployment]) -> "Common":
        """Return what ``deployments`` have in common."""
        each = list(deployments)
        spoken = [set(one.speaks) if one.upstream.accepts_all_parameters else set() for one in each]
        common = set.intersection(*spoken) if spoken else set()
        return cls(
            # Requests in other dialects may need their reasoning removed.
            frozenset(dialect for dialect in common if dialect.requests.without_foreign_thoughts is None),
            min((one.capabilities.context_tokens or inf for one in each), default=inf),
            min((one.capabilities.max_output_tokens or inf for one in each), default=inf),
        )


class Model(msgspec.Struct, frozen=True):
    """A public name and the deployments behind it, by name, in the order of the configuration."""

    name: str
    deployments: Mapping[str, Deployment]
    race: RaceSettings
    adhoc: bool = False
    common: Common = Common(frozenset(), 0, 0)
    payer: str = ""  # whose usd_per_day pays for its extra attempts: its own name, or the first of a comma list
    prices: Mapping[str, Price] = {}  # by deployment, if known
    limits: Mapping[str, int] = {}  # max_in_flight by deployment, if set
    weights: Mapping[str, float] = {}  # by deployment, those that are not 1
    canaries: Mapping[str, float] = {}  # the shares of canaries, by deployment
    bills_losers: frozenset[str] = frozenset()  # deployments that bill the whole answer after a disconnect
    usd_per_day: float | None = None  # of all calls
    dearest: Price | None = None  # of those known, if that of another deployment is not
    fallbacks: tuple[FallbackSettings, ...] = ()
    keepalive_s: float | None = None
    takeover: TakeoverSettings = TakeoverSettings()
    parameters: Parameters | None = None  # defaults, maximums and system prefix of requests
    profiles: Mapping[Profile, "Model"] = {}  # the same model under each profile: its race and timeouts

    def under(self, profile: Profile | None) -> "Model":
        """Return the model under ``profile``; as configured if that is None or its own profile."""
        return self if profile is None or profile is self.race.profile else self.profiles.get(profile, self)
