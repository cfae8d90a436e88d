"""The meaning of a refusal to the client's program: one word for the many codes and words of vendors.

For example, 529 of Anthropic, 503 "The engine is currently overloaded" and 429 with the code 1305 are ``overloaded``.
"""

import re
from enum import StrEnum
from http import HTTPStatus

from providers.refusals.accounts import is_spent
from providers.refusals.content import is_refused_by_filter
from providers.refusals.errors import ErrorKind, UpstreamError
from providers.refusals.too_long import is_too_long
from providers.refusals.unknown_models import bars_model, names_model


class Meaning(StrEnum):
    """What a refusal means. Each is a row of the table in ``dialects/meanings.py``."""

    TOO_LONG = "too_long"  # the prompt, or the answer asked for beside it, has more tokens than the context
    OVERLOADED = "overloaded"  # no room at the moment, for anybody
    RATE = "rate"  # a limit that has room again soon
    DAY = "day"  # a limit of requests or tokens that has no room until tomorrow
    SPENT = "spent"  # a limit in dollars that the gateway keeps
    UNPAID = "unpaid"  # the account at the provider has no money left
    CONTENT = "content"  # a filter does not let the text through
    KEY = "key"  # the client's own key is missing, wrong or expired
    GONE = "gone"  # there is no such model, or not for this account


_OVERLOADED_STATUS = 529  # Anthropic's
# OpenAI's codes, Anthropic's type, Zhipu's code, and the words of these and of Google:
# developers.openai.com/api/docs/guides/error-codes, platform.claude.com/docs/en/api/errors,
# docs.z.ai/api-reference/api-code, ai.google.dev/gemini-api/docs/troubleshooting, read on 2026-11-29. Moonshot and
# Zhipu say so with 429 (platform.moonshot.ai/docs/api/chat, read on 2026-11-27).
_OVERLOADED_BY_429 = frozenset(
    {
        *("engine_overloaded", "engine_overloaded_error", "1305"),
        "queue_exceeded",  # Cerebras: theopenco/llmgateway, in its list of retried codes
        *("3505", "service_tier_capacity_exceeded"),  # Mistral
        "serveroverloaded",  # Volcengine: volcengine.com/docs/82379/1299023
    }
)
_CODES_OF_OVERLOAD = _OVERLOADED_BY_429 | {"overloaded_error", "server_is_overloaded", "slow_down"}
_OF_OVERLOAD = re.compile(
    r"\boverload(?:ed)?\b|\b(?:at|over) (?:maximum |full )?capacity\b|\bhigh (?:demand|traffic|load)\b"
    r"|\b(?:no|out of|insufficient|not enough) (?:\w+ )?capacity\b|\b(?:is|are|server|service|model) (?:\w+ )?busy\b"
    r"|\bcapacity (?:is )?(?:temporarily )?(?:exceeded|exhausted)|\bqueue is full\b|\bpending requests exceeded\b"
    # In other languages, of servers whose operators have translated their words.
    r"|\büberlastet|\bausgelastet|\bsurchargée?s?\b|\bsaturée?s?\b|\bsobrecarr?eg?ad|\bsaturad[oa]s?\b|\bsovraccaric"
    r"|\bprzeciąż|\bpřetíž|\böverbelast|\boverbelast|перевантаж"
    r"|перегружен|繁忙|访问量过大|過負荷|负载过高|过载|负载已?饱和|混雑|混み合|과부하|혼잡",
    re.IGNORECASE,
)
_OF_LIMITS = re.compile(r"\b(?:rate|limit\w*|quota|too many|per (?:second|minute|hour))\b", re.IGNORECASE)
# Also in GitHub's words, "50 per 86400s exceeded for UserByModelByDay"; limits of a week or a month likewise.
_OF_DAYS = re.compile(
    r"\bper (?:day|86400s)\b|\b[RT]PD\b|\bdaily\b|ByDay\b|\b(?:weekly|monthly)\b.{0,20}\b(?:limit|quota|usage)\b"
    r"|[今每][天日]",
    re.IGNORECASE,
)


def meaning_of(error: UpstreamError) -> Meaning | None:
    """Return what a provider's error means to the program that asked; None: the meaning of its kind."""
    # Words that may be quoted from the request count too: only the client that sent the request reads the meaning.
    text, names = error.said or error.message, {name.lower() for name in error.names}
    match error.kind:
        case ErrorKind.BAD_REQUEST:
            is_content = is_refused_by_filter(error.status, names, text)
            is_long = error.is_too_long or (not error.said and is_too_long(text, error.names))
            meaning, holds = (Meaning.TOO_LONG, True) if is_long else (Meaning.CONTENT, is_content)
        case ErrorKind.RATE_LIMITED if error.findings.is_of_day or _OF_DAYS.search(text) is not None:
            return Meaning.DAY
        case ErrorKind.RATE_LIMITED:
            is_said = _OF_OVERLOAD.search(text) is not None and _OF_LIMITS.search(text) is None
            is_overloaded = is_said or not _OVERLOADED_BY_429.isdisjoint(names)
            return Meaning.OVERLOADED if is_overloaded else Meaning.RATE
        case ErrorKind.PROVIDER_AUTH:
            is_unpaid = error.status == HTTPStatus.PAYMENT_REQUIRED or any(
                is_spent({"message": text, "code": name}, any_codes=True, any_words=True) for name in names or {""}
            )
            meaning, holds = (Meaning.UNPAID, True) if is_unpaid else (Meaning.GONE, bars_model(error))
        case ErrorKind.NOT_FOUND:
            meaning, holds = Meaning.GONE, names_model(error)
        case ErrorKind.SERVER_ERROR | ErrorKind.STREAM_ERROR:
            is_said = _OF_OVERLOAD.search(text) is not None
            is_coded = error.status == _OVERLOADED_STATUS or not _CODES_OF_OVERLOAD.isdisjoint(names)
            is_long = is_too_long(text, error.names)  # of an answer that had begun
            meaning, holds = (Meaning.TOO_LONG, True) if is_long else (Meaning.OVERLOADED, is_said or is_coded)
        case _:
            return None
    return meaning if holds else None
