"""Words of refusals about the turns of a conversation: roles, system prompts, blocks, ids, and texts that are empty."""

import re

# A history is refused, by chat templates and by vendors that use them, for its roles ("roles must alternate"), or for
# a list of texts in place of a text (Gitlawb/openclaude/issues/774, kvcache-ai/ktransformers/issues/773,
# router-for-me/CLIProxyAPI/issues/4737, theroyallab/tabbyAPI/issues/117; of Perplexity:
# perplexityai/api-discussion/issues/265; of SambaNova: musistudio/claude-code-router/issues/965).
OF_HISTORY = re.compile(
    r"roles? (?:must|should) (?:alternate|be alternating)|unexpected (message )?role|system message must be"
    r"|only .{0,60}roles are supported"
    r"|system (?:messages?|prompts?) (?:is|are) not supported"
    r"|(invalid|unknown|unsupported).{0,20}\brole\b|role.{0,40}(not supported|is invalid|must be one of)"
    r"|invalid type: sequence, expected a string|input should be a valid string"
    r"|untagged enum \w*MessageContent|content.{0,20} must be a string"
    r"|content\W{1,4}expected a (?:valid )?string, (?:but )?got (?:an array|a list|null|none)"
    r"|invalid 'content' type\. expected one of: \['str'\]"
    r"|content\W{1,4}none is not an allowed value|missing field .content.",
    re.IGNORECASE,
)
# A role's name is refused, such as ``developer``: by DeepSeek in earendil-works/pi/issues/1048, Groq in
# nhaouari/obsidian-textgenerator-plugin/issues/309, Alibaba in proma-ai/Proma/issues/1496, Mistral and others with
# pydantic in ogx-ai/ogx/issues/5982, Moonshot and MiniMax in earendil-works/pi/issues/2539 and 4891; read on
# 2026-11-29.
OF_ROLES = re.compile(
    r"\brole: unknown variant|discriminator property '?role'? has invalid value|is not one of \[.{1,120}\.role\b"
    r"|input tag .{1,60}found using .?role\b|\brole['\"]\W{1,4}msg['\"]: ?['\"]input should be"
    r"|unexpected message role|invalid (?:message )?role\b|\binvalid value: .developer\b"
    r"|\brole ['`\"]?developer['`\"]? (?:is )?(?:not |un)",
    re.IGNORECASE,
)
# A request whose last turn is the assistant's begins the answer itself. That is refused by Anthropic's models since 4.6
# (platform.claude.com/docs/en/api/errors#prefill-not-supported, ericc-ch/copilot-api/pull/261), and by Mistral
# (0xPlaygrounds/rig/issues/708); read on 2026-11-29.
OF_PREFILL = re.compile(
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
OF_BLANKS = re.compile(
    r"assistant message must have either content or tool_calls"
    r"|text content blocks must (?:contain non-whitespace text|be non-empty)"
    r"|all messages must have non-empty content"
    r"|each message must have at least one content element|contents\.parts must not be empty"
    r"|it (?:has an empty text parameter|must have a text parameter|must include at least one parts field)"
    r"|required oneof field 'data' must have one initialized field",
    re.IGNORECASE,
)
# System messages after the first turn are refused. Claude takes them from Opus 4.8 on, and Claude Code sends them to
# any model that it does not know (anthropics/claude-code/issues/61412 and 63469, zai-org/GLM-5/issues/74,
# ogx-ai/ogx/issues/5982, codexu/note-gen/issues/918, router-for-me/CLIProxyAPI/issues/3510,
# deepseek-ai/awesome-deepseek-integration/issues/639).
OF_SYSTEM = re.compile(
    r"role ['`]?system['`]? is not supported|system messages are not allowed|message role: system"
    r"|unknown variant ['`]system['`], expected ['`]user['`] or ['`]assistant['`]"
    r"|input should be ['`]user['`] or ['`]assistant['`]|role must be either ['`]user['`] or ['`]assistant['`]",
    re.IGNORECASE,
)
# In Messages a system prompt, a turn or a result of a tool has to be one text: servers with pydantic and serde.
OF_TEXTS = re.compile(
    r"(?<![\w.])(?:body\.)?(?:system|messages\.\d{1,5}\.content(?:\.\d{1,5}\.(?:tool_result\.)?content)?):? ?"
    r"(?:input should be a valid string|invalid type: sequence, expected a string|must be a string)",
    re.IGNORECASE,
)
# Any system prompt is refused: by the templates of Gemma and of older models, Google of Gemma, OpenAI of o1-mini, and
# Bedrock of Titan and others (from memory; the last in docs.aws.amazon.com/bedrock/latest/userguide/
# conversation-inference-supported-models-features.html).
OF_INSTRUCTIONS = re.compile(
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
OF_DOCUMENTS = re.compile(
    r"(?:unknown variant|input tag|type:?) ['`\"]?document\b"
    r"|\bdocument['`\"]? (?:blocks?|content)\b.{0,20}\bnot support"
    r"|not support ['`\"]?documents?['`\"]? (?:blocks?|content)",
    re.IGNORECASE,
)


def ids_in(text: str) -> tuple[str, int] | None:
    """Return which letters the ids of calls may have, as ``CallIds`` names them, and how many letters at most."""
    if (found := _OF_IDS.search(text)) is None:
        return None
    letters, told = next((name, said) for name, said in found.groupdict().items() if said)
    return letters, int(told) if told.isdigit() else _LONGEST_ID
