"""Decides by status, codes and words whose fault an error is: the request's, the key's, the server's or the model's."""

import re
from collections.abc import Mapping
from typing import Any

from providers.refusals.accounts import REFUSED, alone, is_key_refused, is_spent
from providers.refusals.complaints import as_list
from providers.refusals.error_shapes import SERVER_ERROR, message_of
from providers.refusals.errors import ErrorKind, kind_of_status
from providers.refusals.one_request import refused
from providers.refusals.rate_limits import LONGEST_BELIEVED_S, google_wait_s, is_of_a_rate
from providers.refusals.refused_fields import refuses_marks
from providers.refusals.words import names_of
from providers.refusals.wrong_api import kind_of_404

_BAD_REQUEST = 400
_UNAUTHORIZED, _PAYMENT_REQUIRED, FORBIDDEN, _TOO_LARGE = 401, 402, 403, 413
_OF_FILTERS = frozenset({"flagged_input", "reasons", "patterns"})  # in OpenRouter's metadata
QUOTAS_OF_AWS = ("ServiceQuotaExceeded", "Throttling")  # types of AWS's errors, some of them with status 400
# Codes of a tool call, or of JSON, that the model wrote and its server could not read, whatever the status. Another
# sample, or another deployment, may be right. Groq's: github.com/groq/groq-typescript/issues/28,
# pydantic/pydantic-ai/pull/4354, HunorLaczko/ha-groq-cloud-api/issues/20, tashfeenahmed/freellmapi/pull/291, read on
# 2026-11-29.
_OF_WHAT_IT_WROTE = frozenset({"tool_use_failed", "json_validate_failed", "output_parse_failed"})
# Likewise in words, of vLLM and servers made of it, where gpt-oss has written no Harmony: also with status 200
# (tenstorrent/vllm/issues/386, ovh/public-cloud-roadmap/issues/993, openai/harmony/issues/60), of Bedrock and others
# of a call, of Cerebras (vybestack/llxprt-code/issues/221) and TGI likewise, and of MiniMax and SambaNova of JSON; read
# on 2026-12-01.
_WROTE_BADLY = re.compile(
    r"\bunexpected token \d+ while expecting start token\b|\bunexpected tokens remaining in message header\b"
    r"|\bunknown role: <\|start\|>|\bchannel marker present but no channel value\b|\bSee 'failed_generation' for\b"
    r"|\bmodel (?:generated|produced|output|returned) an? (?:invalid|malformed) (?:tool|function|sequence|json)\b"
    r"|\bmodel produced invalid sequence\b|^tool call validation failed\b|^failed to generate tool[_ ]calls?\b"
    r"|^model did not output (?:a )?valid (?:json|tool)|^tool error: no (?:valid )?function found in generated text\b",
    re.IGNORECASE,
)
_CODES_OF_OVERLOAD = frozenset({"overloaded_error", "server_is_overloaded", "engine_overloaded_error"})
# What a server says of itself with 400: NVIDIA NIM (tashfeenahmed/freellmapi/issues/522,
# diegosouzapw/OmniRoute/issues/8248), LM Studio (lmstudio-ai/lmstudio-bug-tracker/issues/1057 and 914), Together of an
# endpoint of one's own, and new-api, where its operator has set no price; read on 2026-12-01.
_OF_ITS_OWN = re.compile(
    r"^function id '[\w-]{1,64}': DEGRADED function cannot be invoked"
    r"|^(?:the )?model (?:is |was |has been )?unloaded\b|^the model has crashed\b|^endpoint is not running\b"
    r"|^模型 ?\S{1,200} ?(?:的)?(?:倍率或)?价格未配置",
    re.IGNORECASE,
)


