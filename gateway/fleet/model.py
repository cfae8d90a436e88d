"""A model as calls see it: a public name, the deployments behind it, and how they are raced."""

from collections.abc import Iterable, Mapping
from math import inf

import msgspec

from gateway.fleet.deployment import Deployment
from gateway.parameters import Parameters
from gateway.settings.model import FallbackSettings, RaceSettings
from gateway.settings.profiles import Profile
from providers.dialects.dialect import Dialect
from providers.prices import Price


class Common(msgspec.Struct, frozen=True):
    """What all deployments of a model can do, so that for most calls nobody need look at each of them."""

    speaks: frozenset[Dialect]  # natively, and nothing of a request is lost on any of them
    context_tokens: float  # the shortest that is known
    max_output_tokens: float  # likewise

    @classmethod
    def of(cls, deployments: Iterable[Deployment]) -> "Common":
        """Return what ``deployments`` have in common."""
        each = list(deployments)
        spoken = [set(one.speaks) if one.upstream.accepts_all_parameters else set() for one in each]
        common = set.intersection(*spoken) if spoken else set()
        return cls(
            # Of requests in other dialects, thoughts may have to be left out.
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
    payer: str = ""  # whose usd_per_day its extra attempts are charged to: its own name, or the first of a comma list
    prices: Mapping[str, Price] = {}  # by deployment, where known
    limits: Mapping[str, int] = {}  # max_in_flight by deployment, where there is one
    weights: Mapping[str, float] = {}  # by deployment, those that are not 1
    canaries: Mapping[str, float] = {}  # the share of calls by deployment, of those that are given one
    bills_losers: frozenset[str] = frozenset()  # deployments that bill a whole answer although one hung up
    fallbacks: tuple[FallbackSettings, ...] = ()
    keepalive_s: float | None = None
    parameters: Parameters | None = None  # what requests are given, and kept to
    profiles: Mapping[Profile, "Model"] = {}  # the same model as each profile would have it: its race and its clocks

    def under(self, profile: Profile | None) -> "Model":
        """Return the model as ``profile`` would have it; as configured without one, or under its own."""
        return self if profile is None or profile is self.race.profile else self.profiles.get(profile, self)
