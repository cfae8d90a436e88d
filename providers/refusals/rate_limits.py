"""Reads a provider's rate limits: the time to wait after a 429, and the headroom before the next one.

Vendors send the time in many formats: ``retry-after`` in seconds or as an HTTP date, ``retry-after-ms``, and per limit
the time of its reset, as a duration (OpenAI, Groq: ``1m2s``), an RFC 3339 instant (Anthropic) or a Unix time
(OpenRouter, in milliseconds).
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from providers.refusals.complaints import as_list

# Of a rate, in words and codes: vendors and proxies say them with other statuses than 429 as well.
_OF_A_RATE = re.compile(
    r"\brate[ _-]?limit\w*[^.;!?\n]{0,40}\b(?:exceed|reach|hit)"
    r"|\b(?:exceed|reach|hit)\w*[^.;!?\n]{0,40}\brate[ _-]?limit"
    r"|\b(?:are|is|was|were|been|being) (?:temporarily )?(?:rate[ -]limited|throttled)"
    r"|\btoo many (?:api )?requests\b(?! in\b)"
    r"|\bqps (?:request )?limit|\brequest limit reached\b|\blimit exhausted\b"  # Baidu, Spark, Z.ai
    r"|\bslow down\b|\brate[ -]limit error\b|\brequests? (?:too frequent|too fast)"
    r"|\b(?:exceed|reach)\w*[^.;!?\n]{0,40}\b(?:requests|tokens|calls|queries) per (?:second|minute|hour|day)"
    r"|\b(?:requests|tokens|calls|queries) per (?:second|minute|hour|day)\b[^.;!?\n]{0,40}\b(?:exceed|reach)"
    # German, Dutch, French, Spanish and its relatives, Polish, Turkish, Russian
    r"|\bzu viele anfragen"
    r"|\b(?:raten|anfrage|nutzungs)-?(?:limit|begrenzung)\w*[^.;!?\n]{0,30}(?:überschritten|erreicht)"
    r"|\bte veel verzoeken|\btrop de (?:requêtes|demandes)"
    r"|\bl[íi]mites? (?:de|di|d['\u2019])[^.;!?\n]{0,30}\b(?:requêtes?|débit|taux|solicitudes?|peticiones|velocidad"
    r"|tasa|frecuencia|requisições|solicitações|taxa|richieste|frequenza)\b[^.;!?\n]{0,20}"
    r"(?:dépass|atteint|superad|excedid|alcanzad|atingid|superat|raggiunt)"
    r"|\b(?:demasiadas|muitas|troppe) (?:solicitudes|peticiones|solicitações|requisições|richieste)"
    r"|\bzbyt wiele (?:żądań|zapytań)|\bçok fazla istek|слишком много запросов|(?:лимит|частот)\w* запросов"
    # Chinese, Japanese, Korean
    r"|请求(?:过于|太|过|次数过)?(?:频繁|多)|請求過於頻繁|(?:频率|速率|并发数?)(?:限制|过高|超限|超出)|限流"
    r"|レート ?(?:制限|リミット)|リクエスト(?:数)?が多すぎ|リクエスト(?:数|回数)?の?(?:上限|制限)"
    r"|요청이 너무 많|요청 ?(?:한도|제한|횟수)|속도 ?제한",
    re.IGNORECASE,
)
_CODES_OF_A_RATE = re.compile(r"rate.?limit|too.?many.?requests|throttl|resource.?exhausted", re.IGNORECASE)
LONGEST_BELIEVED_S = 60.0  # daily quotas send hours; a deployment is tried again every minute nevertheless
# Who is asked to come back so much later has met a limit of a day or a week (router-for-me/CLIProxyAPI/issues/1655:
# 459202 s). Beyond a month the header is wrong.
_OF_DAYS_S = (3_600.0, 31 * 86_400.0)
NO_LIMIT = -1.0  # what some vendors send as the remainder if no limit is known

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNIT_SECONDS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_UNIX_S = 1e9  # larger numbers of seconds are instants
_UNIX_MS = 1e12  # even larger ones are instants in milliseconds
_WINDOW = re.compile(r"w(?:indow)?=(\d+)")  # of a limit, in seconds
_LONG_S = 120.0  # a minute's limit is whole again sooner
_NEARLY_USED_UP = 0.05  # a longer limit begins to count when this part of it is left


def is_of_a_rate(names: Iterable[str], said: str) -> bool:
    """Whether an error's codes, or its words (``said``), say that a rate is exceeded; "": they say more."""
    return bool(said) and (any(_CODES_OF_A_RATE.search(name) for name in names) or _OF_A_RATE.search(said) is not None)


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the seconds to wait, 0 to 60, or None if the provider does not say.

    ``headers`` have lower-case names; ``now_s`` is Unix time. An explicit ``retry-after`` has priority over the reset
    times of single limits; of those, the latest of the exhausted ones counts, or the soonest if none is exhausted.
    """
    if (delay := told_delay_s(headers, now_s)) is not None:
        return believable(delay)
    resets = []
    exhausted = []
    for name, text in headers.items():
        if "ratelimit" not in name or "reset" not in name or (delay := _delay_s(text, now_s)) is None:
            continue
        resets.append(delay)
        if headers.get(name.replace("reset", "remaining"), "").strip() == "0":
            exhausted.append(delay)
    if exhausted:
        return believable(max(exhausted))
    return believable(min(resets)) if resets else None


def told_delay_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the seconds after which the provider asks us to come back, however many."""
    if (delay := _milliseconds(headers.get("retry-after-ms"))) is not None:
        return delay
    return _delay_s(text, now_s) if (text := headers.get("retry-after")) else None


