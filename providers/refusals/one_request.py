"""Refusals of one request alone, for its content, tier, size or choice of vendors: a table of vendors' words.

Such a refusal says nothing of the key or the deployment: other requests have answers there. So it is a ``bad_request``,
which counts against neither. For example, 503 while the request asks for ``service_tier: "flex"``: there is no room in
the cheap tier. Statuses and codes are read before words. ``fields`` are fields that the client itself must have set:
where the vendor's words do not say what is refused, these fields show it.
"""

import re
from collections.abc import Collection, Mapping
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final

import msgspec

from providers.refusals.answer_limits import size_of
from providers.refusals.blame import blames_request, is_within_answer
from providers.refusals.content import is_of_filter
from providers.refusals.errors import ErrorKind, UpstreamError
from providers.refusals.unknown_models import is_unknown, says_gone
from providers.refusals.wrong_api import lacks_path


class RefusedPart(Enum):
    """The part of a request that is refused."""

    CONTENT = auto()  # refused by a filter: one other vendor is asked, as filters differ
    SIZE = auto()  # too large for this key: the other keys and all other deployments are asked
    TERMS = auto()  # the terms of service, such as a tier: all other deployments are asked


class OneRequestRule(msgspec.Struct, frozen=True):
    """One refusal of one vendor; all conditions that are set must hold."""

    about: RefusedPart
    source: str  # a page, and the day it was read
    statuses: Collection[int] = ()
    codes: Collection[str] = ()  # or types, in lower case
    words: str = ""  # a pattern
    but: str = ""  # a pattern of messages that have the same words and another meaning
    fields: Mapping[str, Collection[str]] = {}  # one of these fields, with one of its values; no values: any value


_READ = "read on 2026-11-29"
_CHEAP = ("flex",)  # tiers that are served when there is room
_TIER = {"service_tier": _CHEAP, "serviceTier": _CHEAP}

RULES: Final = (
    # Of size.
    OneRequestRule(
        RefusedPart.SIZE,  # Anthropic
        f"github.com/anthropics/claude-code/issues/42616, Wei-Shaw/sub2api/issues/572, {_READ}",
        statuses=(429,),
        words=r"^extra usage is required for (?:long context|1m context)",
    ),
    # Of a tier: others of the same key are served.
    OneRequestRule(
        RefusedPart.TERMS,  # Groq
        f"console.groq.com/docs/flex-processing, {_READ}",
        statuses=(498,),
        but=r"\btokens?\b.{0,20}\b(?:invalid|expired|required)\b|\b(?:invalid|expired|missing)\b.{0,12}\btoken\b",
    ),
    OneRequestRule(
        RefusedPart.TERMS,  # Groq: the limits of a tier are its own
        f"console.groq.com/docs/flex-processing, HunorLaczko/ha-groq-cloud-api/issues/27, {_READ}",
        statuses=(429,),
        words=r"\bservice tier `?flex\b",
        fields=_TIER,
    ),
    OneRequestRule(
        RefusedPart.TERMS,  # OpenAI, and Azure, with 429; Google, with 503 or 429
        f"developers.openai.com/api/docs/guides/flex-processing, ai.google.dev/gemini-api/docs/flex-inference, {_READ}",
        statuses=(429, 503),
        but=r"rate.?limit|\bper (?:minute|day|hour)|\b[RT]P[MD]\b|\bquota\b",
        fields=_TIER,
    ),
    OneRequestRule(
        RefusedPart.TERMS,  # Groq and OpenAI within an answer, where no status says so
        f"console.groq.com/docs/flex-processing, developers.openai.com/api/docs/guides/flex-processing, {_READ}",
        codes=("capacity_exceeded", "resource_unavailable"),
        fields=_TIER,
    ),
    # Of what the request allows an aggregator, or needs of the aggregator's vendors.
    OneRequestRule(
        RefusedPart.TERMS,  # OpenRouter: "but your request's provider.only preference permits only: anthropic"
        f"openrouter.ai/docs/guides/routing/provider-selection, {_READ}",
        statuses=(404,),
        words=r"^no allowed providers are available.{0,400}\byour request's provider",
    ),
    OneRequestRule(
        RefusedPart.TERMS,  # OpenRouter, in words that do not say whose choice it was (farion1231/cc-switch/issues/995)
        f"github.com/agent0ai/agent-zero/issues/1255, {_READ}",
        statuses=(404,),
        words=r"^(?:no allowed providers are available|all providers have been ignored|no endpoints found)",
        but=r"\byour account's",
        fields={"provider": ()},
    ),
    OneRequestRule(
        RefusedPart.TERMS,  # OpenRouter: tools, pictures, parameters
        f"github.com/Routstr/routstr-core/issues/554, {_READ}",
        statuses=(404,),
        words=r"^no endpoints found that ",
    ),
)

