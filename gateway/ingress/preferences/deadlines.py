"""Deadlines in headers, ours and llm-d's: for the first token, and for the time per token after it.

llm-d's router calls them service level objectives: ``x-llm-d-slo-ttft-ms`` is the wanted time to the first token,
``x-llm-d-slo-tpot-ms`` the wanted time per output token after it. Clients written for it work unchanged.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gateway.errors import InvalidRequest
from gateway.ingress.preferences.override import NOTHING, RaceOverride
from gateway.ingress.preferences.provider_preferences import Preferences
from gateway.settings.slo import FASTEST_TOK_S, SOONEST_TTFT_MS

DEADLINE = "x-holeshot-deadline-ms"  # for the first token, from the receipt of the request
LLM_D_TTFT = "x-llm-d-slo-ttft-ms"  # the same
LLM_D_TPOT = "x-llm-d-slo-tpot-ms"  # per token after the first: 1000 / (tok/s)

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_MS_PER_S = 1000.0
_BY_HEADERS: Mapping[str, tuple[float, str]] = {
    DEADLINE: (SOONEST_TTFT_MS, "no first token is measured sooner"),
    LLM_D_TTFT: (SOONEST_TTFT_MS, "no first token is measured sooner"),
    LLM_D_TPOT: (_MS_PER_S / FASTEST_TOK_S, "tokens that come faster count as a burst"),
}  # the minimum in milliseconds, and why


def read_deadlines(headers: Mapping[str, str]) -> RaceOverride:
    """Return the race settings the headers ask for; of two deadlines the stricter. ``NOTHING`` if there are none.

    Raises:
        InvalidRequest: a value is not a number of milliseconds, or too small.

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
    """Return the body's settings with those of ``deadlines`` that are stricter."""
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
