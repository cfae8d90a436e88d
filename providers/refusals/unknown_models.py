"""Refusals of a model that the provider does not have. A 404 may mean the path instead; a 400 may mean anything."""

import re
from http import HTTPStatus

from providers.refusals.blame import is_within_answer
from providers.refusals.errors import ErrorKind, UpstreamError
from providers.refusals.refused_fields import SENTENCES

# Vendors that say with 400 what others answer with 404: Vertex AI of a region, OpenAI of ChatGPT's accounts
# (openai/codex/issues/26053, read on 2026-12-01), DeepSeek, SiliconFlow, Mistral, Perplexity, Groq, Z.ai
# (github.com/JailbrokenAI/wallbreaker/issues/20, read on 2026-11-29), OpenRouter, LiteLLM, Together, Bedrock
# (anthropics/claude-code/issues/65208; for a model that needs an inference profile, with another apostrophe:
# cline/cline/issues/2482, read on 2026-11-30), xAI, GitHub Models and Copilot, Cloudflare.
_NAMED = r"[`'\"]?(?P<{}>[^\s`'\"]{{1,200}}?)[`'\"]?"
_UNKNOWN_MODEL = re.compile(
    r"(?:invalid params?, |/[\w/]{1,60}: )?"
    r"(?:(?:The|This) (?:\w+ )?model(?: version)? has reached (?:the|its) end of (?:its )?life"
    r"|(?:The )?Model (?:Not Exist|does not exist)|Invalid model(?:: | '| name\b)|Unknown Model, please"
    r"|(?:该|此|当前|所选)?模型[^。\uff0c,\n]{0,20}(?:不存在|已下线|已停用|已废弃|已弃用)"
    r"|The requested model is not (?:supported|available)(?: for your \w+)?\.?$"
    r"|The model \S+ has been decommissioned"
    r"|The provided model identifier is invalid|Unable to access model\b"
    rf"|Invocation of model ID {_NAMED.format('invoked')} with on-demand throughput isn"
    rf"|(?:The )?(?:requested )?model {_NAMED.format('named')},? (?:is not found|not found|(?:does not|doesn.t) exist"
    r"|(?:has been|was|is) (?:deprecated|retired|discontinued|shut down)\b"
    r"|(?:has )?reached (?:the|its) end of (?:its )?life|is no longer (?:available|supported|served))"
    rf"|{_NAMED.format('id')} is not a valid model ID"
    rf"|Publisher Model(?: {_NAMED.format('published')})? is not servable in region\b"
    rf"|The {_NAMED.format('barred')} model is not supported when using \w+ with an? \w+ account\b"
    rf"|(?:(?:Unknown|Unsupported|Unavailable|No such) model|Model not found):? {_NAMED.format('unknown')}"
    r"(?=[.,]?(?:\s|$))"
    rf"|Failed to load model {_NAMED.format('loaded')}\. Error: Model not found"
    r"|[^.;\n]{0,80}(?:not|n.t) (?:have access|have permission|allowed) to (?:access )?(?:the |this )?model\b"
    rf"(?: {_NAMED.format('closed')}(?=[.,]?(?:\s|$)))?)",
    re.IGNORECASE,
)

# Codes of no such model. A request may name other models beside its own, and a code may mean one of those: OpenAI
# (github.com/skorokithakis/sysaidmin/issues/9, read on 2026-11-29), Groq, Hugging Face, GitHub, Together.
_OF_UNKNOWN_MODELS = frozenset(
    {
        *("model_not_found", "model_decommissioned", "model_terms_required", "model_not_supported", "unknown_model"),
        *("model_not_available", "model_deprecated", "model_retired", "invalid_model"),
    }
)
# In words that do not name a model: "This deployment was retired on 2026-11-01".
_GONE = re.compile(
    r"\b(?:deployment|checkpoint|snapshot)\b[^.;/\n]{0,60}\b(?:(?:does not|doesn.t) exist|not found|unknown|retired"
    r"|decommissioned|deprecated|discontinued|no longer|end of (?:its )?life)\b"
    r"|^function '[\w-]{1,64}': not found for account"  # NVIDIA NIM
    r"|\b(?:no such|unknown) (?:deployment|checkpoint|snapshot)\b",
    re.IGNORECASE,
)
# In any words, beside the name that was asked for: that there is no such thing.
_IS_ABSENT = (
    r"(?:(?:is |was |were )?not (?:be )?found|(?:does not|doesn.t|did not) exist|no such|not exist|not known"
    r"|(?:is |are )?unknown|no longer (?:available|served|exists)|(?:has been |was |is )?(?:retired|decommissioned"
    r"|discontinued|shut down|removed)|could not (?:be found|find)|(?:is )?(?:not deployed|gone)"
    r"|nicht gefunden|unbekannt\w*|existiert nicht"
    r"|gibt es nicht|introuvable|inconnue?|n.existe pas|no existe|no encontrad[oa]|n\u00e3o (?:existe|encontrad[oa])"
    r"|non (?:esiste|trovat[oa])|не (?:найден\w*|существует)|不存在|未找到|找不到|見つかりません|存在しません"
    r"|찾을 수 없습니다|존재하지 않습니다)"
)
_ABSENT = re.compile(_IS_ABSENT, re.IGNORECASE)
_LONGEST = 300  # characters of a message that says nothing else
_LONGEST_SENTENCES = 4096  # characters of a message that are searched
# What else may be absent in a sentence that names the model.
_ANOTHER_THING = re.compile(
    r"https?:|/v\d|\b(?:GET|POST|urls?|paths?|routes?|endpoints?|pages?|files?|tools?|functions?|responses?|items?|ids?"
    r"|conversations?|images?|users?|keys?|parameters?|fields?|adapters?|versions?|methods?|handlers?|tokenizers?)\b",
    re.IGNORECASE,
)
_FILLING = (
    r"(?:\W|[がは]|\d{3}\b|_|\b(?:the|requested|error|resource|deployment|engine|snapshot|checkpoint|llm|model|named?|called|a"
    r"|with|de|das|der|die|le|la|el|o|on|in|here|this|server|project|region|at|any|you|asked|for)\b)*"
)
_CODES_OF_NO_MODEL = frozenset({"model_not_found", "DeploymentNotFound"})

