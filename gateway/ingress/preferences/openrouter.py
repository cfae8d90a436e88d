"""OpenRouter's ``provider`` object: its fields, and what each means for us."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import msgspec

from gateway.calls import Objective
from gateway.errors import InvalidRequest
from gateway.settings.deployment import DataPolicy

OPENROUTER = "openrouter"
MOST_SLUGS = 200  # in one list: there are fewer providers, and each name is compared with each deployment
UNKNOWN_QUANTIZATION = "unknown"  # OpenRouter's value for deployments whose quantization is unknown

_SORTED_BY: Mapping[str, Objective] = {
    "throughput": Objective.COMPLETION,
    "latency": Objective.FIRST_TOKEN,
    "price": Objective.COST,
}
# Of several percentiles, the one nearest to what the leaderboard uses: p90 for TTFT, p50 for decode
# speed.
_LATENCY_AT = ("p90", "p99", "p75", "p50")
_THROUGHPUT_AT = ("p50", "p75", "p90", "p99")
_PRICES = ("prompt", "completion")


class MaxPrice(msgspec.Struct, frozen=True):
    """The highest accepted prices, in US dollars per million tokens; None: no limit."""

    prompt: float | None = None
    completion: float | None = None


class _Percentiles(msgspec.Struct):
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p99: float | None = None


class _Sort(msgspec.Struct):
    by: Literal["throughput", "latency", "price"] | None = None
    partition: Literal["model", "none"] | None = None


_Cutoff = float | _Percentiles | None


class Provider(msgspec.Struct):
    """OpenRouter's object as it is sent; ``unmet`` checks the fields that are not listed here."""

    order: list[str] | None = None
    only: list[str] | None = None
    ignore: list[str] | None = None
    allow_fallbacks: bool | None = None
    require_parameters: bool | None = None
    data_collection: Literal["allow", "deny"] | None = None
    zdr: bool | None = None
    quantizations: list[str] | None = None
    regions: list[str] | None = None  # ours: OpenRouter has separate hosts for this
    sort: Literal["throughput", "latency", "price"] | _Sort | None = None
    preferred_max_latency: _Cutoff = None  # seconds
    preferred_min_throughput: _Cutoff = None  # tokens per second
    max_price: dict[str, float | str | None] | None = None  # US dollars per million tokens

    def slugs(self, name: Literal["order", "only", "ignore"]) -> tuple[str, ...] | None:
        """Return one of the lists of providers; None if it is missing or empty."""
        listed: list[str] = getattr(self, name) or []
        if len(listed) > MOST_SLUGS:
            refuse(f"provider.{name}", f"must hold at most {MOST_SLUGS} names")
        if any(not slug.strip() for slug in listed):
            refuse(f"provider.{name}", "must not hold an empty name")
        return tuple(listed) or None

    @property
    def objective(self) -> Objective | None:
        """The objective that its sort order stands for."""
        by = self.sort.by if isinstance(self.sort, _Sort) else self.sort
        return None if by is None else _SORTED_BY[by]

    @property
    def ttft_ms(self) -> float | None:
        """The preferred time to first token."""
        latency_s = _cutoff("preferred_max_latency", self.preferred_max_latency, _LATENCY_AT)
        return None if latency_s is None else latency_s * 1000

    @property
    def min_tok_s(self) -> float | None:
        """The preferred decode speed."""
        return _cutoff("preferred_min_throughput", self.preferred_min_throughput, _THROUGHPUT_AT)

    @property
    def policy(self) -> DataPolicy:
        """The required data policy. ``data_collection: deny`` means zero retention: nothing weaker is configured."""
        keeps_nothing = self.zdr or self.data_collection == "deny"
        quantizations = tuple(each.lower() for each in self.quantizations or ())
        return DataPolicy(
            zdr=True if keeps_nothing else None,
            regions=tuple(self.regions) if self.regions else None,
            quantizations=quantizations or None,
        )

    @property
    def most(self) -> MaxPrice | None:
        """The highest accepted prices."""
        most = {name: _price(name, price) for name, price in (self.max_price or {}).items() if name in _PRICES}
        return None if all(price is None for price in most.values()) else MaxPrice(**most)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Preferences that have no effect here."""
        return ("provider.sort",) if isinstance(self.sort, _Sort) and self.sort.partition == "none" else ()


def unmet(provider: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requirements in OpenRouter's object that cannot be guaranteed or are unknown."""
    for name, value in provider.items():
        if name not in Provider.__struct_fields__ and value not in (None, False, [], {}):
            yield f"provider.{name}"
    for name, price in (provider.get("max_price") or {}).items():
        if name not in _PRICES and price is not None:
            yield f"provider.max_price.{name}"


def refuse(param: str, message: str) -> NoReturn:
    """Refuse a request because of its field ``param``.

    Raises:
        InvalidRequest: always.

    """
    raise InvalidRequest(f"'{param}' {message}", param=param)


def _cutoff(name: str, cutoff: _Cutoff, at: Sequence[str]) -> float | None:
    if isinstance(cutoff, _Percentiles):
        cutoff = next((value for percentile in at if (value := getattr(cutoff, percentile)) is not None), None)
    if cutoff is not None and not cutoff > 0:
        refuse(f"provider.{name}", "must be greater than 0")
    return cutoff


def _price(name: str, price: float | str | None) -> float | None:
    if price is None:
        return None
    try:
        usd = float(price)
    except ValueError:
        usd = -1.0
    if not usd >= 0:
        refuse(f"provider.max_price.{name}", "must be US dollars per million tokens, 0 or more")
    return usd
