"""The rules by which a provider's refusal of a request is understood.

A refusal that names a field may be about the field's absence, size or meaning. Only a sentence counts as a rule that
says that the model or the server does not have the field, or does not take the value: 400 "Unsupported parameter:
'verbosity'". ``other_words.py`` reads the words of no rule;
``exchange/taught.py`` decides what may be left out.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from providers.refusals.content import is_refused_by_filter
from providers.refusals.errors import SURPRISES, UNREADABLE, RefusalScope, UpstreamError, kinds
from providers.refusals.learnt import LEAST_ROOM, Fact, Kind
from providers.refusals.other_words import in_other_words, is_foreign, is_of_foreign_value, mentioned
from providers.refusals.refused_fields import (
    CONDITION,
    LITERALS,
    MARKS_REFUSED,
    MOST_FIELDS,
    NO_VALUE,
    NOUN,
    RefusedField,
    path_of,
)
from providers.refusals.too_long import counts_too_many, is_too_long
from providers.refusals.vendor_limits import longest_in

_Q = r"['\"`]?"
_FIELD = r"(?P<field>[A-Za-z_][\w.\[\]/-]{0,99})"
_LOC = (
    r"loc['\"]: ?[\[(](?P<loc>[^\])]{1,200})[\])]"
    r"(?:, ?['\"](?:type|input)['\"]: ?['\"][^'\"]{0,60}['\"])?, ?['\"]msg['\"]: ?['\"]"
)
_VALUES = r"(?P<values>[^.;\[\]{}]{1,200})"


_REFUSED_VALUE = rf"{_FIELD}=['\"][^'\"]{{1,40}}['\"] is not supported for this model"


class Rule(NamedTuple):
    """The words of a refusal, as the named projects quote it on GitHub.

    Groups: ``field``; ``instead``: the name to use; ``values``: those that are taken; ``fields``: several names;
    ``within``: where the field is; ``loc``: the path of the field, as pydantic writes it; ``default``: the only value.
    """

    words: str
    said_by: str
    is_of_value: bool = False  # of one value of the field


# Read on 2026-11-27.
RULES: tuple[Rule, ...] = (
    Rule(
        r"Unrecognized request arguments? supplied: (?P<fields>\w+(?:, ?\w+)*)",
        "OpenAI, chat: formulahendry/wechat-acp/issues/16, davidmigloz/langchain_dart/issues/712",
    ),
    Rule(
        rf"Unsupported parameter: {_Q}{_FIELD}{_Q} is not supported with this model(?:\. Use '(?P<instead>\w+)')?",
        "OpenAI, chat: griptape-ai/ComfyUI-Griptape/issues/312; Responses: BerriAI/litellm/pull/38842",
    ),
    Rule(
        rf"Unsupported value: '{_FIELD}' does not support .{{1,80}}? with this model\."
        rf"(?: Only the default \((?P<default>[^()]{{1,40}})\) value is supported| Supported values are: {_VALUES})?",
        "OpenAI, chat: cline/cline/issues/341, QwenLM/qwen-code/issues/921",
        is_of_value=True,
    ),
    Rule(
        r"invalid (?P<field>\w{1,60}): only (?P<default>[\w.]{1,40}) is allowed for this model",
        "Moonshot: XCNXNXNX/dsh-portable-tavern/issues/1",
    ),
    Rule(
        rf"(?P<field>[a-z_]{{1,60}}){_Q} (?:must|can only|may only) be (?:exactly |set to )?(?P<default>\d(?:\.\d)?)"
        r"(?= (?:for|with) (?:this|the) |\W*$)",
        "own servers, and proxies before others",
    ),
    Rule(
        r"\bonly (?P<field>[a-z_]{1,60}) ?(?:=|of|:) ?(?P<default>\d(?:\.\d)?) is (?:supported|allowed)",
        "own servers, and proxies before others",
    ),
    Rule(
        rf"Unsupported value: '[^']{{1,60}}' is not supported .{{1,120}} Supported values are: {_VALUES}",
        "OpenAI, Responses, with the field in ``param``: openai/codex/issues/6647",
        is_of_value=True,
    ),
    Rule(r"(?P<include>Encrypted content) is not supported", "OpenAI, Responses: pydantic/pydantic-ai/issues/3326"),
    Rule(
        "must be verified to generate reasoning summaries",
        "OpenAI, Responses, with the field in ``param``: openai/openai-cookbook/issues/2271,"
        " OpenHands/software-agent-sdk/issues/987",
    ),
    Rule(
        r"(?P<adaptive>adaptive thinking is not supported|for thinking; 'adaptive' is not)",
        "Anthropic: agentforce314/clawcodex/pull/699; Alibaba: anthropics/claude-code/issues/29531",
    ),
    Rule(
        r"(?P<enabled>\"?thinking\.type\.enabled\"? is not supported)",
        "Anthropic: zhukunpenglinyutong/jetbrains-cc-gui/issues/1003",
    ),
    Rule(
        rf"{_REFUSED_VALUE}(?!\. Must be)",
        "Mistral, of a model that does not think: architects-toolkit/SmartHopper/issues/647",
    ),
    Rule(
        rf"{_REFUSED_VALUE}\. Must be one of (?P<values>[^;]{{1,200}})",
        "Mistral, of one that does: likewise",
        is_of_value=True,
    ),
    Rule(
        rf"{_FIELD}: ['\"][^'\"]{{1,40}}['\"] is not supported (?:for|by|with) this model",
        "Anthropic, of an effort: elizaOS/eliza/pull/16175",
        is_of_value=True,
    ),
    Rule(
        rf"{_Q}{_FIELD}{_Q} ?: value is not one of the allowed values \[(?P<values>[^\]]{{1,200}})\]",
        "Groq and others with kin-openapi: openai/openai-agents-python, its page of models",
        is_of_value=True,
    ),
    Rule(
        r"Invalid (?P<field>reasoning_effort): \w{1,40}",
        "Gemini's chat completions, ByteDance: without those that it takes",
        is_of_value=True,
    ),
    Rule(
        r"'(?P<within>[\w.\[\]]{1,100})' ?: property '(?P<field>\w{1,100})' is unsupported",
        "Groq: karthink/gptel/issues/774, julep-ai/julep/issues/885; read on 2026-11-29",
    ),
    Rule(
        rf"(?<!adaptive ){_Q}(?:body\.)?(?<!\w)(?<!' : property ')(?<!': property ')(?!{LITERALS}\b){_FIELD}{_Q}"
        " is (?:not supported|unsupported|deprecated for this model)",
        "Groq: iamsrikanthnani/pluely/issues/242, CherryHQ/cherry-studio/issues/1099; Cerebras:"
        " Gitlawb/openclaude/issues/740, egoist/chatwise-releases/issues/1442;"
        " Anthropic: stippi/code-assistant/pull/119",
    ),
    Rule(
        rf"does(?: not|n.t) support (?:the )?(?:parameter |field |argument )?{_Q}{_FIELD}{_Q}"
        r"(?= (?:parameter|field|argument)|\W*$|\.\s)",
        "xAI: open-webui/open-webui/issues/21266, BerriAI/litellm/pull/16265; Anthropic, of an effort:"
        " diegosouzapw/OmniRoute/pull/4713; Bedrock: langgenius/dify-official-plugins/issues/1767",
    ),
    Rule(rf"Argument not supported on this model: {_Q}{_FIELD}", "xAI: huggingface/smolagents/pull/1766"),
    Rule(
        rf"{_LOC}Extra (?:inputs are|fields) not permitted",
        "Mistral: Gitlawb/openclaude/issues/739, editor-code-assistant/eca/issues/231; vLLM and others with pydantic",
    ),
    Rule(
        r"\btype['\"]: ?['\"](?:extra_forbidden|value_error\.extra)['\"], ?['\"]loc['\"]: ?[\[(]"
        r"(?P<loc>[^\])]{1,200})[\])](?!, ?['\"]msg)",
        "pydantic, without its words",
    ),
    Rule(r"\bextra_forbidden: (?P<field>[A-Za-z_][\w.\[\]-]{0,99})", "likewise, of proxies"),
    Rule(
        r"(?P<field>[A-Za-z_][\w.\[\]-]{0,99}):? Extra (?:inputs are|fields) not permitted",
        "Anthropic: OpenHands/software-agent-sdk/issues/1630; Bedrock: BerriAI/litellm/issues/13609",
    ),
    Rule(rf"Extra inputs are not permitted, field: {_Q}{_FIELD}", "Fireworks: FlowiseAI/Flowise/issues/2866"),
    Rule(
        r"Unknown name \"(?P<field>[\w$]{1,100})\"(?: at '(?P<within>[\w.\[\]]{0,200})')?: Cannot find field",
        "Gemini: YiiGuxing/TranslationPlugin/issues/6334, NousResearch/hermes-agent/pull/40790",
    ),
    Rule(
        r"unrecogni[sz]edProperty[=:] ?(?P<field>\w{1,100})",
        "Vertex, of a mark on a tool: wusaki0723/Aelios/pull/44; read on 2026-11-29",
    ),
    Rule(MARKS_REFUSED, "Bedrock"),
    Rule(
        rf"Invalid '{_FIELD}': '[^']{{0,200}}'\. Expected an ID that begins with",
        "OpenAI, of an id that another vendor's answer had: openai/openai-agents-python/issues/1660, from memory",
    ),
    Rule(r"Duplicate item found with (?P<field>id) \w", "OpenAI, from memory"),
    Rule(
        rf"Invalid type for '{_FIELD}': expected [^;.\n]{{1,200}}, but got null instead",
        "OpenAI, of fields that an SDK writes as null: openai/openai-python/issues/2360, from memory",
        is_of_value=True,
    ),
    Rule(r"extraneous key \[(?P<field>\w{1,100})\] is not permitted", "Bedrock: langchain-ai/langchain-aws/issues/62"),
    Rule(
        r"(?:unsupported|unknown|unrecogni[sz]ed|unexpected) (?:request )?(?:keyword )?"
        r"(?:parameter|param|field|argument|property|properties|key|option)(?:s|\(s\))?"
        rf"(?: in (?:the )?(?:object|request|body))?:? {_Q}{_FIELD}",
        "serde, Go's and zod's decoders, Python's functions: own servers, and proxies before others",
    ),
    Rule(
        rf"\bproperty {_Q}(?P<field>\w{{1,100}}){_Q} "
        r"(?:should not (?:exist|be provided)|(?:is not|has not been) defined\b)",
        "NestJS, TypeBox and others, from memory",
    ),
    Rule(
        r"properties are not allowed \((?P<fields>'\w{1,100}'(?:, '\w{1,100}')*) w(?:as|ere) unexpected",
        "Python's jsonschema",
    ),
    Rule(r"\bproperties (?:that|which) are not allowed[^:.]{0,30}: ?\[?\"?(?P<field>\w{1,100})", "Java's JSON Schema"),
    Rule(
        r"(?P<field>[\w.]{1,100}): (?:must|should) NOT have additional properties",
        "Ajv, with the name from ``params``",
    ),
    Rule(
        rf"(?:must|should) NOT have additional properties(?:[:,] ?| \(){_Q}(?P<field>\w{{1,100}})",
        "Ajv's words with the name behind them: own servers",
    ),
    Rule(
        r"\bunrecognized_keys['\"], ?['\"]keys['\"]: ?\[ ?(?P<fields>['\"]\w{1,100}['\"](?:, ?['\"]\w{1,100}['\"])*)",
        "zod, without its words",
    ),
    Rule(r"\bExpected never but received ['\"](?P<field>\w{1,100})", "Valibot, from memory"),
    Rule(r"\bAt path: (?P<field>[\w.]{1,100}) -- Expected a value of type .?never\b", "Superstruct, from memory"),
    Rule(r"\bunspecified keys: (?P<fields>\w{1,100}(?:, \w{1,100})*)", "yup, from memory"),
    Rule(r"JSON property ['\"](?P<field>\w{1,100})['\"] could not be mapped", ".NET's System.Text.Json"),
    Rule(r"Could not find member ['\"](?P<field>\w{1,100})['\"]", ".NET's Newtonsoft, from memory"),
    Rule(r"(?P<field>[\w.]{1,100}): (?:This field was not expected|Cannot find field)\b", "Symfony; Google's details"),
    Rule(rf"\bThe {_Q}(?P<field>\w{{1,100}}){_Q} field is prohibited", "Laravel, from memory"),
    Rule(
        rf"\b{NOUN} is not (?:supported|allowed|recogni[sz]ed|known)[^.;()]{{0,30}} \({_Q}(?P<field>\w{{1,100}}){_Q}\)",
        "own servers, and proxies before others",
    ),
    Rule(
        rf"{_Q}{_FIELD}(?<!\.){_Q} must be one of {_VALUES}",
        "Groq: earendil-works/pi/issues/1745, Alishahryar1/free-claude-code/issues/1348",
        is_of_value=True,
    ),
    Rule(
        rf"{_FIELD}: unknown variant .{{1,60}}?, expected (?:one of )?{_VALUES}",
        "DeepSeek: nextai-translator/nextai-translator/issues/1879",
        is_of_value=True,
    ),
    Rule(
        rf"{_Q}{_FIELD}{_Q}: expected one of {_VALUES}",
        "Moonshot: router-for-me/CLIProxyAPI/issues/1307",
        is_of_value=True,
    ),
    Rule(rf"{_FIELD}: Input should be {_VALUES}", "Anthropic, and others with pydantic", is_of_value=True),
    Rule(rf"{_LOC}Input should be {_VALUES}", "Mistral, vLLM, and others with pydantic", is_of_value=True),
    Rule(
        rf"does not support (?P<field>effort) level .{{1,40}}? Supported levels: {_VALUES}",
        "Anthropic: router-for-me/CLIProxyAPI/issues/3901",
        is_of_value=True,
    ),
    Rule(
        r"(?P<management>`clear_thinking_\w{1,20}` strategy requires `thinking`)",
        "Anthropic, where thinking was left out: router-for-me/CLIProxyAPI/issues/4957",
    ),
    Rule(r"(?P<penalties>Penalty is not enabled)", "Gemini from 2.5 on: google-gemini/cookbook/issues/1290"),
    Rule(r"(?P<media>Media resolution is not (?:enabled|supported))", "Gemini, from memory, as of penalties"),
    Rule(
        r"(?P<field>max_completion_tokens|max_tokens)['\"`\u2019\u201d\xbb]?[.,;\u3002\uff0c] ?[^\d.;\u3002\n]{3,40}?"
        r"['\"`\u2018\u201c\xab]?\b(?P<instead>max_completion_tokens|max_tokens)\b",
        "own servers, in other languages: the name to use stands in the next clause",
    ),
    Rule(r"(?P<beta>invalid beta flag)", "Bedrock, of a region without it: cline/cline/issues/5568"),
)
# Of thinking, without a field's name: Ollama (itayinbarr/little-coder/issues/86), Gemini
# (RooCodeInc/Roo-Code/issues/10700, lobehub/lobehub/issues/7985, googleapis/js-genai/issues/681).
_OF_THINKING = re.compile(
    r"does(?: not|n.t) support (?:extended |adaptive )?(?:thinking|reasoning)\b"
    r"|(?:thinking|reasoning)(?: level| budget| mode)? is (?:not supported|not enabled|only enabled when)"
    r"|(?:thinking|reasoning)_?config.{0,40} is only enabled when",
    re.IGNORECASE,
)
# An effort is refused, and its field is not named: "This model only works in thinking mode", by Gemini of a request for
# no thinking (docker/docker-agent/issues/2051, earendil-works/pi/issues/3460); and by xAI.
_OF_EFFORT = re.compile(
    r"only works in thinking mode|invalid reasoning effort\."
    r"|(?:not support setting|cannot set|can't set) thinking_?budget to 0"
    # In other words: of OpenRouter, where a model always thinks, of Gemini's budgets, and of proxies.
    r"|\b(?:reasoning|thinking) (?:is mandatory|cannot be (?:disabled|turned off))|only supports thinking\b"
    r"|\bthinking[ _]?budget\b[^.;!?\n]{0,40}\b(?:is invalid|exceeds|must be between)\b"
    r"|\b(?:unknown|unsupported|unrecogni[sz]ed) (?:reasoning|thinking)[ _.]?(?:effort|level)\b"
    rf"|\b(?:reasoning|thinking)[ _.]?(?:effort|level)\W{{1,4}}{LITERALS}\b['\"`]? (?:is |are )?(?:not |un[ksr])",
    re.IGNORECASE,
)
# The effort ``xhigh`` alone, which few models take; in a list of efforts it may be one that is taken.
_EFFORTS_BESIDE = rf"(?:{LITERALS}['\"`]? ?(?:[,|/\u3001]|,? (?:or|and)\b) ?['\"`]?)"
_OF_XHIGH = re.compile(
    rf"(?P<listed>{_EFFORTS_BESIDE}xhigh\b|\bxhigh['\"`]? ?(?:[,|/\u3001]|,? (?:or|and)\b) ?['\"`]?{LITERALS}\b)"
    r"|(?<![\w./-])xhigh(?![/-]|\.?\w)",
    re.IGNORECASE,
)
# A history is refused, by chat templates and by vendors that use them, for its roles ("roles must alternate"), or for
# a list of texts in place of a text (Gitlawb/openclaude/issues/774, kvcache-ai/ktransformers/issues/773,
# router-for-me/CLIProxyAPI/issues/4737, theroyallab/tabbyAPI/issues/117).
_OF_HISTORY = re.compile(
    r"roles? must alternate|unexpected (message )?role|system message must be|only .{0,60}roles are supported"
    r"|system (?:messages?|prompts?) (?:is|are) not supported"
    r"|(invalid|unknown|unsupported).{0,20}\brole\b|role.{0,40}(not supported|is invalid|must be one of)"
    r"|invalid type: sequence, expected a string|input should be a valid string"
    r"|untagged enum \w*MessageContent|content.{0,20} must be a string"
    r"|content\W{1,4}expected a (?:valid )?string, (?:but )?got (?:an array|a list|null|none)"
    r"|content\W{1,4}none is not an allowed value|missing field .content.",
    re.IGNORECASE,
)
# A role's name is refused, such as ``developer``: by DeepSeek in earendil-works/pi/issues/1048, Groq in
# nhaouari/obsidian-textgenerator-plugin/issues/309, Alibaba in proma-ai/Proma/issues/1496, Mistral and others with
# pydantic in ogx-ai/ogx/issues/5982, Moonshot and MiniMax in earendil-works/pi/issues/2539 and 4891; read on
# 2026-11-29.
_OF_ROLES = re.compile(
    r"\brole: unknown variant|discriminator property '?role'? has invalid value|is not one of \[.{1,120}\.role\b"
    r"|input tag .{1,60}found using .?role\b|\brole['\"]\W{1,4}msg['\"]: ?['\"]input should be"
    r"|unexpected message role|invalid (?:message )?role\b|\binvalid value: .developer\b"
    r"|\brole ['`\"]?developer['`\"]? (?:is )?(?:not |un)",
    re.IGNORECASE,
)
# A request whose last turn is the assistant's begins the answer itself. That is refused by Anthropic's models since 4.6
# (platform.claude.com/docs/en/api/errors#prefill-not-supported, ericc-ch/copilot-api/pull/261), and by Mistral
# (0xPlaygrounds/rig/issues/708); read on 2026-11-29.
_OF_PREFILL = re.compile(
    r"does not support assistant message prefill|conversation must end with a user message"
    r"|expected (?:the )?last role (?:to be )?user or tool",
    re.IGNORECASE,
)
# An empty turn of the assistant, or an empty text in one, is refused. Programs keep such a turn when an answer has
# broken off. Mistral's, Anthropic's, xAI's and Google's words (mistral-common, protocol/instruct/validator.py;
# experientiallabs/experiential/pull/799, anthropics/claude-code/issues/6774, charmbracelet/crush/issues/964;
# opencode 1.18.33 keeps such turns, tried with stand-ins on 2026-11-30). Google's of parts and turns that are empty:
# google-gemini/deprecated-generative-ai-python/issues/697, router-for-me/CLIProxyAPI/issues/1292,
# langgenius/dify/issues/30566, read on 2026-12-01.
_OF_BLANKS = re.compile(
    r"assistant message must have either content or tool_calls"
    r"|text content blocks must (?:contain non-whitespace text|be non-empty)"
    r"|all messages must have non-empty content"
    r"|each message must have at least one content element|contents\.parts must not be empty"
    r"|it (?:has an empty text parameter|must have a text parameter|must include at least one parts field)"
    r"|required oneof field 'data' must have one initialized field",
    re.IGNORECASE,
)
# The name of a tool has letters that the vendor does not take ("get.weather"), or too many letters: OpenAI's,
# Anthropic's and Bedrock's words. Or the arguments of an earlier call are no JSON object: Ollama's and Mistral's words.
# The stand-ins of these vendors have the pages.
_OF_UNFIT_CALLS = re.compile(
    r"(?P<tool_name>\b(?:messages|input|tools|toolConfig)\b[\w.\[\]]{0,150}\.name\b['`]?"
    r"(?::| failed to satisfy constraint:) *(?:string (?:does not match pattern|too long|should (?:match|have at most))"
    r"|member must (?:satisfy regular expression|have length less)))"
    r"|(?P<call_arguments>invalid (?:json in )?tool call arguments|function arguments must be valid json"
    r"|failed to parse tool call arguments|tool call arguments (?:must be|(?:is|are) not) (?:a )?valid json"
    r"|^expecting value: line 1 column 1 \(char 0\))",
    re.IGNORECASE,
)
# System messages after the first turn are refused. Claude takes them from Opus 4.8 on, and Claude Code sends them to
# any model that it does not know (anthropics/claude-code/issues/61412 and 63469, zai-org/GLM-5/issues/74,
# ogx-ai/ogx/issues/5982, codexu/note-gen/issues/918, router-for-me/CLIProxyAPI/issues/3510,
# deepseek-ai/awesome-deepseek-integration/issues/639).
_OF_SYSTEM = re.compile(
    r"role ['`]?system['`]? is not supported|system messages are not allowed|message role: system"
    r"|unknown variant ['`]system['`], expected ['`]user['`] or ['`]assistant['`]"
    r"|input should be ['`]user['`] or ['`]assistant['`]|role must be either ['`]user['`] or ['`]assistant['`]",
    re.IGNORECASE,
)
# In Messages a system prompt, a turn or a result of a tool has to be one text: servers with pydantic and serde.
_OF_TEXTS = re.compile(
    r"(?<![\w.])(?:body\.)?(?:system|messages\.\d{1,5}\.content(?:\.\d{1,5}\.(?:tool_result\.)?content)?):? ?"
    r"(?:input should be a valid string|invalid type: sequence, expected a string|must be a string)",
    re.IGNORECASE,
)
# Any system prompt is refused: by the templates of Gemma and of older models, Google of Gemma, OpenAI of o1-mini, and
# Bedrock of Titan and others (from memory; the last in docs.aws.amazon.com/bedrock/latest/userguide/
# conversation-inference-supported-models-features.html).
_OF_INSTRUCTIONS = re.compile(
    r"\bsystem role (?:is )?not supported|\b(?:developer|system) instructions? (?:is|are) not (?:enabled|supported)"
    r"|\b(?:does not|doesn.t|do not|don.t) support (?:the )?['`\"]?system['`\"]? (?:messages?|prompts?|field|role)\b"
    r"|\bmessages\[0\]\.role'? does not support 'system'",
    re.IGNORECASE,
)
# And of the ids of earlier calls, which another vendor has made: Anthropic (langchain-ai/langchain/pull/37756,
# musistudio/claude-code-router/issues/1808), Mistral (editor-code-assistant/eca/issues/233), and OpenAI, also behind
# proxies (vercel/ai/issues/5171, orchidfiles/ungate/issues/26); read on 2026-11-30. Ids shorter than Mistral's could
# not all be told apart.
_LENGTH_OF_ID = r"9|[1-9]\d{1,2}"
_OF_IDS = re.compile(
    r"\btool_use(?:_id|\.id)\b.{0,20}should match pattern (?P<word>.\^\[a-zA-Z0-9_-\])"
    r"|\btool call id was .{0,200}? but must be a-z, A-Z, 0-9, with a length of "
    rf"(?P<alphanumeric>{_LENGTH_OF_ID})\b"
    r"|(?:\bcall_id|\btool_calls\[\d{1,5}\]\.id)\W{1,3}string too long\W.{0,40}\bmaximum length "
    rf"(?P<any>{_LENGTH_OF_ID})\b",
    re.IGNORECASE,
)
_LONGEST_ID = 128  # characters, where the length is not told: Anthropic takes so many
# Of documents, as blocks of Messages that a server does not have (Alishahryar1/free-claude-code/issues/357; DeepSeek's
# words, of an image: studynil.com/ai/llm/deepseek/issues/claude-code-deepseek-compat-send-images-error.html), read on
# 2026-11-30.
_OF_DOCUMENTS = re.compile(
    r"(?:unknown variant|input tag|type:?) ['`\"]?document\b"
    r"|\bdocument['`\"]? (?:blocks?|content)\b.{0,20}\bnot support"
    r"|not support ['`\"]?documents?['`\"]? (?:blocks?|content)",
    re.IGNORECASE,
)
# ``stream_options`` is refused. Without this field some servers send no usage, others send usage all the same
# (earendil-works/pi/pull/596, anomalyco/opencode/pull/35446, openkursar/hello-halo/issues/237).
# The bare name may be a value that a client wrote, such as a tool's name. So the words must call it a parameter, or say
# that it is not supported.
_OF_USAGE = re.compile(
    rf"\b{NOUN}(?: in object| supplied)?\W{{1,4}}(?:body\.)?(?:stream_options|include_usage)\b"
    rf"|{NO_VALUE}(?<![.\w\]])(?:body\.)?(?:stream_options(?:[.\]]include_usage)?|include_usage)['\"`]?:?"
    rf" (?:{NOUN} |(?:is |are )?(?:not (?:supported|allowed|permitted|available|enabled|recogni[sz]ed)"
    r"|only |un[ksr]\w+|extra (?:inputs|fields)))"
    r"|(?:not|n't) support(?: the)? ['\"`]?(?:stream_options|include_usage)\b"
    r"|loc['\"]: ?[\[(]['\"]body['\"], ?['\"]stream_options['\"]",
    re.IGNORECASE,
)

# Places with names that a client has given: a refusal that speaks of one may mean a thermometer's reading by
# ``temperature``. Groq, zod, JSON Schema and Python also use these words for a request's own fields.
_OF_NAMES = re.compile(
    r"schema|\bproperty\b|\bproperties\b|\btools?\b|\bfunctions?\b|\bmetadata\b|\blabels?\b"
    r"|\bstop (?:sequence|word|string)|\benum|(?<!\bextraneous )\bkeys?\b|\bkeywords?\b(?! argument)"
    r"|(?<!\bunknown )\bnames?\b|additionalProperties",
    re.IGNORECASE,
)
_OF_FIELDS = re.compile(
    rf"property {_Q}[\w.]{{1,100}}{_Q} is unsupported(?:, did you mean [^,]{{1,100}})?\W?"
    rf"|Unrecognized key\(s\) in object: {_Q}\w{{1,100}}{_Q}"
    rf"|Additional properties are not allowed \({_Q}\w{{1,100}}{_Q} was unexpected\)",
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
# google-gemini/deprecated-generative-ai-js/issues/241); read on 2026-11-29.
_CHOICE = r"\btool_?\s?_?choice\b"
_MODE = r"\bfunction[ _]?calling(?:[ _]?config)?(?:[ _.]mode)?\b"
# Narrower than ``_REFUSES`` of ``other_words.py``, where a field's name has to be there as well: these are read beside
# words of any sentence on tools, before the verb (``_IS_NOT``) or after it (``_NO_SUPPORT``).
_IS_NOT = (
    r"(?:\bnot (?:be )?(?:supported|allowed|available|enabled|permitted|accepted|possible|implemented)|\bunsupported)"
)
_NO_SUPPORT = r"(?:\b(?:does not|do not|cannot|doesn.t|don.t|can.t|not) (?:support|allow|accept|take|force|be forced))"
_FORCES = r"(?:\bany\b|\btool\b(?!\W?\s?_?choice)|\brequired\b|\bspecific\b|\bnamed\b|\bforc\w+|\bobject\b)"
_OF_CALLS = re.compile(
    rf"(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,100}}"
    r"(?:\bmust be|\bshould be|\bonly|\bexpected|\bsupported values are|\bone of|\bother than)[^;!?\n]{0,40}\bauto\b"
    rf"|\bonly [^;!?\n]{{0,40}}\bauto\b[^;!?\n]{{0,60}}(?:{_CHOICE}|{_MODE})"
    rf"|(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,80}}{_FORCES}[^;!?\n]{{0,60}}{_IS_NOT}"
    rf"|(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,40}}{_NO_SUPPORT}[^;!?\n]{{0,60}}{_FORCES}"
    rf"|{_IS_NOT}[^;!?\n]{{0,20}}(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,40}}{_FORCES}"
    rf"|{_NO_SUPPORT}[^;!?\n]{{0,80}}(?:{_CHOICE}|{_MODE})[^;!?\n]{{0,20}}{_FORCES}"
    rf"|{_NO_SUPPORT}[^;!?\n]{{0,40}}{_FORCES}[^;!?\n]{{0,40}}(?:{_CHOICE}|{_MODE})"
    rf"|\bforced? (?:tool|function)[^;!?\n]{{0,60}}(?:{_IS_NOT}|{_NO_SUPPORT})"
    rf"|{_NO_SUPPORT}[^;!?\n]{{0,40}}\bforc(?:ed|ing) (?:a |any )?(?:tool|function|call)",
    re.IGNORECASE,
)

# Betas are refused, named or not: by Anthropic, Azure and Vertex (QuantumNous/new-api/issues/2975,
# anthropics/claude-code/issues/12429), Bedrock (QuantumNous/new-api/issues/3041, BerriAI/litellm/pull/41203), and
# OpenAI, which has another header; read on 2026-11-29.
_OF_BETAS = re.compile(
    r"\b(?:unexpected|invalid|unknown|unsupported|unrecogni[sz]ed) (?:[\w-]{1,20} ){0,2}betas?\b"
    r"|\b(?:(?:anthropic|openai)[-_]betas?|beta (?:flag|header|feature|value)s?)\b[^.;!?\n]{0,80}"
    r"(?:\bnot (?:supported|accepted|allowed|permitted|available|enabled|recogni[sz]ed|known|valid)|unsupported"
    r"|\binvalid|\bun(?:known|expected|recogni[sz]ed))",
    re.IGNORECASE,
)
_UNEXPECTED = re.compile(r"\bunexpected value\(s\)", re.IGNORECASE)
_FOR_BETAS = re.compile(r"\bfor the ['\"`]?(?:anthropic|openai)[-_]beta\b", re.IGNORECASE)
_BETA = re.compile(r"(?<![\w.=-])\w[\w.=-]*[\w]", re.ASCII)
_DATED = re.compile(r"\w-20\d\d-\d\d")  # most betas have a day
# After these words the accepted betas are listed.
_TAKEN = re.compile(
    r"input should be|expected one of|must be one of|\bnot in\b|\b(?:supported|allowed|valid|known|available) "
    r"(?:values|betas|flags|headers|ones)\b",
    re.IGNORECASE,
)

# A strict schema breaks the rules for strict schemas: OpenAI, in whose Responses schemas are strict by default
# (kevinwatt/mysql-mcp/issues/5, bytedance/trae-agent/issues/173, vercel/ai/issues/6484).
_OF_SCHEMAS = re.compile(r"Invalid schema for (?:function|response_format|text\.format)\b", re.IGNORECASE)

# A schema has words, or a form, that a server does not take: Moonshot (MoonshotAI/kimi-cli/issues/2061 and 2531),
# OpenAI and Anthropic of the top of a tool's parameters (langchain-ai/langchainjs/issues/9804,
# anthropics/claude-code/issues/5319), Google (vercel/ai/issues/9761 and 12183); read on 2026-12-01. Other words of
# Google's, and those of Groq and llama.cpp, are from memory.
_OF_WORDS = re.compile(
    r"not a valid \w+[- ]flavored json schema|schema must have (?:a )?type ['\"]object['\"] and not have"
    r"|\bdoes not support oneOf, allOf,? or anyOf\b|schema didn't specify the schema type field"
    r"|parameters schema should be of type OBJECT|\bshould be non-empty for OBJECT type|\bitems: missing field"
    r"|Proto field is not repeating, cannot start list|\bwhen using any_of, it must be the only field set"
    r"|\benum\[\d{1,4}\]: cannot be empty|\bonly allowed for STRING type|\brequired\[\d{1,4}\]: property is not defined"
    r"|\binvalid JSON schema for (?:tool|function)\b|JSON schema conversion failed",
    re.IGNORECASE,
)

# Streaming is refused, always or with a parameter: Groq (``response_format``), Bedrock (tools), llama.cpp
# (``logprobs``), OpenAI (organizations that are not verified, formats of sounds), vLLM (``best_of``).
_STREAM = r"(?<![\w./-])stream(?:ed|ing|s)?(?![\w/-])"
_NOT = (
    r"(?:\bnot\b|n['\u2019]t\b|\bcannot\b|\bunable\b|\bonly\b|\bmust\b|\bno such\b|incompatible|unsupported|unavailable"
    r"|unknown|unrecogni[sz]ed|invalid|disabled|disallowed|forbidden)"
)
_OF_STREAMING = re.compile(
    rf"{_NOT}[^.;!?\n]{{0,80}}{_STREAM}|{_STREAM}[^.;!?\n]{{0,80}}{_NOT}",
    re.IGNORECASE,
)
_SCOPES = {None, RefusalScope.MODEL, RefusalScope.REQUEST}  # not of length, a vendor's limit, a filter
_STATUSES_OF_FIELDS = frozenset({None, 200, 400, 422})
# Of these the words may be about a failure of the server, which names a field by chance: "KeyError: 'seed'".
_STATUSES_OF_FAILURES = frozenset({500, 501})
_OF_FAILURES = re.compile(
    r"error\b|exception|\b(?:failed|failure|failing|internal|traceback|time-?out|timed out|crash\w*|panic\w*|assert\w*"
    r"|cuda|kernel|worker|memory|null|undefined|none|while|during)\b",
    re.IGNORECASE,
)
_REFUSING_STREAMS = frozenset({400, 403, 404, 405, 422, 501})  # HTTP statuses

# llama.cpp answers with 500 if the model's template refuses a history, or the model cannot see pictures
# (sipeed/picoclaw/issues/207, vllm-project/vllm/issues/17119, ggml-org/llama.cpp/issues/12947 and 15377).
_OF_REQUESTS = re.compile(
    r"Jinja Exception|jinja2?\.exceptions|TemplateError|^Failed to parse (?:messages|tools)"
    r"|\b(?:image|audio|video) input is not supported",
    re.IGNORECASE,
)

# The limit of the answer is too low: Azure, in chat (dotnet/extensions/issues/6945), and OpenRouter, which asks vendors
# in Responses (vectorize-io/hindsight/issues/58); read on 2026-11-29.
_LEAST_ANSWERS = re.compile(
    r"\bmax_(?:completion_|output_)?tokens['\"`]?[^;!?\n]{0,40}\b(?:expected a value >=|must be (?:at least|>=)"
    r"|(?:must|should) be greater than or equal to) ?(\d{1,4})\b",
    re.IGNORECASE,
)
_MOST_OF_LEAST = 256  # tokens; a larger minimum is of something else, such as a budget of thoughts
# The prompt leaves less room in the context: vLLM (claude-code-best/claude-code/issues/272), OpenAI and others
# (ChatGPTNextWeb/NextChat/issues/3195), Anthropic, OpenRouter, which names several parts of a prompt
# (BerriAI/litellm/issues/7034), Hugging Face and Together (huggingface/chat-ui/issues/340), Mistral, whose "prompt"
# includes the answer, and SGLang (from memory); TensorRT-LLM, older and newer.
_ROOM = re.compile(
    r"\(\d{1,9} > (?P<context>\d{3,9}) - (?P<prompt>\d{1,9})\)"
    r"|context length is (?P<context_2>\d{3,9}) tokens\W.{0,40}requested \d{1,9} tokens \((?P<prompt_2>\d{1,9}) in "
    r"|context length is (?P<context_4>\d{3,9}) tokens\W.{0,40}requested \d{1,9} output tokens and your prompt contains"
    r" (?:at least )?(?P<prompt_4>\d{1,9})"
    r"|exceed context limit: (?P<prompt_3>\d{1,9}) \+ \d{1,9} > (?P<context_3>\d{3,9})"
    r"|context length is (?P<context_5>\d{3,9}) tokens\W.{0,40}requested about (?P<prompt_5>\d{1,9}) tokens"
    r" \([^()]{0,100}\b(?P<answer>\d{1,9}) in the output\)"
    r"|context length of (?P<context_8>\d{3,9}) tokens\W.{0,40}requested a total of \d{1,9} tokens:"
    r" (?P<prompt_8>\d{1,9}) "
    r"|max_new_tokens`? must be <= (?P<context_6>\d{3,9})\. Given: (?P<prompt_6>\d{1,9}) `?inputs"
    r"|prompt contains (?P<prompt_7>\d{1,9}) tokens\b.{0,30}, too large for model with (?P<context_7>\d{3,9}) maximum"
    r"|prompt length \((?P<prompt_9>\d{1,9})(?:\.0)?\)(?:,| and) query length \(\d{1,9}\)(?: and)? max_tokens"
    r" \(\d{1,9}\) should not exceed max_seq_len \((?P<context_9>\d{3,9})\)",
    re.IGNORECASE,
)
# vLLM stops to count a prompt one token beyond what fits, so the stated total is the context and one. Or vLLM states
# the prompt's characters in place of tokens (renderers/params.py of 0.25.1, read on 2026-11-29). If the answer alone is
# longer than the context, vLLM states only these two.
_UNCOUNTED = re.compile(
    r"context length is (?P<context>\d{3,9}) tokens\W.{0,40}requested (?P<answer>\d{1,9}) output tokens and your prompt"
    r" contains (?:at least \d{1,9} input tokens, for a total of at least (?P<total>\d{3,9})|\d{1,12} characters)"
    r"|tokens=(?P<answer_2>\d{1,9}) cannot be greater than max_model_len=(?:max_total_tokens=)?(?P<context_2>\d{3,9})",
    re.IGNORECASE,
)
_BYTES_PER_TOKEN = 3  # at least, of nearly all prompts
_MOST_BYTES_PER_TOKEN = 6  # of texts: pictures have more

# An error within an answer may have no code, or a code that says nothing.
_WITHIN_ANSWERS = kinds(lambda facts: facts.may_refuse_within)
_NO_STATUS = (None, 200)  # the second: the answer's own
_STATUSES_WITHIN = frozenset({*_NO_STATUS, 400, 403, 404, 422, 500, 501})

# The field that says how closely to look at a picture, as OpenAI writes its path in ``param``.
_DETAIL = re.compile(r"(?:body\.)?(?:messages|input)[\w.\[\]]{1,120}\.detail\b")
_CODES = frozenset({"unsupported_parameter", "unknown_parameter"})  # OpenAI's, beside ``param``
_PATTERNS = tuple((re.compile(rule.words, re.IGNORECASE), rule.is_of_value) for rule in RULES)
_LONGEST = 4096  # characters in which words are searched
_GIVEN = re.compile(r"\b(?:received|got|at line)\b")  # the request's value, after the values that are taken
_WORDS = re.compile(r"[A-Za-z]+")
_EVERYDAY = frozenset({"speed", "user"})  # fields with such names are meant where they are quoted, or called a field
_CALLED = re.compile(rf"(?:\b{NOUN}|[:=])\s*$", re.IGNORECASE)
_BARE_AFTER = re.compile(rf" (?!{NOUN}\b)|[.!?]?(?:\s|$)")
_IS_OF_BETAS = re.compile(r"(?:anthropic|openai)[-_]beta", re.IGNORECASE)
_errors = msgspec.json.Decoder(dict[str, dict[str, Any]])


class Betas(NamedTuple):
    """What a refusal of betas says: words of the message, some of which may be betas of the request."""

    refused: frozenset[str]
    taken: frozenset[str]
    is_sure: bool = True  # False: no rule has these words, so only betas that the refusal names count


class RefusalReading(NamedTuple):
    """What a refusal says."""

    fields: tuple[RefusedField, ...]
    of_thinking: bool = False  # the model does not think, or not so
    of_thinking_here: bool = False  # the model does not think beside something else in this request
    of_effort: bool = False  # the model does not take this effort
    of_xhigh: bool = False  # the model does not take this effort if that is ``xhigh``, or the words only mention it
    longest: int = 0  # the most tokens of an answer
    least: int = 0  # the least limit of an answer, in tokens
    room: int = 0  # tokens that the prompt of this request leaves for the answer
    holds: int = 0  # tokens that prompt and answer may have together, by the same words as ``room``
    context: int = 0  # tokens of the context, if prompt and answer have more and the prompt's are not stated
    least_prompt: int = 0  # the prompt has at least so many of the context's tokens
    of_history: bool = False  # the roles, or lists of texts, are not taken
    of_roles: bool = False  # a role's name is not taken
    of_prefill: bool = False  # an answer that the request begins is not continued
    of_documents: bool = False  # blocks of documents are not taken, in Messages
    of_blanks: bool = False  # turns of the model, or texts in them, that say nothing are not taken
    of_texts: bool = False  # lists of texts are not taken, in Messages
    of_instructions: bool = False  # no system prompt is taken
    of_system: bool = False  # as ``of_roles``: a system message after the first turn
    of_ids: tuple[str, int] | None = None  # that the ids of calls have these letters, and at most so many
    of_calls: str = ""  # ``tool_name``: of a tool, offered or called; ``call_arguments``: of an earlier call
    of_usage: bool = False  # ``stream_options`` is not taken
    of_names: bool = False  # about something with names that the client has given, such as a tool's schema or metadata
    of_schemas: bool = False  # a strict schema breaks the rules
    of_words: bool = False  # a schema, strict or not, has words or a form that the server does not take
    of_forced: str = ""  # no tool is called by force while the model thinks: the field that stops the thinking
    betas: "Betas | None" = None  # some betas are not taken
    mentioned: tuple[str, ...] = ()  # the only path that is named, where nothing else is understood
    mentions_value: bool = False  # the words around that path are about values
    is_of_foreign_value: bool = False  # in another language they are about an amount or a kind, perhaps of that value

    def __bool__(self) -> bool:
        return any(self._replace(of_names=False, of_xhigh=False, is_of_foreign_value=False))


def read(refusal: UpstreamError) -> RefusalReading:
    """Return what the words, codes and parameters of a refusal say."""
    text = html.unescape(refusal.said[:_LONGEST].replace("\\", ""))
    param, code = _param_of(refusal.body)
    fields: dict[tuple[str, ...], RefusedField] = {}
    by_code = (RefusedField(path_of(param)),) if param and code in _CODES else ()
    for each in (*_named(text, param), *by_code, *_details_in(text, param)):
        if each.path and len(fields) < MOST_FIELDS:
            fields.setdefault(each.path, each)
    thinking, uncounted = _OF_THINKING.search(text), _uncounted_in(text)
    room, holds = (0, 0) if any(uncounted) else _room_in(text)
    reading = RefusalReading(
        tuple(fields.values()),
        of_thinking=thinking is not None,
        of_thinking_here=thinking is not None and CONDITION.match(text, thinking.end()) is not None,
        of_effort=_OF_EFFORT.search(text) is not None,
        of_xhigh=any(match["listed"] is None for match in _OF_XHIGH.finditer(text)),
        longest=longest_in(text),
        least=_least_in(text),
        room=room,
        holds=holds,
        context=uncounted[0],
        least_prompt=uncounted[1],
        of_history=_OF_HISTORY.search(text) is not None,
        of_roles=_OF_ROLES.search(text) is not None,
        of_prefill=_OF_PREFILL.search(text) is not None,
        of_documents=_OF_DOCUMENTS.search(text) is not None,
        of_blanks=_OF_BLANKS.search(text) is not None,
        of_texts=_OF_TEXTS.search(text) is not None,
        of_instructions=_OF_INSTRUCTIONS.search(text) is not None,
        of_system=_OF_SYSTEM.search(text) is not None,
        of_ids=_ids_in(text),
        of_calls="" if (unfit := _OF_UNFIT_CALLS.search(text)) is None else str(unfit.lastgroup),
        of_usage=_OF_USAGE.search(text) is not None,
        of_schemas=_OF_SCHEMAS.search(text) is not None,
        of_words=_OF_WORDS.search(text) is not None,
        of_forced=_forced_in(text),
        betas=_betas_in(text, fields),
    )
    reading = reading or reading._replace(fields=tuple(in_other_words(text)))
    is_of_field = refusal.status in _STATUSES_OF_FIELDS or (
        refusal.status in _STATUSES_OF_FAILURES and (is_foreign(text) or _OF_FAILURES.search(text) is None)
    )
    if not reading and is_of_field and refusal.scope in _SCOPES and not is_too_long(text):
        path, is_of_value = mentioned(text, param)
        dated = _words_of_betas(text, is_sure=False) if _DATED.search(text) is not None else None
        reading = reading._replace(
            mentioned=path, mentions_value=is_of_value, is_of_foreign_value=is_of_foreign_value(text), betas=dated
        )
    of_names = _OF_FIELDS.fullmatch(text) is None and _OF_NAMES.search(text) is not None
    return reading._replace(of_names=of_names)


def _details_in(text: str, param: str) -> Iterator[RefusedField]:
    """Yield the ``detail`` of a picture if a refusal names one, in any words: pictures without ``detail`` are taken."""
    for path_named in (param, *(match[0] for match in _DETAIL.finditer(text))):
        path = path_of(path_named)
        if path[-1:] != ("detail",):
            continue
        is_whole = _DETAIL.fullmatch(path_named) is not None
        yield RefusedField(path, is_of_value=True) if is_whole else RefusedField(path[-1:])


def _betas_in(text: str, paths: Iterable[tuple[str, ...]]) -> Betas | None:
    is_said = _UNEXPECTED.search(text) is not None and _FOR_BETAS.search(text) is not None
    if (
        not is_said
        and _OF_BETAS.search(text) is None
        and not any(_IS_OF_BETAS.fullmatch(name) for path in paths for name in path)
    ):
        return None
    return _words_of_betas(text)


def _words_of_betas(text: str, *, is_sure: bool = True) -> Betas:
    refused, *accepted = _TAKEN.split(text, maxsplit=1)
    return Betas(frozenset(_BETA.findall(refused)), frozenset(_BETA.findall("".join(accepted))), is_sure)


def _ids_in(text: str) -> tuple[str, int] | None:
    """Return which letters the ids of calls may have, as ``CallIds`` names them, and how many letters at most."""
    if (found := _OF_IDS.search(text)) is None:
        return None
    letters, told = next((name, said) for name, said in found.groupdict().items() if said)
    return letters, int(told) if told.isdigit() else _LONGEST_ID


def _forced_in(text: str) -> str:
    if _OF_FORCED.search(text) is None:
        return ""
    return "enable_thinking" if _BY_A_FLAG.search(text) else "thinking"


def _least_in(text: str) -> int:
    match = _LEAST_ANSWERS.search(text)
    return int(match[1]) if match is not None and 1 < int(match[1]) <= _MOST_OF_LEAST else 0


def _room_in(text: str) -> tuple[int, int]:
    """Return how many tokens a prompt leaves for the answer, and how many tokens the context has; 0, 0: unknown."""
    match = _ROOM.search(text)
    if match is None:
        return 0, 0
    numbers = _numbers(match)
    room = numbers["context"] - numbers["prompt"] + numbers.get("answer", 0)
    return (room, numbers["context"]) if room >= LEAST_ROOM else (0, 0)


def _uncounted_in(text: str) -> tuple[int, int]:
    """Return the context, and the least tokens of a prompt that was not counted to its end."""
    match = _UNCOUNTED.search(text)
    if match is None:
        return 0, 0
    numbers = _numbers(match)
    if "total" in numbers and numbers["total"] != numbers["context"] + 1:
        return 0, 0
    return numbers["context"], max(0, numbers["context"] - numbers["answer"])


def _numbers(match: re.Match[str]) -> Mapping[str, int]:
    """Return the numbers of the groups that have matched: ``context_2`` counts as ``context``."""
    return {name.partition("_")[0]: int(number) for name, number in match.groupdict().items() if number}


def room_beside(reading: RefusalReading, fields: Mapping[str, msgspec.Raw]) -> int:
    """Return how many tokens of an answer fit beside the prompt of ``fields``, by a refusal of the request; 0: unknown.

    A prompt that the refusal does not count is estimated, rather too long than too short.
    """
    if not reading.context:
        return reading.room
    room = reading.context - max(size_of(fields) // _BYTES_PER_TOKEN, reading.least_prompt * 9 // 8)
    return room if room >= LEAST_ROOM else 0


def size_of(fields: Mapping[str, msgspec.Raw]) -> int:
    """Return the bytes of a request."""
    return sum(len(memoryview(value)) for value in fields.values())


def held(reading: RefusalReading, fields: Mapping[str, msgspec.Raw]) -> Fact | None:
    """Return what a refusal of ``fields`` says about the longest prompt and answer; None: nothing."""
    if reading.context:
        return Fact(Kind.ROOM, value=str(_BYTES_PER_TOKEN * 100), tokens=reading.context)
    if not reading.room:
        return None
    each = size_of(fields) * 100 // max(1, reading.holds - reading.room)
    return Fact(Kind.ROOM, value=str(max(100, min(each, _MOST_BYTES_PER_TOKEN * 100))), tokens=reading.holds)


def held_of(refusal: UpstreamError, fields: Mapping[str, msgspec.Raw]) -> Fact | None:
    """Return what ``refusal`` says so; None: nothing."""
    return held(read(refusal), fields)


def room_of(refusal: UpstreamError, fields: Mapping[str, msgspec.Raw]) -> int:
    """Return how many tokens of an answer the ``refusal`` of ``fields`` allows, beside the prompt or at most.

    0: unknown.
    """
    reading = read(refusal)
    return reading.longest or room_beside(reading, fields)


def _named(text: str, param: str) -> Iterator[RefusedField]:
    for pattern, is_of_value in _PATTERNS:
        for match in filter(_names_a_field, pattern.finditer(text)):
            groups = match.groupdict()
            values = tuple(_WORDS.findall(_GIVEN.split(groups.get("values") or "")[0]))
            if groups.get("fields"):
                yield from (RefusedField(path_of(name)) for name in groups["fields"].split(","))
            elif named := [path for group, path in _NAMED_BY.items() if groups.get(group)]:
                yield from map(RefusedField, named)
            elif groups.get("penalties"):
                yield from (RefusedField((name,)) for name in ("presence_penalty", "frequency_penalty"))
            elif groups.get("adaptive") or groups.get("enabled"):
                kinds = ("enabled",) if groups.get("adaptive") else ("adaptive",)
                yield RefusedField(("thinking", "type"), values=kinds, is_of_value=True)
            elif groups.get("loc"):
                yield RefusedField(path_of(groups["loc"]), values=values, is_of_value=is_of_value)
            elif groups.get("field"):
                path = (*path_of(groups.get("within") or ""), *path_of(groups["field"]))
                only_default = bool(groups.get("default"))  # of a value, too: all others are refused
                is_conditional = CONDITION.match(text, match.end()) is not None
                yield RefusedField(
                    path, groups.get("instead") or "", values, is_of_value and not only_default, is_conditional
                )
            elif param:
                yield RefusedField(path_of(param), values=values, is_of_value=is_of_value)


def _names_a_field(match: re.Match[str]) -> bool:
    """Whether the name in a match is no mere word of the sentence, as in "the user is not supported"."""
    if (match.groupdict().get("field") or "").lower() not in _EVERYDAY:
        return True
    start, end = match.span("field")
    is_bare = not match.string[start - 1 : start].strip() and _BARE_AFTER.match(match.string, end) is not None
    return not is_bare or _CALLED.search(match.string, 0, start) is not None


# By the group that matched: the fields that the words mean, but do not name.
_NAMED_BY: Mapping[str, tuple[str, ...]] = {
    "include": ("include",),
    "management": ("context_management",),
    "beta": ("anthropic_beta",),
    "media": ("media_resolution",),
}


def _param_of(body: bytes | None) -> tuple[str, str]:
    """Return ``param`` and ``code`` of a refusal in OpenAI's shape; "" in place of a missing one."""
    try:
        error: Mapping[str, Any] = _errors.decode(body or b"{}").get("error", {})
    except (*UNREADABLE, *SURPRISES):
        return "", ""
    param, code = error.get("param"), error.get("code")
    return param if isinstance(param, str) else "", code if isinstance(code, str) else ""


