"""How long whatever takes part in a call may take: the providers' side, and the client's."""

from typing import Annotated

from pydantic import Field

from gateway.settings.profiles import PROFILE_TIMEOUTS, Profile
from gateway.settings.section import Seconds, Section


class Timeouts(Section):
    """The four clocks of an attempt; each has an error kind of its own. Unset ones fall back: model, provider, here."""

    connect_timeout_s: Seconds | None = None
    ttft_timeout_s: Seconds | None = None  # launch, DNS included, to first meaningful delta
    stall_timeout_s: Seconds | None = None  # between events; comments and pings do not count
    total_timeout_s: Seconds | None = None  # off by default: it cuts long answers


def profile_timeouts(profile: Profile | None) -> Timeouts:
    """Return the clocks that go with a profile."""
    return Timeouts.model_validate(PROFILE_TIMEOUTS.get(profile, {}) if profile is not None else {})


class DefaultTimeouts(Timeouts):
    """The clocks of whoever sets none; naming one of them leaves the others as they are."""

    connect_timeout_s: Seconds | None = 5
    ttft_timeout_s: Seconds | None = 120  # reasoning models need it long, and the next candidate starts long before
    stall_timeout_s: Seconds | None = 120


class ClientTimeouts(Section):
    """The clocks of the client's side of a call: whoever is slower than this is cut, so that it holds nothing up."""

    # A body may take so long, and a second more for every body_kib_per_s of it that came: 64 MiB over a bad mobile
    # network are slow as a whole, but not at any time as slow as somebody who sends a byte a second on purpose.
    body_timeout_s: Seconds = 30.0
    body_kib_per_s: Annotated[float, Field(gt=0)] = 16.0
    # A client that takes no byte of its answer for so long is cut, and what is made for it at a provider with it. As
    # long as nginx's; a phone that loses its network for a minute has lost its connection.
    write_timeout_s: Seconds = 60.0
