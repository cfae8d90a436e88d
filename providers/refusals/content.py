"""Refusals by a filter, for the content of a request. Another vendor may have another filter."""

import re
from collections.abc import Collection
from typing import Final

# learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter (Azure and OpenAI; Xiaomi, with code 421,
# XiaomiMiMo/MiMo-V2-Flash/issues/18); of Alibaba, also behind others: github.com/QwenLM/qwen-code/issues/3271,
# CommandCodeAI/command-code/issues/813. OpenAI's ``invalid_prompt`` is also the code of wrong requests, so words count.
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
# Further words, for requests that are known to be refused: OpenAI ("your prompt was flagged as potentially
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
# In the words of no vendor, and in other languages: a policy or filter for content, and what was broken or has refused.
# Policies of schemas, places and retention are none of these.
_POLICIES: Final = (
    (  # English
        (
            r"\b(?:content|usage|(?:acceptable )?use|safety|community|moderation) (?:polic(?:y|ies)|guidelines?)\b"
            r"|\bterms of (?:service|use)\b|\b(?:our|['\u2019]s) polic(?:y|ies)\b"
        ),
        r"\bviolat\w+|\bbreach\w*|\bagainst\b|\b(?:declined|refused|rejected|blocked|prohibited|disallowed)\b",
    ),
    (  # German
        r"\b(?:inhalts|nutzungs|sicherheits|moderations|verhaltens)-?(?:richtlinie|filter|bedingung|bestimmung|regel)",
        r"verst(?:ö|oe|o)(?:ß|ss)|verletz|blockier|geblockt|gesperrt|abgelehnt|abgewiesen|zurückgewiesen",
    ),
    (  # French
        (
            r"\b(?:politique|règle|regle|condition|charte|norme)s?\b[^.;!?\n]{0,20}"
            r"\b(?:contenus?|utilisation|usage|sécurité)\b"
            r"|\bfiltres?\b[^.;!?\n]{0,12}\b(?:contenus?|sécurité|modération)\b"
        ),
        r"enfrei|\bviol(?:e|ent|é|ation)\b|\bcontraires?\b|\bbloqu|\brejet|\brefus",
    ),
    (  # Spanish, Portuguese, Italian
        (
            r"\b(?:pol[ií]tic[ah]e?s?|normas?|norme|regras?|reglas?|t[eé]rmin[io]s?|termos|diretrizes|linee guida)\b"
            r"[^.;!?\n]{0,20}"
            r"\b(?:contenidos?|conteúdos?|contenut[oi]|usos?|utilização|utilizzo|seguridad|segurança|sicurezza)\b"
            r"|\bfiltr[oi]s?\b[^.;!?\n]{0,12}"
            r"\b(?:contenidos?|conteúdos?|contenut[oi]|seguridad|segurança|sicurezza)\b"
        ),
        r"\binfring|\bviola|\bincumpl|\bbloque|\bbloccat|\brechaz|\brejeit|\brifiut",
    ),
    (  # Russian, Polish
        (
            r"политик|правил\w*[^.;!?\n]{0,12}(?:использован|контент|содержан|безопасност|сообществ)"
            r"|фильтр\w*[^.;!?\n]{0,12}(?:контент|содержим|безопасност)|\b(?:zasad|polityk|regulamin)"
        ),
        r"наруша|наруше|заблокирован|отклонен|отклонён|narusza|zablokowan|odrzucon",
    ),
)
# Likewise in fewer words: of what classifies, or that the content is bad.
_OF_POLICIES: Final = re.compile(
    "|".join(rf"(?:{of})[^.;!?\n]{{0,60}}(?:{did})|(?:{did})[^.;!?\n]{{0,60}}(?:{of})" for of, did in _POLICIES)
    + r"|\b(?:safety|content|moderation) classifiers?\b|\btrust (?:&|and) safety\b"
    r"|\b(?:harmful|unsafe|toxic|nsfw|objectionable|disallowed|prohibited) content\b(?![ _-]?(?:type|encod|length))"
    r"|\b(?:input|prompt|request|content)\b[^.;!?\n]{0,20}\bunsafe\b|\bjailbreak|\bprompt injection\b"
    # OpenAI and OpenRouter, also with 403: "was rejected by our safety system", "Your input was flagged for violence".
    r"|\b(?:by|of) (?:our|the|its) safety system\b"
    r"|\b(?:input|prompt|content|message|request)s? (?:was|were|is|are|has been|have been) (?:flagged|moderated)\b"
    r"|\b(?:refused|declined|blocked|rejected) for safety\b|\bcontent (?:audit|check|moderation|review)\b"
    r"|\bcontent[ _](?:was |has been |is )?(?:blocked|rejected)\b"
    r"|\bguardrails?\b[^.;!?\n]{0,40}\b(?:interven|block|reject|trigger)"
    r"|\b(?:rejected|refused|triggered)\b[^.;!?\n]{0,20}\bguardrail"
    r"|\bunangemessene[rn]? inhalt|\bcontenus? (?:inappropri|interdit|offensant|préjudiciable|dangereu)"
    r"|\b(?:contenido|conteúdo|contenuto) (?:inapropiad|inadequad|inadeguat|impróprio|ofensiv|dañin)"
    r"|недопустим\w+ (?:контент|содержим)"
    # Japanese, Chinese, Korean
    r"|(?:ポリシー|規約|ガイドライン)[^。\n]{0,10}(?:違反|抵触)"
    r"|(?:コンテンツ|安全性?|セーフティ)[・の]?(?:ポリシー|フィルタ|分類)"
    r"|(?:不適切|有害|不快)な(?:コンテンツ|内容|表現|入力|プロンプト)"
    r"|(?:违反|違反)[^。\n]{0,12}(?:政策|规定|規定|法规|法規|准则|準則|条款|條款|(?:内容|使用|社区)规范)"
    r"|(?:内容|內容)(?:违规|違規|审核|審核|审查|審查|安全|政策|过滤|過濾)|涉嫌违规"
    r"|(?:不当|不當|有害|违禁|非法)的?(?:内容|內容)"
    r"|(?:정책|약관|가이드라인|지침)[^.\n]{0,6}(?:위반|위배)|(?:콘텐츠|컨텐츠|안전|유해) ?(?:필터|정책|분류)"
    r"|(?:부적절|유해|민감|선정적)[가-힣]{0,2} ?(?:콘텐츠|컨텐츠|내용|표현|입력|프롬프트)",
    re.IGNORECASE,
)
_BARE: Final = re.compile(r"^\W*(?:(?:input|prompt|request|error)\W{1,3})?policy[ _]violation\b", re.IGNORECASE)
# With 403 these words say that a key, a model or a place is barred, or that terms are not accepted.
_OF_OTHERS: Final = re.compile(
    r"\b(?:accounts?|organi[sz]ations?|teams?|projects?|api.?keys?|suspended|banned|models?|regions?|country|countries"
    r"|konto|compte|cuenta|conta)\b|\baccept|\bagree|\bakzept|\bacept|\baccett|账[号户]|帳號|アカウント|계정|аккаунт",
    re.IGNORECASE,
)
_UNAUTHORIZED: Final = 401  # about the key, whatever words it quotes
_FORBIDDEN: Final = 403  # likewise, unless the words are about the content of a request


def is_of_filter(status: int | None, codes: Collection[str], text: str) -> bool:
    """Whether an error with these codes and types, in lower case, is a filter's, whatever else the status means."""
    if status == _UNAUTHORIZED:
        return False
    if status == _FORBIDDEN and _OF_POLICIES.search(text) is not None and _OF_OTHERS.search(text) is None:
        return True
    return status in _STATUSES or not _CODES.isdisjoint(codes) or _WORDS.search(text) is not None


def is_refused_by_filter(status: int | None, codes: Collection[str], text: str) -> bool:
    """Whether an error that is known to refuse the request is a filter's: then words count that others say as well."""
    return is_of_filter(status, codes, text) or any(
        each.search(said) is not None for each in (_OF_REFUSALS, _OF_POLICIES, _BARE) for said in (text, *codes)
    )
