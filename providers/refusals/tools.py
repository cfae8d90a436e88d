"""Words of refusals about tools: calls by force, names, arguments, and schemas, also of JSON that is answered."""

import re

from providers.refusals.blame import is_within_answer
from providers.refusals.errors import UpstreamError
from providers.refusals.refused_fields import LONGEST

# The name of a tool has letters that the vendor does not take ("get.weather"), or too many letters: OpenAI's,
# Anthropic's and Bedrock's words. Or the arguments of an earlier call are no JSON object: Ollama's and Mistral's words.
# The stand-ins of these vendors have the pages.
OF_UNFIT_CALLS = re.compile(
    r"(?P<tool_name>\b(?:messages|input|tools|toolConfig)\b[\w.\[\]]{0,150}\.name\b['`]?"
    r"(?::| failed to satisfy constraint:) *(?:string (?:does not match pattern|too long|should (?:match|have at most))"
    r"|member must (?:satisfy regular expression|have length less)))"
    r"|(?P<call_arguments>invalid (?:json in )?tool call arguments|function arguments must be valid json"
    r"|failed to parse tool call arguments|tool call arguments (?:must be|(?:is|are) not) (?:a )?valid json"
    r"|^expecting value: line 1 column 1 \(char 0\))",
    re.IGNORECASE,
)

# A forced call of a tool is refused while the model thinks, which these models do by default: by DeepSeek in
# deepseek-ai/DeepSeek-V3/issues/1376, Moonshot in can1357/oh-my-pi/issues/1077, Anthropic in
# can1357/oh-my-pi/issues/341, and Alibaba, with another field for thinking, in cloudwego/eino/issues/994; read on
# 2026-11-29.
_OF_FORCED = re.compile(
    r"\bthinking\b[^.;!?\n]{0,80}\btool_?\s?choice\b"
    r"|\btool_?\s?choice\b[^.;!?\n]{0,100}\b(?:with|in|while|when) thinking\b",
    re.IGNORECASE,
)
_BY_A_FLAG = re.compile(r"\benable_thinking\b|required or object", re.IGNORECASE)

# Every forced call is refused: by Anthropic's newest models
# (platform.claude.com/docs/en/models/opus-5-5/migration-guide), Z.AI ("Tool choice must be auto",
# vectorize-io/hindsight/issues/4246), Bedrock ("doesn't support the toolConfig.toolChoice.any field",
# strands-agents/harness-sdk/issues/1241), and Gemini ("Function calling mode `ANY` is not enabled",
# google-gemini/deprecated-generative-ai-js/issues/241); read on 2026-11-29; DeepSeek of its older model, and OpenRouter
# ("No endpoints found that support the provided 'tool_choice' value", zed-industries/zed/issues/36094, on 2026-12-01).
_CHOICE = r"\btool_?\s?_?choice\b"
_MODE = r"\bfunction[ _]?calling(?:[ _]?config)?(?:[ _.]mode)?\b"
# Narrower than ``_REFUSES`` of ``other_words.py``, where a field's name has to be there as well: these are read beside
# words of any sentence on tools, before the verb (``_IS_NOT``) or after it (``_NO_SUPPORT``).
_IS_NOT = (
    r"(?:\bnot (?:be )?(?:supported|allowed|available|enabled|permitted|accepted|possible|implemented|used|valid)"
    r"|\bunsupported|\bincompatible|\binvalid (?:for|on|with)\b|\bno longer\b|\b(?:was|been|is) (?:removed|deprecated))"
)
_NO_SUPPORT = r"(?:\b(?:does not|do not|cannot|doesn.t|don.t|can.t|not) (?:support|allow|accept|take|force|be forced))"
# A choice that a vendor quotes is blanked out before ("tool_choice: 'tool' is not supported"): a quote of x alone.
_FORCES = (
    r"(?:\bany\b|\btool\b(?!\W?\s?_?choice)|\bfunction\b(?! ?_?calling)|\brequired\b|\bspecific\b|\bnamed\b"
    r"|\bforc\w+|\bobject\b|['\"`]x+['\"`])"
)
_OF_CALLS = re.compile(
    rf"(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,100}}"
    r"(?:\bmust be|\bshould be|\bonly|\bexpected|\bsupported values are|\bone of|\bother than)[^;!?\n]{0,40}\bauto\b"
    rf"|\bonly [^;!?\n]{{0,40}}\bauto\b[^;!?\n]{{0,60}}(?:{_CHOICE}|{_MODE})"
    rf"|(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,80}}{_FORCES}[^;!?\n]{{0,60}}{_IS_NOT}"
    rf"|(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,40}}{_NO_SUPPORT}[^;!?\n]{{0,60}}{_FORCES}"
    rf"|{_IS_NOT}[^;!?\n]{{0,20}}(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,40}}{_FORCES}"
    rf"|(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,20}}{_IS_NOT}[^;!?\n]{{0,20}}{_FORCES}"
    rf"|{_FORCES}[^;!?\n]{{0,40}}\b(?:for|of|in)[^;!?\n]{{0,20}}(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,20}}{_IS_NOT}"
    r"|\b(?:tools?|functions?|tool use|calls?) (?:cannot|can.t|may not|must not) be forced\b"
    rf"|{_NO_SUPPORT}[^;!?\n]{{0,80}}(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,20}}{_FORCES}"
    rf"|{_NO_SUPPORT}[^;!?\n]{{0,40}}{_FORCES}[^;!?\n]{{0,40}}(?:{_CHOICE}|{_MODE})"
    rf"|\bforced? (?:tool|function)[^;!?\n]{{0,60}}(?:{_IS_NOT}|{_NO_SUPPORT}|\brequires? an? (?:\w+ )?model\b)"
    rf"|{_NO_SUPPORT}[^;!?\n]{{0,40}}\bforc(?:ed|ing) (?:a |any )?(?:tool|function|call)"
    rf"|{_NO_SUPPORT} this {_CHOICE}|\bsupport the provided ['\"`]?{_CHOICE}",
    re.IGNORECASE,
)

