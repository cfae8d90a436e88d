"""Refusals of a model that the provider does not have. A 404 may mean the path instead; a 400 may mean anything."""

import re

from providers.refusals.errors import ErrorKind, UpstreamError

# Vendors that say with 400 what others answer with 404: DeepSeek, SiliconFlow, Mistral, Perplexity, Groq, Z.ai
# (github.com/JailbrokenAI/wallbreaker/issues/20, read on 2026-11-29), OpenRouter, LiteLLM, Together, Bedrock
# (anthropics/claude-code/issues/65208; for a model that needs an inference profile, with another apostrophe:
# cline/cline/issues/2482, read on 2026-11-30), xAI, GitHub Models and Copilot, Cloudflare.
_NAMED = r"[`'\"]?(?P<{}>[^\s`'\"]{{1,200}}?)[`'\"]?"
_UNKNOWN_MODEL = re.compile(
    r"Model (?:Not Exist|does not exist)|Invalid model(?:: | '| name\b)|Unknown Model, please"
    r"|(?:该|此|当前|所选)?模型[^。\uff0c,\n]{0,20}(?:不存在|已下线|已停用|已废弃|已弃用)"
    r"|The requested model is not (?:supported|available)(?: for your \w+)?\.?$"
    r"|The model \S+ has been decommissioned"
    r"|The provided model identifier is invalid|Unable to access model\b"
    rf"|Invocation of model ID {_NAMED.format('invoked')} with on-demand throughput isn"
    rf"|(?:The )?(?:requested )?model {_NAMED.format('named')},? (?:is not found|not found|(?:does not|doesn.t) exist"
    r"|(?:has been|was|is) (?:deprecated|retired|discontinued|shut down)\b"
    r"|(?:has )?reached (?:the|its) end of (?:its )?life|is no longer (?:available|supported|served))"
    rf"|{_NAMED.format('id')} is not a valid model ID"
    rf"|(?:(?:Unknown|Unsupported|No such) model|Model not found):? {_NAMED.format('unknown')}(?=[.,]?(?:\s|$))",
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
    r"|decommissioned|deprecated|discontinued|no longer|end of (?:its )?life)\b",
    re.IGNORECASE,
)
_CODES_OF_NO_MODEL = frozenset({"model_not_found", "DeploymentNotFound"})


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
    )


def is_unknown(model: str, error: UpstreamError) -> bool:
    """Whether a 400 says that ``model`` does not exist; a request may name other models beside it."""
    if error.kind is not ErrorKind.BAD_REQUEST:
        return False
    if not _OF_UNKNOWN_MODELS.isdisjoint(error.names) and model in error.said:
        return True
    found = _UNKNOWN_MODEL.match(error.said)
    if found is None:
        return False
    named = next(filter(None, found.groups()), None)
    return named is None or model in {named, named.removeprefix("models/")}
