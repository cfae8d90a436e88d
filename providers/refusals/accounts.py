"""The words of vendors about an account that is spent, unpaid or blocked: no request has an answer until a person acts.

Many vendors say this with the status of a rate limit, some with the status of a bad request or of a failure. All of
these count as a 402. For example, 429 ``insufficient_quota`` is a spent account, and 429 ``rate_limit_exceeded`` is a
rate limit: a limit that ends by itself within a minute, an hour or a day.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from providers.refusals.errors import ErrorKind

# The beginnings of messages with 400 that are about the key or the account, and not about the request.
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
        "allocationquota.freetieronly",
        # Tencent's, of a package of tokens or an unpaid bill: cloud.tencent.com/document/product/1729/97732
        *("failedoperation.freeresourcepackexhausted", "failedoperation.resourcepackexhausted"),
        *("failedoperation.servicestoparrears", "resourceunavailable.inarrears", "resourceunavailable.lowbalance"),
        # Volcengine: an unpaid bill; its limit of what may be spent on a model. volcengine.com/docs/82379/1299023
        *("accountoverdueerror", "setlimitexceeded"),
        "insufficient_balance",  # Venice; Novita has NOT_ENOUGH_BALANCE: github.com/veniceai/api-docs/pull/149
        "not_enough_balance",
        # one-api, and servers made of one-api; of one of their keys: github.com/QuantumNous/new-api/issues/1737
        *("insufficient_user_quota", "pre_consume_token_quota_failed"),
        "token_quota_reached",  # watsonx.ai, with 403: of the month
        "budget_exceeded",  # litellm's proxy, with 400 or 429: github.com/BerriAI/litellm/pull/37000
        "spend_limit_exceeded",  # Cline, with 429: github.com/cline/cline/pull/10207
        # Anthropic's type of a 402, and other vendors' types of a 402, also inside a stream.
        *("billing_error", "credit_balance_too_low", "insufficient_credits", "insufficient_funds", "payment_required"),
    }
)

# The beginnings of messages, where the code says nothing, or proxies have lost the code.
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
    r"|your (?:newly created )?teams? .{0,80}?(?:used all available credits|any credits|monthly spending limit)"
    r"|you have run out of credits"
    # Of Google: ai.google.dev/gemini-api/docs/billing, and github.com/openclaw/openclaw/pull/74120
    r"|your prepayment credits are depleted"
    r"|your (?:project|billing account) has exceeded its (?:monthly )?spend(?:ing)? cap"
    # Fireworks, with 412: github.com/pollinations/pollinations/issues/12136
    r"|account \S{1,80} is suspended"
    # DeepSeek, MiniMax with 500 (github.com/MiniMax-AI/MiniMax-M2/issues/62), Z.ai with its code in brackets
    r"|(?:\[\d+\]\[)?insufficient (?:account )?balance"
    r"|(?:\[\d+\]\[)?(?:您的)?(?:账户|用户|当前)?(?:余额不足|额度不足|已欠费)"
    r"|(?:sorry, )?your account balance is insufficient"  # SiliconFlow: docs.siliconflow.cn, its code 30001
    r"|organization has been restricted"  # Groq
    # Of Cohere, whose minute's limit is told in the same way: docs.cohere.com/docs/rate-limits
    r"|you are using a trial key, which is limited to [\d,]+ api calls / month"
    r"|key limit exceeded \("  # OpenRouter, of what one key may cost: openrouter.ai/docs/api_reference/limits
    r"|model access is denied due to invalid_payment_instrument"  # Bedrock, with 403
    r"|you have (?:exceeded|depleted) your monthly included credits"  # Hugging Face
    r"|(?:exceededbudget|budget has been exceeded)"  # litellm's proxy: github.com/BerriAI/litellm/issues/14144
    r"|your credit balance is too low|you have reached your specified (?:workspace )?api usage limits"
    r"|you're out of extra usage\. add more",
    re.IGNORECASE,
)
# Words of any vendor, anywhere in the message; only in the answer of a limit, which repeats nothing that a client
# wrote: a client that can make a provider say these words must not be able to take a key out. Machines, too, have
# credits, budgets and balances (of bursts, tokens, loads), so the words must name an owner. No two repeated parts of
# the pattern can take the same letters.
_OWNED: Final = (
    r"(?:your|its|the|account|wallet|user|team|customer|organi[sz]ation|project|workspace|key|api|prepaid|paid|free"
    r"|current|remaining|available|sufficient|total|monthly|max|cost|usd|credit)[ _]"
)
_WHOSE: Final = rf"(?:^|[:.,;!(] ?|\b{_OWNED})"
_MONEY: Final = r"(?:balance|credits?(?! cards?\b)|funds?)(?![a-z])"
_IS: Final = r"(?: (?:is|are|was|were|has been|have been))?"
_WORDS: Final = re.compile(
    rf"\b(?:insufficient|not enough)[ _](?:{_OWNED}){{0,3}}(?:{_MONEY}|money\b)"
    rf"|{_WHOSE}{_MONEY}{_IS} (?:insufficient|not (?:enough|sufficient)|exhausted|depleted|too low|used up|negative)"
    rf"|\bout of (?:{_OWNED}){{0,3}}(?:credits?|funds?|money)\b|\brun out of (?:{_OWNED}){{0,3}}balance\b"
    rf"|\bno (?:(?:more|remaining|available) )?{_MONEY}|{_WHOSE}low balance\b"
    r"|\b(?:unpaid|overdue|outstanding) (?:bill|invoice|balance|payment)s?\b"
    r"|\b(?:bill|invoice|payment|account)(?: is)? overdue\b|\barrears?\b"
    r"|\binvalid[ _]payment[ _]instrument\b"  # Bedrock, with 403: a model of the marketplace without a card
    r"|\bbilling to be enabled\b|\bcredit card on file\b"  # Vertex and Vercel, with 403
    r"|\bpayment (?:is )?required\b|\bplease (?:recharge|top[ -]?up)\b"
    rf"|\bspend(?:ing)?(?: limit| cap)?{_IS} (?:reached|exceeded)|\bbilling (?:limit|cap){_IS} (?:reached|exceeded)"
    rf"|{_WHOSE}(?:budget|credit)(?: limit| cap){_IS} (?:reached|exceeded)|{_WHOSE}budget{_IS} exceeded"
    rf"|\b(?:reached|exceeded) (?:{_OWNED}){{1,3}}(?:spend(?:ing)?|budget|billing|credit) (?:limit|cap)\b"
    r"|\baccount (?:is|has been) (?:suspended|deactivated|frozen|disabled)\b"
    r"|\b(?:subscription|plan|trial) (?:is|has)(?: been)? (?:expired|ended|lapsed|inactive|cancel\w+)\b"
    r"|\bresource ?pack(?:age)?s?(?: is| are)? (?:exhausted|run ?out)\b"
    r"|余额不足|余额已?用[完尽]|额度不足|额度已?用[完尽]|资源包(?:余量)?已?用[完尽]|欠费|请(?:先)?充值"
    # German, French, Spanish and its relatives, Russian, Japanese, Korean
    r"|\bguthaben\b[^.;!?\n]{0,20}\b(?:aufgebraucht|erschöpft|leer|reicht nicht|nicht ausreichend)\b"
    r"|\b(?:solde|crédits?)\b[^.;!?\n]{0,20}\b(?:insuffisants?|épuisée?s?)\b"
    r"|\b(?:saldo|cr[eé]dit[oi]s?|fondos|fundos)\b[^.;!?\n]{0,20}\b"
    r"(?:insuficientes?|insufficiente|agotad[oa]s?|esgotad[oa]s?|esaurit[oi])\b"
    r"|недостаточно средств|(?:баланс|кредит)\w* (?:исчерпан|законч)"
    r"|(?:残高|クレジット)(?:が|は)?(?:不足|ありません|なくなり)|(?:잔액|크레딧)[이가]? ?(?:부족|소진|없)",
    re.IGNORECASE,
)
# Words like these that may as well be about a limit that ends by itself.
_SOON: Final = re.compile(
    r"\bplease wait\b|\ba moment\b|\bshortly\b|\btemporar(?:y|ily)\b|(?<!and )(?<!then )\btry again\b|\bconcurren"
    r"|\brequests at once\b|\b(?:raise|increase|lift|higher|reduced) (?:(?:your|the|rate) )?limits\b|稍[后候]"
    r"|\bspäter\b|\bplus tard\b|\bm[aá]s tarde\b|\bmais tarde\b|\bpiù tardi\b|повторите|後で|しばらく|나중에|잠시",
    re.IGNORECASE,
)
# An error that OpenRouter quotes is about OpenRouter's own account at that vendor. OpenRouter asks another vendor next.
_QUOTING: Final = re.compile(r"provider returned error|upstream error from ", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")  # of a code
_LONGEST_TEXT: Final = 4096  # characters of a message that are searched
_LONGEST_CODE: Final = 200
_BEFORE: Final = re.compile(r"(?:litellm\.)?(?:\w+(?:Error|Exception)(?:: | - ))*")  # what proxies write before it
# What a refusal is about that is none of the key, the account or a rate: a server that a tool asks may say the same
# words, a field may have such a name, and a value of the request may be quoted.
_OF_THE_REQUEST: Final = re.compile(
    r"\b(?:mcp|tools?|functions?|connectors?|urls?|images?|pictures?|files?|documents?|downloads?|download(?:ed|ing)"
    r"|fetch\w*|webhooks?|plugins?|schemas?|json|parameters?|params?|fields?|property|properties|arguments?|positions?"
    r"|values?|messages?\[|stop|roles?|servers?(?! is| are)|http status|metadata|temperature|characters?|prompts?)\b"
    r"|[`{}\[\]<>]|https?://(?!\S*(?:key|billing|console|account|docs|platform|dash))"
    r"|\b(?!(?:api|access|auth|security)_|rate_limit|insufficient_|request_id)[a-z]+_[a-z_]+\b"
    r"|\b(?:champs?|campos?|fel(?:der|d)|par[aá]m\w+)\b|параметр|字段|参数|參數|パラメータ|フィールド|매개변수|필드",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(
    r"(?<!\w)(['\"\u201c\u201e\u2018\u00ab\u300c])[^'\"\u201d\u2019\u00bb\u300d]{0,200}['\"\u201d\u2019\u00bb\u300d](?!\w)"
)
_LONGEST_ALONE: Final = 300  # characters of a message that says nothing else
# In these, no ending of a word is without a bound: "invalidinvalid…" would be read from each "invalid" to its end.
_KEYS: Final = (
    r"(?:api[ _-]?keys?|x-api-key|access[ _-]?(?:keys?|tokens?)|(?:auth\w{0,12}|bearer|security|secret|session)[ _-]"
    r"(?:keys?|tokens?|headers?)|(?:app|secret|subscription)[ _-]?keys?|credentials?"
    # German, Dutch, the Nordic languages, French, Spanish and its relatives, Polish, Turkish, Vietnamese, Indonesian
    r"|api-?(?:schlüssel|token|sleutel|nyckel|nøgle|nøkkel)|zugangs(?:schlüssel|daten|token)"
    r"|zugriffs(?:token|schlüssel)"
    r"|(?:cl[ée]|clave|llave|chave|chiave|klucz|khóa|kunci)s? (?:d['\u2019 ]?|de |de l['\u2019]|da |do |della )?api"
    r"|(?:jeton|token) (?:d['\u2019]|de |di )(?:acc[eè]s\w{0,12}|authentif\w{1,12})"
    r"|credencia(?:l|is|les)|credenziali|api anahtar\w{0,12}"
    # Russian, Arabic, Chinese, Japanese, Korean
    r"|(?:api|апи)[ -]?(?:ключ|токен)\w{0,12}|ключ\w{0,12} (?:api|доступа)|токен\w{0,12} доступа"
    r"|учётн\w{1,12} данн\w{1,12}|учетн\w{1,12} данн\w{1,12}"
    r"|مفتاح[^.\n]{0,6}api|(?:api ?)?(?:密[钥鑰匙]|秘[钥鑰匙]|令牌)"
    r"|api ?キー|アクセス(?:トークン|キー)|認証(?:情報|キー|トークン)"
    r"|api ?키|액세스 ?토큰|인증 ?(?:정보|키|토큰))"
)
_BAD: Final = (
    r"(?:invalid|incorrect|wrong|expired|revoked|disabled|deactivated|suspended|blocked|missing|malformed|unknown"
    r"|badly formatted|rejected|unrecogni[sz]ed|required"
    r"|not (?:be )?(?:valid|found|provided|recogni[sz]ed|authori[sz]ed|active|exist)"
    r"|(?:does not|doesn.t) exist|no longer valid|no (?:valid )?"
    r"|ungültig\w{0,12}|falsch\w{0,12}|abgelaufen\w{0,12}|gesperrt\w{0,12}|widerrufen\w{0,12}"
    r"|unbekannt\w{0,12}|fehlt|fehlend\w{0,12}|nicht gültig"
    r"|ongeldig\w{0,12}|verlopen|ogiltig\w{0,12}|ugyldig\w{0,12}"
    r"|invalid\w{0,12}|incorr\w{1,12}|expirée?s?|révoquée?s?|inconnue?s?|manquante?s?|non valides?|pas valides?"
    r"|inv[áa]lid[ao]s?|(?:no|não) (?:es |é )?v[áa]lid[ao]s?|non (?:è )?valid[ao]|caducad[ao]|(?:e?xpirad|scadut)[ao]"
    r"|revocad[ao]|revogad[ao]|revocat[ao]|errat[ao]"
    r"|nieprawidłow\w{1,12}|nieważn\w{1,12}|wygasł\w{0,12}|geçersiz|không hợp lệ|hết hạn|tidak valid"
    r"|неверн\w{1,12}|недействител\w{1,12}|недопустим\w{1,12}|просроч\w{1,12}|ист[её]к\w{0,12}"
    r"|отозван\w{0,12}|не найден\w{0,12}|غير صالح|منتهي"
    r"|无效|無效|错误|錯誤|过期|過期|失效|不正确|不正確|不存在|禁用|停用|缺失|未提供|非法"
    r"|無効|不正|正しくあり|期限切れ|失効|見つかり"
    r"|유효하지|잘못|만료|무효|올바르지|틀렸)"
)
_OF_KEY: Final = re.compile(
    rf"{_BAD}[^.;!?\n。]{{0,20}}{_KEYS}|{_KEYS}[^.;!?\n。]{{0,40}}{_BAD}"
    r"|^(?:invalid|expired) token\W*$|^token (?:is |has )?(?:invalid|expired|revoked)"
    r"|^(?:unauthori[sz]ed|unauthenticated|not (?:authenticated|authori[sz]ed))"
    r"(?= (?:access|request|client|user)|\W*$|[.:,;])"
    r"|\bauth(?:entication|orization)? (?:has )?(?:failed|fails|error|required)|\bfail(?:ed)? to auth"  # Novita
    r"|^login fail|^not logged in\b|\bbad credentials\b"
    r"|\bauthentifizierung (?:\w{1,12} )?fehlgeschlagen|\bnicht (?:autorisiert|authentifiziert)|\bnon autorisé"
    r"|échec de l['\u2019]authentif\w{1,12}|authentif\w{1,12} (?:a )?échoué|\b(?:no|não) autorizado|\bnon autorizzato"
    r"|\bautentica\w{1,12} (?:fallid[ao]|fallita|falhou)|ошибка (?:аутентификации|авторизации)|не авторизован"
    r"|(?:鉴权|认证|身份验证|授权)失败|認証(?:に失敗|エラー)|인증(?:에)? ?(?:실패|오류)",
    re.IGNORECASE,
)
_CODES_OF_KEYS: Final = re.compile(
    r"authenticat|unauthori[sz]ed|unrecognizedclient|expiredtoken|invalidclienttokenid|invalidsignature"
    r"|incompletesignature",
    re.IGNORECASE,
)
# Limits that end by themselves, or are of one user of a proxy's client, whatever the code is called.
_PASSING: Final = re.compile(
    r"(?<!higher )rate.?limit|\bper[ -](?:minute|second|hour|day)\b|/ ?(?:min|sec|hour|day)|\b[rt]p[msd]\b"
    r"|(?<!fixed this issue, )(?:retry|try again|come back) (?:in|after) \d|allocated quota|\bend user\b|\breset"
    r"|in-flight"
    r"|每[日天秒]|每分钟|每小时|[今明][日天]",
    re.IGNORECASE,
)
# Alibaba says that a quota is used up, in OpenAI's words (help.apiyi.com/?p=10015), and means the tokens of a minute.
# The page that a message names shows which vendor's message it is.
_OF_ALIBABA: Final = re.compile(r"aliyun|alibabacloud|dashscope", re.IGNORECASE)
_AMBIGUOUS: Final = "insufficient_quota"
_LEAST_OWN: Final = 1000  # smaller codes may be a status
_REASONS: Final = frozenset({"BILLING_DISABLED", "CONSUMER_SUSPENDED"})  # of a google.rpc.ErrorInfo


# Codes and types about keys and models: nothing in a request can cause these.
_OF_KEYS: Final = re.compile(
    r"key|auth|token|credential|permission|identity|account|subscription|\b40\d\b|invalid.?request", re.IGNORECASE
)
_OF_FORBIDDEN_KEYS: Final = re.compile(
    r"(?:invalid|incorrect|expired|disabled|revoked|deactivated|suspended|unknown|missing|no)\W?_?"
    r"(?:api)?\W?_?(?:key|token|account|credentials?)"
    r"|(?:key|token|account|credentials?)\W?_?(?:invalid|incorrect|expired|disabled|revoked|deactivated|suspended)",
    re.IGNORECASE,
)
_OF_MODELS: Final = re.compile(r"model_?not_?(?:found|exist)|deployment_?not_?found", re.IGNORECASE)
_OF_LIMITS: Final = re.compile(r"\bper (?:second|minute|hour|day)\b|\b[RT]P[SMHD]\b|requests?/min", re.IGNORECASE)
_REASONS_OF_KEYS: Final = frozenset({"API_KEY_INVALID", "SERVICE_DISABLED", "ACCESS_TOKEN_EXPIRED", *_REASONS})
_UNAUTHORIZED, _UNPAID = 401, 402


def is_certain(kind: ErrorKind, status: int | None, error: Mapping[str, Any]) -> bool:
    """Whether an error of this kind is, by its code, about the key, the account, the model's name or a rate.

    No request can have caused such an error, so it counts for all clients at once. A 401 with another code may come
    from a tool's own server.
    """
    said = [str(word) for name in ("code", "type", "status") if isinstance(word := error.get(name), str | int)]
    codes = " ".join(said)[:_LONGEST_CODE]
    if kind is ErrorKind.RATE_LIMITED:
        message = error.get("message")
        words = message[:_LONGEST_TEXT] if isinstance(message, str) else ""
        return "rate_limit_exceeded" in codes or _OF_LIMITS.search(words) is not None
    if kind is ErrorKind.NOT_FOUND:
        return _OF_MODELS.search(codes) is not None
    if kind is not ErrorKind.PROVIDER_AUTH:
        return False
    if status == _UNPAID or (status == _UNAUTHORIZED and (not codes or _OF_KEYS.search(codes) is not None)):
        return True
    message = error.get("message")
    is_refused = isinstance(message, str) and message.startswith(REFUSED)
    is_coded = _OF_FORBIDDEN_KEYS.search(codes) is not None or _OF_MODELS.search(codes) is not None
    is_key = is_coded or _has_reason(error.get("details"), _REASONS_OF_KEYS)
    return is_refused or is_key or is_spent(error)


def alone(text: str) -> str:
    """Return a message without quotes, if it may say nothing but that a key, an account or a rate is refused; else "".

    Such words with 400 may be about the request: of a tool's server, or of a field's value.
    """
    said = _QUOTED.sub(" ", text)
    return said if len(said) <= _LONGEST_ALONE and _OF_THE_REQUEST.search(said) is None else ""


def is_key_refused(error: Mapping[str, Any], said: str) -> bool:
    """Whether an error with 400 refuses the key, by its code or by what it alone says (``alone``).

    For example "Invalid API key", "Clé API inconnue".
    """
    codes = " ".join(str(code)[:_LONGEST_CODE] for name in ("code", "type") if (code := error.get(name)) is not None)
    is_coded = _OF_FORBIDDEN_KEYS.search(codes) is not None or _CODES_OF_KEYS.search(codes) is not None
    return bool(said) and (is_coded or _OF_KEY.search(said) is not None)


def is_spent(
    error: Mapping[str, Any], *, meters_quota: bool = False, any_codes: bool = False, any_words: bool = False
) -> bool:
    """Whether an error object says that the account has no money left, or is blocked.

    ``meters_quota``: the vendor calls a minute's tokens a quota. ``any_codes`` and ``any_words``: codes, and words, of
    any vendor count, as the error is not about the request.
    """
    match error.get("metadata"):
        case {"provider_name": str()} | {"raw": str()}:
            return False
    message = error.get("message")
    text = _BEFORE.sub("", message[:_LONGEST_TEXT], count=1) if isinstance(message, str) else ""
    named = {
        name: str(code)[:_LONGEST_CODE] for name in ("code", "type") if isinstance(code := error.get(name), str | int)
    }
    codes = {code.lower() for code in named.values()}
    if not _CODES.isdisjoint(codes) or _has_reason(error.get("details")):
        is_said = True
    elif _is_told_by_code(error):
        is_said = False
    else:
        is_said = _MESSAGES.match(text) is not None or _is_likely(text, named, any_codes, any_words)
    if not is_said or _PASSING.search(text) is not None:
        return False
    meters_quota = meters_quota or _OF_ALIBABA.search(text) is not None
    return not (meters_quota and _AMBIGUOUS in codes)


def _is_likely(text: str, named: Mapping[str, str], any_codes: bool, any_words: bool) -> bool:
    """Whether codes or words that no list has say that the account is spent ("your credit is used up").

    If other words say that the limit passes ("try again in 20 s"), the account is not spent.
    """
    if _SOON.search(text) is not None:
        return False
    words_of = {name: " ".join(_WORD.findall(code)) for name, code in named.items()}
    passing = {name for name, code in words_of.items() if _PASSING.search(code) is not None}
    if any_codes and any(name not in passing and _WORDS.search(code) is not None for name, code in words_of.items()):
        return True
    # In Messages every 429 has the type of a rate limit, so the type tells nothing.
    is_open = any_words and "code" not in passing and _QUOTING.match(text) is None
    return is_open and _WORDS.search(text) is not None


def _has_reason(details: object, reasons: Collection[str] = _REASONS) -> bool:
    return isinstance(details, list) and any(
        isinstance(each, dict) and isinstance(reason := each.get("reason"), str) and reason in reasons
        for each in details
    )


def _is_told_by_code(error: Mapping[str, Any]) -> bool:
    """Whether the vendor's own code is known, and decides whatever the words are (MiniMax)."""
    code = error.get("code")
    return isinstance(code, int) and code >= _LEAST_OWN and isinstance(error.get("status"), int)