def kind_of(
    status: int | None,
    error: Mapping[str, Any],
    *,
    kind: ErrorKind | None = None,
    meters_quota: bool = False,
    wait_s: float | None = None,
) -> ErrorKind:
    """Return the kind of an error by the status, unless the words are known to be of another kind.

    ``kind``: of an error without a status. ``meters_quota``: the vendor calls a minute's tokens a quota. ``wait_s``:
    after how long the headers say to come back.

    A 402 or 403 may be about one request, while the key works for all others: the text was flagged, or blocked by a
    guardrail (OpenRouter); or ``max_tokens`` is more than the account can pay (OpenRouter, 402) or than the model's
    context (Together, 403). A 404 may be about what one request needs or names, while the model is there for all
    others. A 429 may be about one request's size (OpenAI), while smaller ones have room. ``one_request`` has more of
    these. Many statuses may be about a spent account.
    """
    kind = kind or kind_of_status(status or SERVER_ERROR)
    if _is_badly_written(kind, error):
        return ErrorKind.INVALID_ANSWER
    if kind is ErrorKind.BAD_REQUEST and any(name.startswith(QUOTAS_OF_AWS) for name in names_of(error)):
        kind = ErrorKind.RATE_LIMITED
    about = refused(status, error, message_of(error))
    if about is not None or (kind is ErrorKind.RATE_LIMITED and is_outsized(error)):
        return ErrorKind.BAD_REQUEST
    any_words = speaks_of_limits(kind, google_wait_s(error) if wait_s is None else wait_s)
    meant = _kind_in_words(kind, status, error, meters_quota=meters_quota, any_words=any_words)
    if meant is not kind:
        return meant
    if kind is ErrorKind.NOT_FOUND:
        return kind_of_404(message_of(error), names_of(error))
    if kind is ErrorKind.PROVIDER_AUTH and status != _UNAUTHORIZED:
        return _kind_of_refusal(status, error)
    return kind


def _is_badly_written(kind: ErrorKind, error: Mapping[str, Any]) -> bool:
    """Whether an error is about what the model wrote, and not about the request."""
    code = error.get("code")
    is_said = kind is ErrorKind.BAD_REQUEST and _WROTE_BADLY.search(message_of(error)) is not None
    return is_said or (isinstance(code, str) and code in _OF_WHAT_IT_WROTE)


def _kind_in_words(
    kind: ErrorKind, status: int | None, error: Mapping[str, Any], *, meters_quota: bool, any_words: bool
) -> ErrorKind:
    """Return the kind that an error's codes and words have, whatever its status: of a key, an account, a rate.

    ``any_words``: as of ``is_spent``. For example, 400 "Invalid API key" is ``provider_auth``. Within a stream the
    words may be those of a tool that runs at the provider, or the model's.
    """
    if kind is ErrorKind.PROVIDER_AUTH:
        return kind
    # Servers of all kinds have statuses of their own for a key: 498 "Invalid Token", 412, 419, 440.
    is_odd = kind is ErrorKind.SERVER_ERROR and (status is None or _BAD_REQUEST < status < SERVER_ERROR)
    may_say = kind is ErrorKind.BAD_REQUEST or is_odd
    if kind is ErrorKind.NOT_FOUND and is_key_refused({}, alone(message_of(error))):
        return ErrorKind.PROVIDER_AUTH  # 404 "API key not found"
    said = alone(message_of(error)) if may_say and status != _TOO_LARGE else ""
    any_codes = kind in (ErrorKind.RATE_LIMITED, ErrorKind.STREAM_ERROR, ErrorKind.BAD_REQUEST)
    if (may_say and (_refuses_key(error) or is_key_refused(error, said))) or is_spent(
        error, meters_quota=meters_quota, any_codes=any_codes, any_words=any_words or bool(said)
    ):
        return ErrorKind.PROVIDER_AUTH
    if is_of_a_rate(names_of(error), said) and not is_outsized(error):
        return ErrorKind.RATE_LIMITED
    is_its_own = may_say and (
        not _CODES_OF_OVERLOAD.isdisjoint(names_of(error)) or _OF_ITS_OWN.search(message_of(error)) is not None
    )
    return ErrorKind.SERVER_ERROR if is_its_own else kind


def speaks_of_limits(kind: ErrorKind, wait_s: float | None) -> bool:
    """Whether an error is about a limit that may last longer than a minute."""
    return kind is ErrorKind.RATE_LIMITED and (wait_s is None or wait_s > LONGEST_BELIEVED_S)