# A key that is good for other models: OpenAI, with the code of no such model (Aider-AI/aider/issues/1903), Bedrock
# (anthropics/claude-code/issues/536), Alibaba (QwenLM/qwen-code/issues/3424), Google and AWS of the model's resource,
# Groq, LiteLLM's proxy, one-api and servers made of it; read on 2026-12-01.
_CODES_OF_NO_ACCESS = frozenset(
    {
        *(
            *_OF_UNKNOWN_MODELS,
            "1220",
            "1311",
            "Model.AccessDenied",
            "key_model_access_denied",
            "team_model_access_denied",
        ),
        *("user_model_access_denied", "model_permission_blocked_org", "model_permission_blocked_project"),
    }
)
_NO_ACCESS = re.compile(
    r"(?:\b(?:not|no|without|lacks?|denied)|n.t) (?:have )?(?:\w+ )?(?:access|permissions?)\b"
    r"|\b(?:access|permission)\b.{0,80}\b(?:denied|restricted)\b|无权"
    r"|\bnot (?:been )?(?:allowed|permitted|authori[sz]ed|entitled|enabled|eligible|granted|activated)\b"
    r"|\bplan (?:does )?not support\b|\brequires? an? (?:\w+ )?subscription\b",
    re.IGNORECASE,
)
_A_MODEL = re.compile(r"(?<![.\w])models?(?!\w|\.\w)|模型", re.IGNORECASE)
_BAD_KEY = re.compile(
    r"\b(?:invalid|incorrect|wrong|expired|revoked|missing)\b.{0,20}\b(?:keys?|tokens?|credentials?)\b", re.IGNORECASE
)


def names_model(error: UpstreamError) -> bool:
    """Whether a 404 is about the model, and not about the path.

    OpenRouter: "No endpoints found for …"; Azure: the code ``DeploymentNotFound``; Zhipu: "模型不存在".
    """
    text = error.said
    return (
        "model" in text.lower()
        or "模型" in text
        or text.startswith("No endpoints found")
        or _GONE.search(text) is not None
        or not _CODES_OF_NO_MODEL.isdisjoint(error.names)
        or error.findings.is_of_asked_model
    )


def bars_model(error: UpstreamError) -> bool:
    """Whether a refused key may only not ask this model, and is good for others.

    For example, 403 "Project `proj_1` does not have access to model `gpt-5`".
    """
    if error.kind is not ErrorKind.PROVIDER_AUTH or error.status == HTTPStatus.PAYMENT_REQUIRED:
        return False
    text = error.said[:_LONGEST_SENTENCES]
    return not _CODES_OF_NO_ACCESS.isdisjoint(error.names) or (
        _BAD_KEY.search(text) is None
        and any(
            _NO_ACCESS.search(sentence) is not None and _A_MODEL.search(sentence) is not None
            for sentence in SENTENCES.split(text)
        )
    )


def says_gone(model: str, error: UpstreamError) -> bool:
    """Whether an error says that there is no ``model``, in words of no list: "Not Found: qwen-3-8b".

    A 404 has such a sentence, which names nothing else; a 400 says nothing else.
    """
    if not model or model not in error.said:
        return False
    name = rf"(?<![\w./:@-])(?:models/)?{re.escape(model)}(?![A-Za-z0-9_/@-]|[.:][A-Za-z0-9_])"
    if error.kind is ErrorKind.BAD_REQUEST:
        alone = rf"{_FILLING}(?:{name}{_FILLING}{_IS_ABSENT}|{_IS_ABSENT}{_FILLING}{name}){_FILLING}"
        return len(error.said) <= _LONGEST and re.fullmatch(alone, error.said, re.IGNORECASE) is not None
    return error.kind is ErrorKind.NOT_FOUND and any(
        re.search(name, sentence) is not None
        and _ABSENT.search(sentence) is not None
        and _ANOTHER_THING.search(re.sub(name, " ", sentence)) is None
        for sentence in SENTENCES.split(error.said)
    )


def is_unknown(model: str, error: UpstreamError) -> bool:
    """Whether a 400, or an error within an answer, says that ``model`` does not exist.

    A request may name other models beside it.
    """
    if error.kind is not ErrorKind.BAD_REQUEST and not is_within_answer(error):
        return False
    if error.findings.is_of_asked_model:
        return True
    if not _OF_UNKNOWN_MODELS.isdisjoint(error.names) and model in error.said:
        return True
    found = _UNKNOWN_MODEL.match(error.said)
    if found is None:
        return False
    named = next(filter(None, found.groups()), None)
    return named is None or model in {named, named.removeprefix("models/"), named.rpartition("/models/")[2]}
