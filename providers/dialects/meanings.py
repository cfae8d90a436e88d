"""What refusals mean, and how the vendor of each API words them: a table of meanings and APIs.

A program recognises a refusal only by the code or the words of the vendor of its own API. So a refusal of another API's
vendor, or of the gateway, is translated into that vendor's words. For example, Google's "The input token count exceeds
…" becomes "prompt is too long" for Claude Code. A refusal that is not in the table is reported by its status.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.refusals import UNKNOWN_LENGTHS, Meaning, StatedLengths

Details = Sequence[Mapping[str, Any]]  # an error's parts besides its message, for programs alone


class RefusalWords(msgspec.Struct, frozen=True):
    """How a vendor tells a refusal of one meaning."""

    type: str
    own: re.Pattern[str]  # finds the vendor's own words: a message that has them is not changed
    words: str = ""  # the message if nothing else is known; "": the message is not changed
    code: str | None = None  # None: this vendor's errors have no code
    codes: frozenset[str] = frozenset()  # other codes of the vendor for the same meaning; such a code is kept
    details: Callable[[float | None], Details] = lambda _: ()  # by the seconds after which the client may come back
    long: str = ""  # the words if ``prompt`` and ``most`` are known: for a prompt that is too long
    beside: str = ""  # the words if the prompt fits, but not together with the ``answer``

    def message(self, said: str, lengths: StatedLengths = UNKNOWN_LENGTHS) -> str:
        """Return ``said``, words of another vendor or of the gateway, in this vendor's words."""
        if not self.words or self.own.search(said) is not None:
            return said
        words = self.words
        if lengths.prompt is not None and lengths.most is not None:
            words = (self.long if lengths.answer is None else self.beside) or words
        words = words.format(prompt=lengths.prompt, answer=lengths.answer, most=lengths.most)
        return f"{words} ({said})" if said else words


OPENAI, ANTHROPIC, GOOGLE = "openai", "anthropic", "google"  # whose words: ``Dialect.told_as``

_RPC = "type.googleapis.com/google.rpc."
_ANY = re.compile("")


def _retried(after_s: float | None) -> Details:
    """Return Google's detail that says when to come back: clients of Google's API read no header."""
    return () if after_s is None else ({"@type": f"{_RPC}RetryInfo", "retryDelay": f"{after_s:g}s"},)


def _of_day(quota: str) -> Callable[[float | None], Details]:
    """Return the detail that makes a limit final to Gemini CLI: ``PerDay`` in the quota's name, ``RequestsPerDay``."""
    failure = {"@type": f"{_RPC}QuotaFailure", "violations": [{"quotaId": quota}]}
    return lambda after_s: (failure, *_retried(after_s))


