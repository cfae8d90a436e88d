"""The time limits of a call: of providers, and of the client."""

from typing import Annotated

from pydantic import Field

from gateway.settings.profiles import PROFILE_TIMEOUTS, Profile
from gateway.settings.section import Seconds, Section


class Timeouts(Section):
    """The four timeouts of an attempt; each has its own error kind. Unset ones: the model's, the provider's, these."""

    connect_timeout_s: Seconds | None = None
    ttft_timeout_s: Seconds | None = None  # from the launch, DNS included, to the first meaningful delta
    stall_timeout_s: Seconds | None = None  # between events; comments and pings do not count
    total_timeout_s: Seconds | None = None  # off by default: it cuts long answers


def profile_timeouts(profile: Profile | None) -> Timeouts:
    """Return the timeouts of a profile."""
    return Timeouts.model_validate(PROFILE_TIMEOUTS.get(profile, {}) if profile is not None else {})


class DefaultTimeouts(Timeouts):
    """The default timeouts; setting one of them leaves the others unchanged."""

    connect_timeout_s: Seconds | None = 5
    ttft_timeout_s: Seconds | None = 120  # reasoning models may need it, and the next candidate starts long before
    stall_timeout_s: Seconds | None = 120


class ClientTimeouts(Section):
    """The timeouts for the client's side of a call: a slower client is cut, so that it does not use resources."""

    # Time for a body, plus one second for every body_kib_per_s received: 64 MiB over a bad mobile network are slow in
    # all, but never as slow as a client that sends one byte a second on purpose.
    body_timeout_s: Seconds = 30.0
    body_kib_per_s: Annotated[float, Field(gt=0)] = 16.0
    # A client that reads nothing of its answer for this long is cut, and so is its upstream request. As long as
    # nginx's; a phone without network for a minute has lost its connection.
    write_timeout_s: Seconds = 60.0