def is_of_days(wait_s: float | None) -> bool:
    """Whether a provider that asks to come back after ``wait_s`` has no room until tomorrow, or for longer."""
    return wait_s is not None and _OF_DAYS_S[0] <= wait_s <= _OF_DAYS_S[1]


def headroom(headers: Mapping[str, str]) -> float | None:
    """Return the remaining share of the scarcest limit, 0 to 1, or None if no limit is sent with its remainder.

    ``headers`` have lower-case names: OpenAI's ``x-ratelimit-remaining-requests`` and ``-tokens`` with ``-limit-``,
    Anthropic's ``anthropic-ratelimit-input-tokens-remaining`` with ``-limit``, and other vendors' in either format.

    The share is of a minute's limit. A day's quota (Groq's requests) that is half used does not limit a minute: such a
    quota counts only when little of it is left.
    """
    least: float | None = None
    for name, text in headers.items():
        if "ratelimit" not in name or "remaining" not in name:
            continue
        remaining, limit = _leading(text), _leading(headers.get(name.replace("remaining", "limit"), ""))
        if remaining is None or limit is None or remaining == NO_LIMIT or limit <= 0:
            continue
        share = min(1.0, max(0.0, remaining / limit))
        if least is None or share < least:
            if _is_long(name, headers):
                share = min(1.0, share / _NEARLY_USED_UP)
            least = share if least is None else min(least, share)
    return least


def _is_long(name: str, headers: Mapping[str, str]) -> bool:
    """Whether a limit is of more than a minute, by its name, its window, or the time until the limit is whole again.

    ``name`` is the remainder's header. An instant says nothing without the answer's ``date``.
    """
    if any(word in name for word in ("day", "hour", "month")):
        return True
    window = _WINDOW.search(headers.get(name.replace("remaining", "limit"), ""))
    if window is not None:
        return float(window[1]) > _LONG_S
    reset = headers.get(name.replace("remaining", "reset"), "")
    seconds = _delay_s(reset, math.inf)
    if seconds == -math.inf and (sent_at_s := _delay_s(headers.get("date", ""), 0.0)) is not None:
        seconds = _delay_s(reset, sent_at_s)
    return seconds is not None and seconds > _LONG_S


def parse_delay_s(text: str) -> float | None:
    """Return a duration like ``34s`` or ``1m2.5s`` in seconds, 0 to 60; None if ``text`` is no duration."""
    delay = duration_s(text.strip())
    return None if delay is None else believable(delay)


def believable(delay_s: float) -> float:
    """Return ``delay_s``, 0 to 60."""
    return min(max(delay_s, 0.0), LONGEST_BELIEVED_S)


def _delay_s(text: str, now_s: float) -> float | None:
    text = text.strip()
    number = _number(text)
    if number is not None:
        if number >= _UNIX_MS:
            return number / 1000 - now_s
        return number - now_s if number >= _UNIX_S else number
    if (delay := duration_s(text)) is not None:
        return delay
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            instant = parse(text)
        except (ValueError, OverflowError):  # the latter for a year of a dozen digits
            continue
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() - now_s
    return None


def duration_s(text: str) -> float | None:
    """Return the seconds of a duration, such as ``1m2s``; None: the text is none."""
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


def google_retry_delay_s(error: Mapping[str, Any]) -> float | None:
    """Return the delay in a google.rpc.RetryInfo, which Gemini sends instead of a ``retry-after`` header."""
    delay = google_wait_s(error)
    return None if delay is None else believable(delay)


def google_wait_s(error: Mapping[str, Any]) -> float | None:
    """Return the delay that Google states, however long; None: none."""
    for detail in as_list(error.get("details")):
        match detail:
            case {"retryDelay": str(delay)}:
                return duration_s(delay.strip())
    return None


def is_of_day(error: Mapping[str, Any]) -> bool:
    """Whether a google.rpc.QuotaFailure names a limit of a day (google-gemini/gemini-cli/issues/8437)."""
    return any(
        isinstance(violation, dict) and "PerDay" in str(violation.get("quotaId"))
        for detail in as_list(error.get("details"))
        if isinstance(detail, dict)
        for violation in as_list(detail.get("violations"))
    )