# Beside each entry: which program reads it, and how. All were read on 2026-11-29:
# - Codex: codex-rs/codex-api/src/api_bridge.rs, .../sse/responses.rs and codex-rs/protocol/src/error.rs of
#   https://github.com/openai/codex
# - Gemini CLI: packages/core/src/utils/googleQuotaErrors.ts and retry.ts of https://github.com/google-gemini/gemini-cli
# - pi: packages/coding-agent/src/core/agent-session.ts of https://github.com/badlogic/pi-mono
# - opencode: packages/opencode/src/session/retry.ts, in a copy of https://github.com/Kilo-Org/kilocode
# - Cline: apps/vscode/src/services/error/ClineError.ts of https://github.com/cline/cline
# - aider: aider/exceptions.py of https://github.com/Aider-AI/aider, by litellm's classes, which follow the status
TELLINGS: Mapping[Meaning, Mapping[str, RefusalWords]] = {
    # The agent shortens the conversation and goes on; without these words it gives up. pi and opencode know the words
    # of all three vendors: packages/ai/src/utils/overflow.ts of https://github.com/badlogic/pi-mono, in copies of its
    # patterns, read on 2026-11-29.
    Meaning.TOO_LONG: {
        # Codex reads the code alone: is_context_window_error in codex-rs/codex-api/src/sse/responses.rs of
        # https://github.com/openai/codex, read on 2026-11-29; version 0.171: status 400 and the code, tried.
        OPENAI: RefusalWords(
            type="invalid_request_error",
            code="context_length_exceeded",
            own=re.compile(r"maximum context length is \d+ tokens|exceeds the context window", re.IGNORECASE),
            words="Your input exceeds the context window of this model. Please adjust your input and try again.",
            long=(
                "This model's maximum context length is {most} tokens. However, your messages resulted in {prompt}"
                " tokens. Please reduce the length of the messages."
            ),
            beside=(
                "This model's maximum context length is {most} tokens. However, your messages resulted in {prompt}"
                " tokens, and {answer} are requested for the completion. Please reduce the length of the messages or"
                " completion."
            ),
        ),
        # Claude Code reads status 400 and these words; at the last entry it asks for a shorter answer (2.1.332, tried).
        # Strands looks for "prompt is too long:", with the colon: models/anthropic.py of strands-agents 1.62.0, tried
        # on 2026-12-01.
        ANTHROPIC: RefusalWords(
            type="invalid_request_error",
            own=re.compile(r"prompt is too long:|input length and `max_tokens` exceed context limit", re.IGNORECASE),
            words="prompt is too long: more tokens than the maximum",
            long="prompt is too long: {prompt} tokens > {most} maximum",
            beside=(
                "input length and `max_tokens` exceed context limit: {prompt} + {answer} > {most}, decrease input"
                " length or `max_tokens` and try again"
            ),
        ),
        GOOGLE: RefusalWords(
            type="INVALID_ARGUMENT",
            own=re.compile(r"token count.{0,40}exceeds the maximum number of tokens", re.IGNORECASE),
            words="The input token count exceeds the maximum number of tokens allowed.",
            long="The input token count ({prompt}) exceeds the maximum number of tokens allowed ({most}).",
        ),
    },
    # This passes by itself, so programs try again. pi and opencode look for "overloaded" in the words, all SDKs at the
    # status.
    Meaning.OVERLOADED: {
        # OpenAI: developers.openai.com/api/docs/guides/error-codes. Codex reads 503 and the code: it sends a request
        # five times, then tells the user to take another model. In a response that has begun it would do that at once,
        # so ``response.failed`` does not have this code: Codex then asks again.
        OPENAI: RefusalWords(
            type="service_unavailable_error",
            code="server_is_overloaded",
            codes=frozenset({"slow_down"}),
            own=re.compile(r"overloaded", re.IGNORECASE),
            words="Our servers are currently overloaded. Please try again later.",
        ),
        # Claude Code reads the type; Anthropic's own status, 529, means the same to it, and less to others.
        ANTHROPIC: RefusalWords(
            type="overloaded_error", own=re.compile(r"overloaded", re.IGNORECASE), words="Overloaded"
        ),
        # Gemini CLI reads 503: it tries again, and then offers another model.
        GOOGLE: RefusalWords(
            type="UNAVAILABLE",
            own=re.compile(r"overloaded|high demand", re.IGNORECASE),
            words="The model is overloaded. Please try again later.",
            details=_retried,
        ),
    },
    # There is room again soon: programs wait for as long as they are told. SDKs, opencode and aider read
    # ``retry-after``.
    Meaning.RATE: {
        # Codex over HTTP reads 429 as final. In a response that has begun it reads the code, and waits for the seconds
        # after "try again in".
        OPENAI: RefusalWords(type="rate_limit_error", code="rate_limit_exceeded", own=_ANY),
        ANTHROPIC: RefusalWords(type="rate_limit_error", own=_ANY),
        # Gemini CLI, by RetryInfo.
        GOOGLE: RefusalWords(type="RESOURCE_EXHAUSTED", own=_ANY, details=_retried),
    },
    # As RATE, but for the day: programs with Google's API tell its minute from its day, and end.
    Meaning.DAY: {
        OPENAI: RefusalWords(type="rate_limit_error", code="rate_limit_exceeded", own=_ANY),
        ANTHROPIC: RefusalWords(type="rate_limit_error", own=_ANY),
        # Gemini CLI reads QuotaFailure with "PerDay" in its quotaId.
        GOOGLE: RefusalWords(type="RESOURCE_EXHAUSTED", own=_ANY, details=_of_day("RequestsPerDay")),
    },
    # A limit of the gateway in dollars: programs end, and tell why.
    Meaning.SPENT: {
        # Codex reads 429, or the code in a response that has begun; SDKs read ``x-should-retry: false``.
        OPENAI: RefusalWords(type="insufficient_quota", code="insufficient_quota", own=_ANY),
        # Anthropic's SDKs raise EnforcedSpendLimitReachedError by the details:
        # platform.claude.com/docs/en/api/handle-errors and /rate-limits. Claude Code, by ``x-should-retry: false``.
        ANTHROPIC: RefusalWords(
            type="rate_limit_error",
            own=re.compile(r"have reached your (?:specified )?(?:workspace )?API usage limits", re.IGNORECASE),
            words="You have reached your specified API usage limits.",
            details=lambda _: ({"error_code": "enforced_spend_limit_reached"},),
        ),
        # Gemini CLI reads QuotaFailure with "PerDay" in its quotaId; without this it tries for minutes.
        GOOGLE: RefusalWords(type="RESOURCE_EXHAUSTED", own=_ANY, details=_of_day("UsdPerDayOrMonth")),
    },
    # The operator's account at every provider is spent: no request is answered until the operator pays.
    Meaning.UNPAID: {
        OPENAI: RefusalWords(type="insufficient_quota", code="insufficient_quota", own=_ANY),
        # Claude Code, by these words: github.com/anthropics/claude-code/issues/66314.
        ANTHROPIC: RefusalWords(
            type="billing_error",
            own=re.compile(r"credit balance is too low", re.IGNORECASE),
            words="Your credit balance is too low to access the Anthropic API.",
        ),
        GOOGLE: RefusalWords(type="RESOURCE_EXHAUSTED", own=_ANY, details=_of_day("UsdPerDayOrMonth")),
    },
    # The text is refused: the same again is in vain.
    Meaning.CONTENT: {
        # Codex reads 400, or the code in a response that has begun; for "cyber_policy" it has words of its own there.
        OPENAI: RefusalWords(
            type="invalid_request_error",
            code="invalid_prompt",
            codes=frozenset(
                {"content_filter", "content_policy_violation", "moderation_blocked", "cyber_policy"}
            ),  # Azure's, and OpenAI's of pictures and of attacks
            own=re.compile(r"flagged|content (?:filter|management|policy)|safety", re.IGNORECASE),
            words="Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        ),
        # github.com/anthropics/claude-code/issues/58367
        ANTHROPIC: RefusalWords(
            type="invalid_request_error",
            own=re.compile(r"blocked by content filtering policy", re.IGNORECASE),
            words="Output blocked by content filtering policy",
        ),
        # Of a prompt: ``blockReason`` of ai.google.dev/api/generate-content.
        GOOGLE: RefusalWords(
            type="INVALID_ARGUMENT",
            own=re.compile(r"PROHIBITED_CONTENT|\bSAFETY\b|prompt was blocked"),
            words="The prompt was blocked: PROHIBITED_CONTENT",
        ),
    },
    # The client's own key at the gateway: the user has to set another one.
    Meaning.KEY: {
        OPENAI: RefusalWords(type="authentication_error", code="invalid_api_key", own=_ANY),
        # Claude Code, by 401 and the header's name.
        ANTHROPIC: RefusalWords(
            type="authentication_error", own=re.compile(r"x-api-key", re.IGNORECASE), words="invalid x-api-key"
        ),
        # By the reason: google/api/error_reason.proto of https://github.com/googleapis/googleapis.
        GOOGLE: RefusalWords(
            type="UNAUTHENTICATED",
            own=re.compile(r"API key not valid"),
            words="API key not valid. Please pass a valid API key.",
            details=lambda _: ({"@type": f"{_RPC}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"},),
        ),
    },
    # The model does not exist, here or at its vendor: the user takes another one. All programs read the status, 404.
    Meaning.GONE: {
        # github.com/Aider-AI/aider/issues/2030
        OPENAI: RefusalWords(type="invalid_request_error", code="model_not_found", own=_ANY),
        # Claude Code: "There's an issue with the selected model", github.com/anthropics/claude-code/issues/46019.
        ANTHROPIC: RefusalWords(type="not_found_error", own=_ANY),
        # Gemini CLI: ModelNotFoundError, which is final, and offers another model.
        GOOGLE: RefusalWords(type="NOT_FOUND", own=_ANY),
    },
}

# At these codes Codex goes on, or ends, in a response that has begun: at all but those of errors that pass soon.
CODES = frozenset(told[OPENAI].code for meaning, told in TELLINGS.items() if meaning is not Meaning.OVERLOADED)