# A strict schema breaks the rules for strict schemas: OpenAI, in whose Responses schemas are strict by default
# (kevinwatt/mysql-mcp/issues/5, bytedance/trae-agent/issues/173, vercel/ai/issues/6484). Or some are strict and others
# are not: Cerebras (RooCodeInc/Roo-Code/issues/10334).
OF_SCHEMAS = re.compile(
    r"Invalid schema for (?:function|response_format|text\.format)\b"
    r"|^tools with mixed values for 'strict' are not allowed",
    re.IGNORECASE,
)

# A schema has words, or a form, that a server does not take: Moonshot (MoonshotAI/kimi-cli/issues/2061 and 2531),
# OpenAI and Anthropic of the top of a tool's parameters (langchain-ai/langchainjs/issues/9804,
# anthropics/claude-code/issues/5319), Google (vercel/ai/issues/9761 and 12183), Cerebras
# (musistudio/claude-code-router/issues/708); read on 2026-12-01. Other words of Google's, and those of Groq and
# llama.cpp, are from memory.
OF_WORDS = re.compile(
    r"not a valid \w+[- ]flavored json schema|schema must have (?:a )?type ['\"]object['\"] and not have"
    r"|\bdoes not support oneOf, allOf,? or anyOf\b|schema didn't specify the schema type field"
    r"|parameters schema should be of type OBJECT|\bshould be non-empty for OBJECT type|\bitems: missing field"
    r"|Proto field is not repeating, cannot start list|\bwhen using any_of, it must be the only field set"
    r"|\benum\[\d{1,4}\]: cannot be empty|\bonly allowed for STRING type|\brequired\[\d{1,4}\]: property is not defined"
    r"|\binvalid JSON schema for (?:tool|function)\b|JSON schema conversion failed|^unsupported JSON schema fields: \{",
    re.IGNORECASE,
)


def forced_in(text: str) -> str:
    """Return the field that stops the thinking beside which no tool is called by force; "": no such words."""
    if _OF_FORCED.search(text) is None:
        return ""
    return "enable_thinking" if _BY_A_FLAG.search(text) else "thinking"


def refuses_forced_calls(error: UpstreamError) -> bool:
    """Whether an error refuses a forced call of a tool, or any choice of tools but the model's own."""
    if not is_within_answer(error):
        return False
    text = error.said[:LONGEST].replace("\\", "")
    return _OF_CALLS.search(text) is not None or _OF_FORCED.search(text) is not None
