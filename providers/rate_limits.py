"""Reads a provider's rate limits: the time to wait after a 429, and the headroom before the next one.

Vendors send the first in many formats: ``retry-after`` in seconds or as an HTTP date, ``retry-after-ms``, and per limit
the time of its reset, as a duration (OpenAI, Groq: ``1m2s``), an RFC 3339 instant (Anthropic) or a Unix time
(OpenRouter, in milliseconds).
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_BELIEVED_S = 60.0  # daily quotas send hours; a deployment is tried again every minute nevertheless

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNIT_SECONDS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_UNIX_S = 1e9  # larger numbers of seconds are instants
_UNIX_MS = 1e12  # even larger ones are instants in milliseconds


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the seconds to wait, 0 to 60, or None if the provider does not say.

    ``headers`` have lower-case names; ``now_s`` is Unix time. An explicit ``retry-after`` has priority over the reset
    times of single limits; of those, the latest of the exhausted ones counts, or the soonest if none is exhausted.
    """
    if (delay := _milliseconds(headers.get("retry-after-ms"))) is not None:
        return _believable(delay)
    if (text := headers.get("retry-after")) and (delay := _delay_s(text, now_s)) is not None:
        return _believable(delay)
    resets = []
    exhausted = []
    for name, text in headers.items():
        if "ratelimit" not in name or "reset" not in name or (delay := _delay_s(text, now_s)) is None:
            continue
        resets.append(delay)
        if headers.get(name.replace("reset", "remaining"), "").strip() == "0":
            exhausted.append(delay)
    if exhausted:
        return _believable(max(exhausted))
    return _believable(min(resets)) if resets else None


def headroom(headers: Mapping[str, str]) -> float | None:
    """Return the remaining share of the scarcest limit, 0 to 1, or None if no limit is sent with what remains of it.

    ``headers`` have lower-case names: OpenAI's ``x-ratelimit-remaining-requests`` and ``-tokens`` with ``-limit-``,
    Anthropic's ``anthropic-ratelimit-input-tokens-remaining`` with ``-limit``, and other vendors' in either format.
    """
    least: float | None = None
    for name, text in headers.items():
        if "ratelimit" not in name or "remaining" not in name:
            continue
        remaining, limit = _leading(text), _leading(headers.get(name.replace("remaining", "limit"), ""))
        if remaining is None or limit is None or limit <= 0:
            continue
        share = min(1.0, max(0.0, remaining / limit))
        least = share if least is None else min(least, share)
    return least


def parse_delay_s(text: str) -> float | None:
    """Return a duration like ``34s`` or ``1m2.5s`` in seconds, 0 to 60, or None if it is not one."""
    delay = _duration_s(text.strip())
    return None if delay is None else _believable(delay)


def _believable(delay_s: float) -> float:
    return min(max(delay_s, 0.0), LONGEST_BELIEVED_S)


def _delay_s(text: str, now_s: float) -> float | None:
    text = text.strip()
    number = _number(text)
    if number is not None:
        if number >= _UNIX_MS:
            return number / 1000 - now_s
        return number - now_s if number >= _UNIX_S else number
    if (delay := _duration_s(text)) is not None:
        return delay
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            instant = parse(text)
        except ValueError:
            continue
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() - now_s
    return None


def _duration_s(text: str) -> float | None:
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    return sum(float(count) * unit for count, unit in zip(match.groups(), _UNIT_SECONDS, strict=True) if count)


def _milliseconds(text: str | None) -> float | None:
    number = _number(text) if text else None
    return None if number is None else number / 1000


def _leading(text: str) -> float | None:
    """Return the number at the beginning of a value: in ``100, 100;w=60`` the window follows."""
    return _number(text.partition(",")[0].partition(";")[0])


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
