"""The rules by which a field that a refusal names is found: sentences of vendors, as data.

A refusal that names a field may be about the field's absence, size or meaning. Only a sentence counts as a rule that
says that the model or the server does not have the field, or does not take the value: 400 "Unsupported parameter:
'verbosity'". ``named_fields.py`` makes fields of them; ``other_words.py`` reads the words of no rule.
"""

from typing import NamedTuple

from providers.refusals.refused_fields import LITERALS, MARKS_REFUSED, NOUN

Q = r"['\"`]?"
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
        rf"Unsupported parameter: {Q}{_FIELD}{Q} is not supported with this model(?:\. Use '(?P<instead>\w+)')?",
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
        rf"(?P<field>[a-z_]{{1,60}}){Q} (?:must|can only|may only) be (?:exactly |set to )?(?P<default>\d(?:\.\d)?)"
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
        rf"{Q}{_FIELD}{Q} ?: value is not one of the allowed values \[(?P<values>[^\]]{{1,200}})\]",
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
        rf"(?<!adaptive ){Q}(?:body\.)?(?<!\w)(?<!' : property ')(?<!': property ')(?!{LITERALS}\b){_FIELD}{Q}"
        " is (?:not supported|unsupported|deprecated for this model)",
        "Groq: iamsrikanthnani/pluely/issues/242, CherryHQ/cherry-studio/issues/1099; Cerebras:"
        " Gitlawb/openclaude/issues/740, egoist/chatwise-releases/issues/1442;"
        " Anthropic: stippi/code-assistant/pull/119",
    ),
    Rule(
        rf"does(?: not|n.t) support (?:the )?(?:parameter |field |argument )?{Q}{_FIELD}{Q}"
        r"(?= (?:parameter|field|argument)|\W*$|\.\s)",
        "xAI: open-webui/open-webui/issues/21266, BerriAI/litellm/pull/16265; Anthropic, of an effort:"
        " diegosouzapw/OmniRoute/pull/4713; Bedrock: langgenius/dify-official-plugins/issues/1767",
    ),
    Rule(rf"Argument not supported on this model: {Q}{_FIELD}", "xAI: huggingface/smolagents/pull/1766"),
    Rule(
        rf"{_LOC}Extra (?:inputs are|fields) not permitted",
        "Mistral: Gitlawb/openclaude/issues/739, editor-code-assistant/eca/issues/231; vLLM and others with pydantic",
    ),
    Rule(
        r"\btype['\"]: ?['\"](?:extra_forbidden|value_error\.extra)['\"], ?['\"]loc['\"]: ?[\[(]"
        r"(?P<loc>[^\])]{1,200})[\])](?!, ?['\"]msg)",
        "pydantic, without its words",
    ),
    Rule(
        rf"{_LOC}(?:List|Tuple|Set|Dictionary|String) should have at least \d{{1,4}} (?:item|character)",
        "pydantic, of an empty value: docs.pydantic.dev/latest/errors/validation_errors, read on 2026-12-01",
        is_of_value=True,
    ),
    Rule(r"\bextra_forbidden: (?P<field>[A-Za-z_][\w.\[\]-]{0,99})", "likewise, of proxies"),
    Rule(
        r"(?P<field>[A-Za-z_][\w.\[\]-]{0,99}):? Extra (?:inputs are|fields) not permitted",
        "Anthropic: OpenHands/software-agent-sdk/issues/1630; Bedrock: BerriAI/litellm/issues/13609",
    ),
    Rule(rf"Extra inputs are not permitted, field: {Q}{_FIELD}", "Fireworks: FlowiseAI/Flowise/issues/2866"),
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
        rf"(?: in (?:the )?(?:object|request|body))?:? {Q}{_FIELD}",
        "serde, Go's and zod's decoders, Python's functions: own servers, and proxies before others",
    ),
    Rule(
        rf"\bproperty {Q}(?P<field>\w{{1,100}}){Q} "
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
        rf"(?:must|should) NOT have additional properties(?:[:,] ?| \(){Q}(?P<field>\w{{1,100}})",
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
    Rule(rf"\bThe {Q}(?P<field>\w{{1,100}}){Q} field is prohibited", "Laravel, from memory"),
    Rule(
        rf"\b{NOUN} is not (?:supported|allowed|recogni[sz]ed|known)[^.;()]{{0,30}} \({Q}(?P<field>\w{{1,100}}){Q}\)",
        "own servers, and proxies before others",
    ),
    Rule(
        rf"{Q}{_FIELD}(?<!\.){Q} must be one of {_VALUES}",
        "Groq: earendil-works/pi/issues/1745, Alishahryar1/free-claude-code/issues/1348",
        is_of_value=True,
    ),
    Rule(
        rf"{_FIELD}: unknown variant .{{1,60}}?, expected (?:one of )?{_VALUES}",
        "DeepSeek: nextai-translator/nextai-translator/issues/1879",
        is_of_value=True,
    ),
    Rule(
        rf"{Q}{_FIELD}{Q}: expected one of {_VALUES}",
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