# OpenRouter, with 402: the possible costs of running requests fill the account until these end, or one request alone
# would. openrouter.ai/docs/api_reference/limits, read on 2026-11-28.
_IN_FLIGHT, _ALONE_TOO_DEAR = "openrouter_in_flight_budget", "weight_exceeds_budget"


def _kind_of_refusal(status: int | None, error: Mapping[str, Any]) -> ErrorKind:
    """Return the kind of a 402 or 403. Such an error may be about one request, or pass by itself."""
    if _is_flagged(error) or refuses_marks(message_of(error)):
        return ErrorKind.BAD_REQUEST
    if (reason := _budget_in_flight(error)) is not None:
        return ErrorKind.SERVER_ERROR if reason == _ALONE_TOO_DEAR else ErrorKind.RATE_LIMITED
    if is_of_a_rate((), alone(message_of(error))):
        return ErrorKind.RATE_LIMITED
    if "max_tokens" in message_of(error):  # others may give as many
        return ErrorKind.SERVER_ERROR if status == _PAYMENT_REQUIRED else ErrorKind.BAD_REQUEST
    return ErrorKind.PROVIDER_AUTH


def _budget_in_flight(error: Mapping[str, Any]) -> str | None:
    """Return why a request is refused though the account has money left; None for other reasons."""
    match error.get("metadata"):
        case {"reason": str(reason)} if reason in {"in_flight_budget_exhausted", _ALONE_TOO_DEAR}:
            return reason
        case {"limit_source": str(source)} if source == _IN_FLIGHT:
            return source
    return None


def _is_flagged(error: Mapping[str, Any]) -> bool:
    """Whether an error is of a filter that looked at the request's text."""
    metadata, code = error.get("metadata"), error.get("code")
    is_moderated = isinstance(metadata, dict) and not _OF_FILTERS.isdisjoint(metadata)
    is_blocked = message_of(error).startswith("Request blocked")
    return is_moderated or is_blocked or (isinstance(code, str) and "content_policy" in code)


def is_bound(error: Mapping[str, Any]) -> bool:
    """Whether a 400 is about reasoning that another key's organisation made: encrypted, or signed."""
    return error.get("code") == "invalid_encrypted_content" or _OF_REASONING.search(message_of(error)) is not None


def is_outsized(error: Mapping[str, Any]) -> bool:
    """Whether an error is about more tokens than a key may use in a minute: 429 at OpenAI, 413 at Groq."""
    return error.get("code") == "rate_limit_exceeded" and message_of(error).startswith("Request too large")


# Google's: of a key, and of the project that the operator has configured (ChatGPTNextWeb/NextChat/issues/6056, read on
# 2026-12-01).
_REASONS_OF_KEYS = frozenset({"API_KEY_INVALID", "RESOURCE_PROJECT_INVALID"})


def _refuses_key(error: Mapping[str, Any]) -> bool:
    """Whether a 400 is about the key or its account, by its message or, at Gemini, by a google.rpc.ErrorInfo."""
    return message_of(error).startswith(REFUSED) or any(
        isinstance(each, dict) and each.get("reason") in _REASONS_OF_KEYS for each in as_list(error.get("details"))
    )


# OpenAI, and servers with its Responses API; Anthropic (github.com/anthropics/claude-code/issues/10627, /56708, read on
# 2026-11-26); Google (google-gemini/gemini-cli/issues/13467, decolua/9router/issues/301,
# lbjlaq/Antigravity-Manager/pull/3342, BigPizzaV3/CodexPlusPlus/issues/367, likewise), where others made the signature;
# xAI (hackerai-tech/hackerai/pull/996), and proxies (anomalyco/opencode/issues/48864).
_OF_REASONING = re.compile(
    r"encrypted.content .{0,200}could not be|not decrypt the provided encrypted|encrypted.content`? was not issued to"
    r"|invalid `(?:signature|data)` in `(?:redacted_)?thinking` block|thinking` blocks .{0,80}cannot be modified"
    r"|(?:corrupted|invalid) thought.?signature|thought.?signature'? (?:is not valid|is invalid|\(TYPE_BYTES\))"
    r"|missing a `?thought_signature|\bblock (?:is|was) bound to a different conversation",
    re.IGNORECASE,
)
