"""What vendors say of an account that is spent, unpaid or blocked: no request has an answer until a person acts.

Many say it with the status of a rate limit, some with that of a bad request or of a failure. It counts as a 402. Both
speak of quotas and limits: what comes back by itself within a minute, an hour or a day is a rate limit.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

# How messages with 400 begin that are about the key or its account, and not about the request.
REFUSED: Final = (
    "Incorrect API key provided",  # xAI
    "Your credit balance is too low",  # Anthropic
    "You have reached your specified API usage limits",  # Anthropic: the operator's own limit of the month
    "You have reached your specified workspace API usage limits",  # github.com/anthropics/claude-code/issues/55998
    "You're out of extra usage. Add more",  # github.com/earendil-works/pi/issues/2943
    "This organization has been disabled",  # Anthropic
    "Access to Anthropic models is not allowed",  # Bedrock, for an account or from a region
    "Billing hard limit has been reached",  # OpenAI
    "Access denied, please make sure your account is in good standing",  # Alibaba: a bill is not paid
    "User location is not supported",  # Gemini, where Google sees the gateway in a country without it
    "Gemini API free tier is not available in your country",  # ai.google.dev/gemini-api/docs/troubleshooting
)

# Codes and types, in lower case. All pages were read on 2026-11-27.
_CODES: Final = frozenset(
    {
        # OpenAI: platform.openai.com/docs/guides/error-codes and developers.openai.com/api/docs/guides/spend-limits.
        *("insufficient_quota", "billing_not_active", "billing_hard_limit_reached"),
        *("organization_spend_limit_exceeded", "project_spend_limit_exceeded"),
        "exceeded_current_quota_error",  # Moonshot: platform.moonshot.ai/docs/api/chat
        # Groq, with 400: console.groq.com/docs/spend-limits and github.com/songquanpeng/one-api/issues/1764.
        *("blocked_api_access", "organization_restricted"),
        # Zhipu, with 429: inactive, locked, in arrears, locked, plan expired; docs.z.ai/api-reference/api-code.
        *("1110", "1112", "1113", "1121", "1309"),
        "insufficient_balance_error",  # MiniMax, with 429: github.com/modelscope/modelscope/issues/1691
        # Alibaba, with 400, and with 429: alibabacloud.com/help/model-studio/error-code
        *("arrearage", "prepaidbilloverdue", "postpaidbilloverdue", "commoditynotpurchased"),
        # Tencent's, of a package of tokens or an unpaid bill: cloud.tencent.com/document/product/1729/97732
        *("failedoperation.freeresourcepackexhausted", "failedoperation.resourcepackexhausted"),
        *("failedoperation.servicestoparrears", "resourceunavailable.inarrears", "resourceunavailable.lowbalance"),
        # Volcengine: an unpaid bill; its limit of what may be spent on a model. volcengine.com/docs/82379/1299023
        *("accountoverdueerror", "setlimitexceeded"),
        "insufficient_balance",  # Venice, likewise Novita's (NOT_ENOUGH_BALANCE): github.com/veniceai/api-docs/pull/149
        "not_enough_balance",
        "insufficient_user_quota",  # one-api, and what is made of it
        "budget_exceeded",  # litellm's proxy, with 400 or 429: github.com/BerriAI/litellm/pull/37000
        "spend_limit_exceeded",  # Cline, with 429: github.com/cline/cline/pull/10207
        # Anthropic's type of a 402, and what others call theirs, also inside a stream.
        *("billing_error", "credit_balance_too_low", "insufficient_credits", "insufficient_funds", "payment_required"),
    }
)

# How messages begin, where the code says nothing, or proxies have lost it.
_MESSAGES: Final = re.compile(
    # OpenAI's: Google's words for a minute's limit begin in the same way, and go on otherwise.
    r"you exceeded your current quota, please check your plan and billing details\.?"
    r"(?:\s*$| for more information on this error, read the docs: https://platform\.openai\.com)"
    r"|your account is not active|billing hard limit has been reached"
    # Moonshot: github.com/continuedev/continue/issues/11443, and Volcengine (see above)
    r"|your account .{0,120}?(?:is suspended|has reached the set inference limit|has exhausted its free trial quota)"
    r"|the request failed because your account has an overdue balance"
    r"|your account is in arrears"
    # Of xAI: github.com/continuedev/continue/issues/10373, /12670; Wei-Shaw/sub2api/issues/4069
    r"|your (?:newly created )?team .{0,80}?(?:used all available credits|any credits|monthly spending limit)"
    r"|you have run out of credits"
    # Of Google: ai.google.dev/gemini-api/docs/billing, and github.com/openclaw/openclaw/pull/74120
    r"|your prepayment credits are depleted"
    r"|your (?:project|billing account) has exceeded its (?:monthly )?spend(?:ing)? cap"
    # Fireworks, with 412: github.com/pollinations/pollinations/issues/12136
    r"|account \S{1,80} is suspended"
    # DeepSeek, MiniMax with 500 (github.com/MiniMax-AI/MiniMax-M2/issues/62), Z.ai with its code in brackets
    r"|(?:\[\d+\]\[)?insufficient (?:account )?balance"
    r"|(?:\[\d+\]\[)?(?:您的)?(?:账户|用户|当前)?(?:余额不足|额度不足|已欠费)"
    r"|organization has been restricted"  # Groq
    # Of Cohere, whose minute's limit is told in the same way: docs.cohere.com/docs/rate-limits
    r"|you are using a trial key, which is limited to [\d,]+ api calls / month"
    r"|you have (?:exceeded|depleted) your monthly included credits"  # Hugging Face
    r"|(?:exceededbudget|budget has been exceeded)"  # litellm's proxy: github.com/BerriAI/litellm/issues/14144
    r"|your credit balance is too low|you have reached your specified (?:workspace )?api usage limits"
    r"|you're out of extra usage\. add more",
    re.IGNORECASE,
)
# In whose words ever, and anywhere in them: of a limit's answer alone, as that tells nothing that its client wrote, and
# who can make a provider say this must not be able to take a key out.
_WORDS: Final = re.compile(
    r"insufficient[ _](?:\w+[ _]){0,2}(?:balance|credit|fund)|not enough (?:\w+ ){0,2}(?:balance|credit|fund|money)"
    r"|\b(?:balance|credits?|funds)(?: (?:is|are|was|were|has been|have been))?"
    r" (?:insufficient|not (?:enough|sufficient)|exhausted|depleted|too low|used up|negative)"
    r"|out of (?:\w+ )?(?:credit|fund|balance|money)|\bno (?:(?:more|remaining|available) )?(?:credit|fund|balance)"
    r"|(?:unpaid|overdue|outstanding) (?:bill|invoice|balance|payment)|(?:bill|invoice|payment|account) is overdue"
    r"|in arrears|payment (?:method )?(?:is )?required|please (?:recharge|top[ -]?up)\b"
    r"|(?:spend(?:ing)?|budget|billing|credit) (?:limit|cap) (?:(?:is|was|has been) )?(?:reached|exceeded)"
    r"|(?:reached|exceeded) (?:\w+ ){1,2}(?:spend(?:ing)?|budget|billing|credit) (?:limit|cap)"
    r"|account (?:is|has been) (?:suspended|deactivated|frozen|disabled)"
    r"|余额不足|余额已?用[完尽]|额度不足|额度已?用[完尽]|资源包(?:余量)?已?用[完尽]|欠费|请(?:先)?充值",
    re.IGNORECASE,
)
_WORDS_OF_CODES: Final = re.compile(  # likewise, without what stands between words
    r"insufficient(?:user|account|credit|wallet)?(?:balance|credit|fund)|notenough(?:balance|credit|fund)|lowbalance"
    r"|(?:balance|credits?|funds)(?:insufficient|exhausted|depleted|notenough|toolow)|outofcredit|arrear|overdue"
    r"|paymentrequired|(?:budget|spend(?:ing)?(?:limit|cap)?)exceeded|resourcepack\w*(?:exhausted|runout)"
)
_BETWEEN: Final = re.compile(r"[\W_]+")
_BEFORE: Final = re.compile(r"(?:litellm\.)?(?:\w+(?:Error|Exception)(?:: | - ))*")  # what proxies write before it
# What comes back by itself, or is of one user of a proxy's client, however its code is called.
_PASSING: Final = re.compile(
    r"rate.?limit|\bper[ -](?:minute|second|hour|day)\b|/ ?(?:min|sec|hour|day)|\b[rt]p[msd]\b"
    r"|(?:retry|try again|come back) (?:in|after) \d|allocated quota|\bend user\b|\breset|in-flight"
    r"|每[日天秒]|每分钟|每小时|[今明][日天]",
    re.IGNORECASE,
)
# Alibaba calls a minute's tokens a quota, in OpenAI's words: help.apiyi.com/?p=10015 lists them; the page that its own
# message names tells it from OpenAI's.
_OF_ALIBABA: Final = re.compile(r"aliyun|alibabacloud|dashscope", re.IGNORECASE)
_AMBIGUOUS: Final = "insufficient_quota"
_LEAST_OWN: Final = 1000  # smaller codes may be a status
_REASONS: Final = frozenset({"BILLING_DISABLED", "CONSUMER_SUSPENDED"})  # of a google.rpc.ErrorInfo


def is_spent(error: Mapping[str, Any], *, meters_quota: bool = False, of_limits: bool = False) -> bool:
    """Whether an error object says that the account has no money left, or is blocked.

    ``meters_quota``: its vendor calls a minute's tokens a quota. ``of_limits``: it is a rate limit's by its status, or
    comes within a stream: words of any vendor count then, as they are not about the request.
    """
    # What OpenRouter quotes of its vendor's error is about that one's account: it asks another vendor the next time.
    message = error.get("message")
    text = _BEFORE.sub("", message, count=1) if isinstance(message, str) else ""
    codes = {str(said).lower() for name in ("code", "type") if isinstance(said := error.get(name), str | int)}
    is_named = not _CODES.isdisjoint(codes)
    is_said = not _is_told_by_code(error) and _MESSAGES.match(text) is not None
    if of_limits and not (is_named or is_said or _is_told_by_code(error)):
        is_named = any(_WORDS_OF_CODES.search(_BETWEEN.sub("", code)) for code in codes)
        is_said = _WORDS.search(text) is not None
    if not (is_named or is_said or _has_reason(error.get("details"))):
        return False
    if _PASSING.search(text) is not None:
        return False
    meters_quota = meters_quota or _OF_ALIBABA.search(text) is not None
    return not (meters_quota and _AMBIGUOUS in codes)


def _has_reason(details: object) -> bool:
    return isinstance(details, list) and any(
        isinstance(each, dict) and isinstance(reason := each.get("reason"), str) and reason in _REASONS
        for each in details
    )


def _is_told_by_code(error: Mapping[str, Any]) -> bool:
    """Whether the vendor's own code is known, and says what it is whatever the words (MiniMax)."""
    code = error.get("code")
    return isinstance(code, int) and code >= _LEAST_OWN and isinstance(error.get("status"), int)
