"""Workload profiles: named presets of race settings and timeouts for the usual kinds of work.

A profile is selected per model, per client or per request; explicit settings take precedence.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Profile(StrEnum):
    """The kind of a workload."""

    CHAT = "chat"  # a person reads the stream
    VOICE = "voice"  # a person listens: the first token counts most, and speech must not pause
    AGENT = "agent"  # a program waits for whole answers
    BATCH = "batch"  # no person waits: the cheapest


# Reading needs about 30 tok/s, speech 100 with the lowest TTFT.
PROFILES: Mapping[Profile, Mapping[str, object]] = MappingProxyType(
    {
        Profile.CHAT: {"objective": "reading", "min_tok_s": 30.0},
        Profile.VOICE: {
            "objective": "reading",
            "reading_tok_s": 100.0,
            "min_tok_s": 100.0,
            "mode": "race",
            "width": 2,
        },
        Profile.AGENT: {"objective": "completion"},
        Profile.BATCH: {"objective": "cost", "budget": 0.0, "ttft_ms": 30_000.0},
    }
)

# A listener hangs up after ten silent seconds; for a batch a cut answer is worse than a slow one.
PROFILE_TIMEOUTS: Mapping[Profile, Mapping[str, float]] = MappingProxyType(
    {
        Profile.VOICE: {"ttft_timeout_s": 10.0, "stall_timeout_s": 10.0},
        Profile.BATCH: {"ttft_timeout_s": 600.0, "stall_timeout_s": 600.0},
    }
)