_LONGEST: Final = 4096  # characters of a message that are searched
_LONGEST_NUMBER: Final = 9  # digits
_NUMBER: Final = re.compile(r"\d{3,9}")
# Of these statuses no words are compared. 400, 413 and 422 blame the request already; a 401 is about the key, whatever
# words the message quotes.
_CLEAR: Final = frozenset({400, 413, 422, 401})
_PATTERNS: Final = tuple(
    (
        each,
        re.compile(each.words, re.IGNORECASE | re.DOTALL) if each.words else None,
        re.compile(each.but, re.IGNORECASE) if each.but else None,
    )
    for each in RULES
)
_WORDS_OF_CODES: Final = re.compile(r"[\s.]+")


def refused(status: int | None, error: Mapping[str, Any], message: str) -> RefusedPart | None:
    """Return the part of one request that an error object refuses; None if only the request could tell."""
    codes = {said.lower() for name in ("code", "type") if isinstance(said := error.get(name), str)}
    codes |= {part for code in codes for part in _WORDS_OF_CODES.split(code)}
    return _found(status, codes, message, {})


def decide_by_request(
    error: UpstreamError, model: str, fields: Mapping[str, msgspec.Raw], *, may_lack_path: bool = False
) -> None:
    """Decide, by the refused request, what the status and body of ``error`` left open: once, for all readers.

    ``model``: the name that the provider was asked for. ``fields``: what the client itself has set. ``may_lack_path``:
    whether the provider may lack the API that was asked. For example, 400 "Model Not Exist" becomes ``not_found``, and
    500 "Unsupported parameter: 'verbosity'" ``bad_request``.
    """
    if says_gone(model, error) and not _gives_name(model, fields):
        error.found(is_of_asked_model=True)
    if is_unknown(model, error):
        error.turn_into(ErrorKind.NOT_FOUND, without_body=True)
        error.found(is_certain=True)
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR and blames_request(error.said):
        error.turn_into(ErrorKind.BAD_REQUEST, without_body=True)  # the type of the error blames the server
    status = error.status if error.meant is None else error.meant
    about = _found(status, {name.lower() for name in error.names}, error.said, fields)
    if about is not None and not (error.kind is ErrorKind.BAD_REQUEST or error.kind is ErrorKind.PROVIDER_AUTH):
        error.turn_into(ErrorKind.BAD_REQUEST, without_body=True)
        error.found(is_declined=about is RefusedPart.TERMS, is_outsized=about is RefusedPart.SIZE)
    if (error.kind is ErrorKind.BAD_REQUEST or is_within_answer(error)) and not _states_a_value(error.said, fields):
        error.found(prompt_bytes=size_of(fields))
    if may_lack_path and lacks_path(error):
        error.turn_into(ErrorKind.NO_SUCH_API)  # the model may still work in chat


def _found(
    status: int | None, codes: Collection[str], message: str, fields: Mapping[str, msgspec.Raw]
) -> RefusedPart | None:
    text = message[:_LONGEST]
    if is_of_filter(status, codes, text):
        return RefusedPart.CONTENT
    if status in _CLEAR:
        return None
    for rule, words, but in _PATTERNS:
        if (
            (not rule.statuses or status in rule.statuses)
            and (not rule.codes or any(code in rule.codes for code in codes))
            and (not rule.fields or any(_has(fields, name, values) for name, values in rule.fields.items()))
            and (words is None or words.search(text) is not None)
            and (but is None or (but.search(text) is None and not any(but.search(code) for code in codes)))
        ):
            return rule.about
    return None


def _gives_name(model: str, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a client has named something as the model is named, such as an earlier response."""
    return any(model.encode() in bytes(raw) for name, raw in fields.items() if name != "model")


def _states_a_value(said: str, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a refusal has a number that the request has, such as a ``max_tokens`` of 4096."""
    numbers = {*_NUMBER.findall(said.replace(",", ""))}
    short = (bytes(raw).decode(errors="replace") for raw in fields.values() if len(memoryview(raw)) <= _LONGEST_NUMBER)
    return not numbers.isdisjoint(short)


def _has(fields: Mapping[str, msgspec.Raw], name: str, values: Collection[str]) -> bool:
    raw = bytes(fields.get(name, b"null")).strip()
    return raw != b"null" and (not values or raw.strip(b'"').decode(errors="replace") in values)
