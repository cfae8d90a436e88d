"""Deadlines in headers: when a request wants its first token, and how fast the later ones; ours, and those of llm-d.

llm-d's router calls them service level objectives: ``x-llm-d-slo-ttft-ms`` is the time to the first token that is
aimed at, ``x-llm-d-slo-tpot-ms`` the time per output token after it. Clients written for it need not be changed.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gateway.errors import InvalidRequest
from gateway.ingress.preferences.override import NOTHING, RaceOverride
from gateway.ingress.preferences.provider_preferences import Preferences
from gateway.settings.races import FASTEST_TOK_S, SOONEST_TTFT_MS

DEADLINE = "x-holeshot-deadline-ms"  # the first token, since the request was received
LLM_D_TTFT = "x-llm-d-slo-ttft-ms"  # the same
LLM_D_TPOT = "x-llm-d-slo-tpot-ms"  # per token after the first: 1000 / (tok/s)

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_MS_PER_S = 1000.0
_BY_HEADERS: Mapping[str, tuple[float, str]] = {
    DEADLINE: (SOONEST_TTFT_MS, "no first token is measured sooner"),
    LLM_D_TTFT: (SOONEST_TTFT_MS, "no first token is measured sooner"),
    LLM_D_TPOT: (_MS_PER_S / FASTEST_TOK_S, "tokens that come faster count as a burst"),
}  # the least milliseconds, and why


def read_deadlines(headers: Mapping[str, str]) -> RaceOverride:
    """Return what the headers ask of a race; of two deadlines the stricter one. ``NOTHING`` itself without any.

    Raises:
        InvalidRequest: a value is no number of milliseconds, or cannot be met by anybody.

    """
    deadlines = [ms for name in (DEADLINE, LLM_D_TTFT) if (ms := _milliseconds(headers, name)) is not None]
    tpot_ms = _milliseconds(headers, LLM_D_TPOT)
    if not deadlines and tpot_ms is None:
        return NOTHING
    return RaceOverride(
        ttft_ms=min(deadlines, default=None), min_tok_s=None if tpot_ms is None else _MS_PER_S / tpot_ms
    )


Said = TypeVar("Said", RaceOverride, Preferences)


def tightened(said: Said, deadlines: RaceOverride) -> Said:
    """Return what the body says with ``deadlines``, where those are stricter."""
    ttft_ms = [ms for ms in (said.ttft_ms, deadlines.ttft_ms) if ms is not None]
    min_tok_s = [tok_s for tok_s in (said.min_tok_s, deadlines.min_tok_s) if tok_s is not None]
    return msgspec.structs.replace(said, ttft_ms=min(ttft_ms, default=None), min_tok_s=max(min_tok_s, default=None))


def _milliseconds(headers: Mapping[str, str], name: str) -> float | None:
    said = headers.get(name)
    if said is None:
        return None
    if _NUMBER.fullmatch(said.strip()) is None:
        raise InvalidRequest(f"{name!r} must be a number of milliseconds, as in 800", param=name)
    ms, (least_ms, reason) = float(said), _BY_HEADERS[name]
    if ms < least_ms:
        raise InvalidRequest(f"{name!r} must be at least {least_ms:g}, not {ms:g}: {reason}", param=name)
    return ms