def refuses_forced_calls(error: UpstreamError) -> bool:
    """Whether an error refuses a forced call of a tool, or any choice of tools but the model's own."""
    if error.status not in _STATUSES_WITHIN or error.kind not in _WITHIN_ANSWERS:
        return False
    text = error.said[:_LONGEST].replace("\\", "")
    return _OF_CALLS.search(text) is not None or _OF_FORCED.search(text) is not None


def refuses_to_stream(error: UpstreamError) -> bool:
    """Whether an error refuses to stream the answer, or to stream it with a parameter of the request."""
    if error.status not in _REFUSING_STREAMS and not (error.status is None and error.kind in _WITHIN_ANSWERS):
        return False
    return _OF_STREAMING.search(error.said[:_LONGEST]) is not None or _param_of(error.body)[0] == "stream"


def is_within_answer(error: UpstreamError) -> bool:
    """Whether an error within an answer may be a refusal of the request; the words of the error would show that."""
    return error.kind in _WITHIN_ANSWERS and error.status in _STATUSES_WITHIN


def blames_request(text: str) -> bool:
    """Whether an error with status 500 blames the request, and not the server."""
    return is_too_long(text) or _OF_REQUESTS.search(text[:_LONGEST]) is not None


def blames_request_within(error: UpstreamError) -> bool:
    """Whether an error within an answer blames the request, whatever its code: for its length, or for its content."""
    if not is_within_answer(error):
        return False
    is_of_length = blames_request(error.said) or counts_too_many(error.said, error.findings.prompt_bytes)
    # With a code of the server's own fault a filter may have failed, and not refused.
    names = {name.lower() for name in error.names}
    return is_of_length or (error.status in _NO_STATUS and is_refused_by_filter(error.status, names, error.said))


def mentions(refusal: UpstreamError, names: Iterable[str]) -> bool:
    """Whether a refusal has one of ``names`` as a word, in upper or lower case: some servers write all in one case."""
    words = (rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])" for name in names if name)
    text = refusal.said[:_LONGEST]
    return any(re.search(each, text, re.IGNORECASE) for each in words)
