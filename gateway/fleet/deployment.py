"""A deployment as calls see it: one model at one provider, with timeouts, price and capabilities."""

from collections.abc import Iterable, Mapping

import msgspec

from providers.capabilities import UNKNOWN, Capabilities
from providers.catalog import Api
from providers.dialects.continuing import Way
from providers.dialects.dialect import Dialect
from providers.dialects.index import PIVOT
from providers.exchange import Upstream
from providers.masked_record import MaskedRecord
from providers.prices import Price


class Clocks(msgspec.Struct, frozen=True):
    """The four timeouts of one deployment, resolved. Seconds."""

    connect_s: float
    ttft_s: float
    stall_s: float
    total_s: float | None


class Deployment(MaskedRecord, frozen=True):
    """One model at one provider, ready to use."""

    name: str
    provider: str
    model: str  # the provider's name for it
    upstream: Upstream
    clocks: Clocks
    price: Price | None
    bills_after_disconnect: bool | None  # whether the whole answer is billed after a disconnect; None: unknown
    extra_body: Mapping[str, msgspec.Raw]
    upstream_stream: bool
    max_in_flight: int | None = None  # of this process
    capabilities: Capabilities = UNKNOWN
    apis: frozenset[Api] = frozenset((PIVOT.name,))
    speaks: tuple[Dialect, ...] = (PIVOT,)  # the dialects among its APIs; others are translated to the first one
    drop_params: bool = False
    extra_headers: tuple[tuple[str, str], ...] = ()  # names in lower case
    weight: float = 1.0
    canary: float | None = None
    vendor: str | None = None  # its provider's name in the catalog
    continues: tuple[Way, ...] | None = None  # how it is asked to continue another's answer; None: it does not
    takes_thoughts: bool = False  # its model needs its own reasoning back in later turns
    zdr: bool | None = None
    region: str | None = None
    quantization: str | None = None

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return its name; its headers may be secrets."""
        yield "name", self.name

    def spoken_to(self, dialect: Dialect) -> Dialect:
        """Return the dialect used for requests in ``dialect``: the same if it has it."""
        return dialect if dialect in self.speaks else self.speaks[0]

    def way_to_continue(self, dialect: Dialect) -> Way | None:
        """Return how it is asked to continue answers to requests in ``dialect``; None if it is not known to."""
        continuing = self.spoken_to(dialect).continuing
        if continuing is None:
            return None
        return next((way for way in self.continues or () if way in continuing.ways), None)

    def can_continue(self, dialect: Dialect) -> bool:
        """Whether it is known to continue answers to requests in ``dialect`` that another has begun."""
        return self.spoken_to(dialect).continues_by_itself or self.way_to_continue(dialect) is not None
