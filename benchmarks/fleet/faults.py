"""What is done to the installation while it carries the load, and when."""

from collections.abc import Callable

import msgspec

from benchmarks.fleet.installation import Installation


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A fault to come: what begins and what ends it, each a matter of milliseconds, at a share of the faulty load."""

    name: str
    begin: float
    begins: Callable[[Installation], None]
    end: float
    ends: Callable[[Installation], None] | None = None
    silences: str | None = None  # the provider that answers nobody meanwhile


class Fault(msgspec.Struct, frozen=True):
    """A fault that was, in seconds of the world's age."""

    name: str
    begin_s: float
    end_s: float
    silences: str | None


def plan() -> tuple[Planned, ...]:
    """Return the faults, in order, with time to recover between them."""
    return (
        Planned(
            name="replica killed",
            begin=0.08,
            begins=lambda installation: installation.gateways[0].kill(),
            end=0.20,
            ends=lambda installation: installation.gateways[0].start(),
        ),
        Planned(name="Redis flushed", begin=0.28, begins=Installation.flush_redis, end=0.28),
        Planned(
            name="alpha hangs",
            begin=0.46,
            begins=lambda installation: installation.fault("alpha", "hang"),
            end=0.62,
            ends=lambda installation: installation.fault("alpha", "none"),
            silences="alpha",
        ),
        Planned(
            name="charlie rate-limits",
            begin=0.74,
            begins=lambda installation: installation.fault("charlie", "limit"),
            end=0.90,
            ends=lambda installation: installation.fault("charlie", "none"),
            silences="charlie",
        ),
    )


def silent(faults: tuple[Fault, ...], age_s: float) -> frozenset[str]:
    """Return the providers that answer nobody at that time."""
    return frozenset(fault.silences for fault in faults if fault.silences and fault.begin_s <= age_s < fault.end_s)
