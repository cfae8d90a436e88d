"""Refusals by a filter, for the content of a request. Another vendor may have another filter."""

import re
from collections.abc import Collection
from typing import Final

# learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter (Azure and OpenAI; Xiaomi, with code 421,
# XiaomiMiMo/MiMo-V2-Flash/issues/18); of Alibaba, also behind others: github.com/QwenLM/qwen-code/issues/3271,
# CommandCodeAI/command-code/issues/813. OpenAI's ``invalid_prompt`` is of wrong requests as well, so its words count.
_CODES: Final = frozenset(
    {
        *("content_filter", "content_policy_violation", "moderation_blocked", "responsibleaipolicyviolation"),
        *("cyber_policy", "data_inspection_failed", "datainspectionfailed"),
    }
)
# portkey.ai/docs/api-reference/inference-api/error-codes; rfc-editor.org/rfc/rfc7725: what a law forbids to serve.
_STATUSES: Final = frozenset({446, 451})
# Of xAI, whose code is that of a key without permission: github.com/UKGovernmentBEIS/inspect_ai/pull/2267,
# theopenco/llmgateway/pull/1785. All of these were read on 2026-11-29.
_WORDS: Final = re.compile(
    r"\bcontent violates usage guidelines|\bfailed check: SAFETY_CHECK_TYPE_", re.IGNORECASE | re.DOTALL
)
# What else they say where it is known that the request is refused: OpenAI ("your prompt was flagged as potentially
# violating our usage policy", enricoros/big-AGI/issues/712; "rejected as a result of our safety system"), Anthropic
# ("Output blocked by content filtering policy", anthropics/claude-code/issues/58367), OpenRouter, Google, and
# DeepSeek (deepseek-ai/awesome-deepseek-integration/issues/13), MiniMax (of its code 1026,
# esengine/DeepSeek-Reasonix/issues/6818), read on 2026-11-30; Zhipu's 1301, Volcengine, Baidu, Hunyuan and
# Bedrock's guardrails.
_OF_REFUSALS: Final = re.compile(
    r"content.{0,3}(filter|policy|management)|responsible.?ai|safety (system|filter|setting|reason)"
    r"|violates usage guidelines|\bviolates? (?:our|the) (?:usage|safety) polic|data.?inspection"
    r"|\b(?:requires|failed|by) moderation"
    r"|\bmoderation (?:block|filter|system)|flagged|blocked (by|for|due)"
    r"|\bPROHIBITED_CONTENT\b|\bprompt was blocked\b|^request blocked\b"
    r"|\bcontent exists risk\b|\bnew_sensitive\b|(?<!case.)sensitive[ _]?(?:content|information|texts?|words?)\b"
    r"|\bcontent\b.{0,20} not safe\b|\binappropriate content\b"
    r"|(?:blocked|denied|not allowed|intervened) by (?:\w+ ){0,3}(?:guardrails?\b|usage polic|content moderation)"
    r"|\bconsidered high risk\b|\bcontent for safety reasons\b|敏感|不安全内容|违规内容"
    r"|违反[^。\n]{0,10}(?:规定|政策|法规)",
    re.IGNORECASE,
)
_UNAUTHORIZED: Final = 401  # about the key, whatever words it quotes


def is_of_filter(status: int | None, codes: Collection[str], text: str) -> bool:
    """Whether an error with these codes and types, in lower case, is a filter's, whatever else the status means."""
    if status == _UNAUTHORIZED:
        return False
    return status in _STATUSES or not _CODES.isdisjoint(codes) or _WORDS.search(text) is not None


def is_refused_by_filter(status: int | None, codes: Collection[str], text: str) -> bool:
    """Whether an error that is known to refuse the request is a filter's: then words count that others say as well."""
    return is_of_filter(status, codes, text) or any(map(_OF_REFUSALS.search, (text, *codes)))
