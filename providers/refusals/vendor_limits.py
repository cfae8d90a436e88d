"""Vendors' limits on a request, by their words: how many tools, pictures, pages, bytes or tokens of an answer.

Other vendors take more, so such a refusal is not the client's mistake: the other deployments and the fallbacks are
asked. ``LACKS`` has words for what a model cannot do at all. ``too_long.py`` is about the length of a prompt in tokens.
"""

import re
from typing import Final

import msgspec

from providers.refusals.too_long import is_too_long

TOOLS, PICTURES, PICTURE_BYTES, BYTES = "tools", "pictures", "bytes of a picture", "bytes"
ANSWER: Final = "tokens of an answer"
OTHER: Final = "size"  # a limit that is not counted here: pages, pixels, the length of a text


class Limit(msgspec.Struct, frozen=True):
    """A limit of a vendor: the most of one thing that a request may have (``128`` tools)."""

    what: str
    most: int | None = None  # None: the vendor has not said
    turn: int | None = None  # of the prompt, if only the content of this turn is meant


class LimitRule(msgspec.Struct, frozen=True):
    """The words of a vendor about a limit; ``most`` is the group of the number."""

    what: str
    words: str
    source: str


_READ = "read on 2026-11-29"
_N = r"(?P<most>\d[\d,]{0,11})"
_N2 = r"(?P<limit>\d[\d,]{0,11})"
_TOOLS = r"(?:tools|functions?(?: declarations)?)\b"
_NO_MORE = r"(?:exceeds?|\bmax(?:imum)?(?: number| allowed| of| is)*|\bat most|\blimit(?: of| is)?|\bup to|>)\W{0,3}"
RULES: Final = (
    LimitRule(
        TOOLS,
        rf"invalid '(?:tools|functions)': array too long\. expected an array with maximum length {_N}",
        f"OpenAI, Azure, Copilot: github.com/vishalmysore/Tools4AI/issues/16, zed-industries/zed/issues/42393, {_READ}",
    ),
    LimitRule(
        TOOLS,
        rf"'tools' ?: maximum number of items is {_N}",
        f"Groq: github.com/gsd-build/gsd-2/issues/4376, HunorLaczko/ha-groq-cloud-api/issues/25, {_READ}",
    ),
    LimitRule(
        TOOLS,
        rf"at most {_N} function declarations",
        f"Google: github.com/google-gemini/gemini-cli/issues/19083, {_READ}",
    ),
    LimitRule(
        TOOLS,
        rf"maximum tools limit reached\..{{0,80}}\bmaximum is {_N}",
        f"xAI: github.com/anomalyco/opencode/issues/28911, {_READ}",
    ),
    LimitRule(
        TOOLS,
        rf"\b(?:number of|too many) {_TOOLS}[^;!?\n]{{0,80}}?{_NO_MORE}{_N}"
        rf"|{_NO_MORE}(?P<limit>\d[\d,]{{1,11}}) {_TOOLS}",
        f"others: github.com/Futureppo/antigravity_bypass/issues/7, {_READ}",
    ),
    LimitRule(
        TOOLS,
        rf"\btools\W{{1,10}}(?:msg\W{{1,5}})?list should have at most {_N} items"
        rf"|\btools' failed to satisfy constraint: member must have length less than or equal to {_N2}",
        "servers that read with pydantic, Anthropic among them; AWS's validation",
    ),
    LimitRule(
        TOOLS,
        rf"(?:tools?|工具|函数)[^。\n\d名描参字]{{0,20}}(?:最多|不能超过|上限|限制)[^。\n\d]{{0,10}}{_N}",
        "in Chinese",
    ),
    LimitRule(
        PICTURE_BYTES,
        rf"image exceeds \d+(?:\.\d+)? MB maximum(?:: \d+ bytes > {_N} bytes)?",
        f"Anthropic, Bedrock, of Base64: github.com/lobehub/lobehub/pull/14711, {_READ}",
    ),
    LimitRule(
        PICTURES,
        rf"at most {_N} images?(?:\(s\))? (?:may|can) be provided",
        f"vLLM: github.com/vllm-project/vllm/issues/17092, {_READ}",
    ),
    LimitRule(
        PICTURES,
        rf"\bsupports? at most {_N} images?\b",
        "a vendor of OpenRouter's: github.com/diegosouzapw/OmniRoute/issues/3044, read on 2026-12-01",
    ),
    LimitRule(
        PICTURES,
        rf"too many images and documents: \d+ \+ \d+ > {_N}",
        f"Anthropic, Bedrock: github.com/anthropics/claude-code/issues/23392, cline/cline/issues/1844, {_READ}",
    ),
    LimitRule(
        PICTURE_BYTES,
        r"\bimages?\b(?! urls?\b)[^.;!?\n]{0,40}\b(?:too large|exceeds?|larger than)\b[^.;!?\n]{0,40}?"
        rf"(?:\b{_N} bytes|\b\d+(?:\.\d+)? ?[KMG]i?B\b)|\bmax bytes per data-uri item ?: ?{_N2}",
        "xAI, Groq and others; Alibaba, of Base64",
    ),
    LimitRule(
        PICTURES,
        rf"(?:(?:too many|number of) images|contains \d+ images)\b[^;!?\n]{{0,80}}?{_NO_MORE}{_N}",
        "Mistral, Groq; Copilot, new-api, Meta: github.com/microsoft/vscode/issues/306919,"
        f" QuantumNous/new-api/issues/1233, anomalyco/opencode/issues/48647, {_READ}",
    ),
    LimitRule(
        BYTES,
        rf"request payload size exceeds the limit: {_N} bytes",
        f"Google: github.com/MaKTaiL/gemini-srt-translator/issues/63, {_READ}",
    ),
    LimitRule(
        BYTES,
        rf"maximum request body size {_N} exceeded",
        f"proxies in Go: github.com/google-gemini/gemini-cli/issues/13776, {_READ}",
    ),
    LimitRule(
        BYTES,
        r"request exceeds the maximum size"
        r"|(?:request entity|payload|request body|content) too large(?!.{0,60}\btokens\b)",
        f"Anthropic, with 413: github.com/anthropics/anthropic-sdk-python/issues/938; HTTP's own words, {_READ}",
    ),
    LimitRule(
        OTHER,
        rf"image dimensions exceeds? max allowed size(?: for many-images? requests)?: {_N} pixels",
        f"Anthropic, Bedrock: github.com/anthropics/claude-code/issues/49537, langgenius/dify/issues/11177, {_READ}",
    ),
    LimitRule(
        OTHER,
        rf"\bimage[^;!?\n]{{0,80}}?(?:too many pixels|{_NO_MORE}{_N} pixels)"
        r"|(?:图片|图像|视频|文件)[^。\n]{0,20}(?:超过|超出|过大)",
        "Groq and others, of pixels; in Chinese, of whatever is too large",
    ),
    LimitRule(
        OTHER,
        r"[`'\"]n[`'\"] ?:? ?(?:number )?must be (?:at most |<= ?|less than or equal to |exactly |set to )?1\b"
        r"(?! (?:or|and) (?:above|greater|higher|larger|more)\b)"
        r"|\bonly (?:supports? )?n ?= ?1\b|\bn ?(?:>|!=) ?1 is not (?:supported|allowed)"
        r"|\binvalid n: only 1 is allowed",
        "Groq and others, of several answers",
    ),
    LimitRule(
        OTHER,
        rf"a maximum of {_N} PDF pages may be provided",
        f"Anthropic: github.com/anthropics/claude-code/issues/6231, {_READ}",
    ),
    LimitRule(
        OTHER,
        r"invalid '(?:messages|input)(?:\[\d+\](?:\.content(?:\[\d+\]\.text)?)?)?': (?:string|array) too long\."
        rf" expected an? (?:string|array) with maximum length {_N}",
        f"OpenAI: github.com/gptscript-ai/clio/issues/41, VectorlyApp/bluebox/issues/31, {_READ}",
    ),
    LimitRule(
        OTHER,
        rf"string value length \(\d+\) exceeds the maximum allowed \({_N}",
        f"Alibaba: github.com/QwenLM/qwen-code/issues/1082, {_READ}",
    ),
)
# Of the longest answer. It is said by OpenAI (enoch3712/ExtractThinker/issues/346), by Groq
# (khoj-ai/khoj/issues/1236), by Anthropic (platform.claude.com/docs/en/api/messages), by DeepSeek
# (deepseek-ai/DeepSeek-V3/issues/69), by Alibaba (musistudio/claude-code-router/issues/1327), by ByteDance
# (yiliqi78/TOKENICODE/issues/3), by Bedrock (aws-samples/generative-ai-use-cases/issues/594), by Google, which says
# what is too many (BerriAI/litellm/pull/10548), and by proxies (neavo/KeywordGacha/issues/111).
_LONGEST_ANSWERS: Final = re.compile(
    r"max_tokens: \d{1,9} > (\d{3,9}), which is the maximum|supports at most (\d{3,9}) completion tokens"
    r"|max_(?:completion_)?tokens[`'\"]? must be less than or equal to [`'\"]?(\d{3,9})"
    r"|range of max_(?:completion_)?tokens (?:is|should be) \[\d{1,3}, ?(\d{3,9})\]"
    r"|max_(?:completion_|output_)?tokens[`'\"]?\W.{0,80}\bexpected a value <= (\d{3,9})"
    r"|max_(?:completion_)?tokens \(current value: \d{1,9}\) must be between \d{1,3} and (\d{3,9})"
    r"|maximum tokens you requested exceeds the model limit of (\d{3,9})"
    r"|maxOutputTokens value of \d{1,9} but the supported range is from 1 \(inclusive\) to (?P<below>\d{3,9}) \(excl",
    re.IGNORECASE,
)
# The longest answer, in words that no list has: the name of the field, and behind the name a bound. For example,
# "max_tokens must be at most 8192". Zhipu names a range in Chinese (MoonshotAI/kimi-code/issues/834,
# read on 2026-11-30).
_BOUNDED_ANSWERS: Final = re.compile(
    r"\bmax_?(?:completion_?|output_?|new_?)?tokens\b[`'\"]?"
    r"(?:[^\d\[;!?\n]{0,60}\[ ?\d{1,3} ?, ?(\d{3,9}) ?\]"
    r"|(?:\W[^;!?\n]{0,60}?)?(?:<=|\bat most|\bno more than|\bnot exceed|\b(?:less|lower) than or equal to"
    r"|\bexceeds? (?:the |its )?(?:limit|max(?:imum)?)(?: allowed| value| of){0,2}|\bmax(?:imum)?(?: is| of)?)"
    r"\W{0,3}(\d{3,9}))",
    re.IGNORECASE | re.ASCII,
)
_OF_TIME: Final = re.compile(r"per (?:minute|day|hour)|\bTP[MD]\b", re.IGNORECASE)


class LackRule(msgspec.Struct, frozen=True):
    """The words of a vendor about what a model, or its server, cannot do."""

    words: str
    source: str


_MODELS: Final = r"(?:model|deployment|endpoint|provider|engine|backend)s?\b"
_ABILITY: Final = (
    r"\b(?:tools?|(?:function|tool)[ _]?(?:calling|calls|use)|tool[ _]choice|json|json[ _](?:mode|schema|object)"
    r"|response[ _](?:format|mime type)|structured outputs?|streaming|multi-?modal\w*|images?(?:_urls?)?"
    r"|pictures?|vision|files?|pdfs?|documents?|audio|videos?|logprobs|citations|web[ _]search\w*|service[ _]tiers?)\b"
)
# Of one turn: Groq, serde and pydantic.
_TEXT_ALONE: Final = (
    r"^messages(?:\[|\.)(?P<turn>\d{1,4})\]?\.content:? ?"
    r"(?:must be a string\W*$|invalid type: sequence, expected a string\b|input should be a valid string\W*$)"
)
_ANY: Final = "no vendor's own: the form in which several say it"
LACKS: Final = (
    LackRule(  # not of an id, which only one account knows: "File with id file_123 is not available"
        rf"{_ABILITY}(?:(?!\b(?:\w+_)?ids?\b|\b(?:call|file)[-_]\w)[^.;!?\n]){{0,40}}"
        r"\b(?:is|are)(?: currently| yet)? (?:un(?:supported|available)\b|incompatible\b"
        r"|not (?:currently |yet )?(?:supported|available|enabled|compatible)\b"
        r"(?! in th(?:e|is) (?:conversation|project)))",
        "Google, of tools beside JSON: github.com/openai/openai-agents-python/issues/656,"
        " Simpleyyt/ai-manus/issues/101, read on 2026-11-30; DeepSeek, of a schema: llm-exe/llm-exe/issues/662,"
        " read on 2026-11-27",
    ),
    LackRule(
        rf"{_ABILITY}[^.;!?\n]{{0,80}}\b(?:cannot|can.t|may not) be (?:combined|used together|mixed)\b",
        "Groq, of JSON beside tools and in streams: github.com/vercel/ai/pull/16540,"
        " console.groq.com/docs/structured-outputs, read on 2026-11-27",
    ),
    LackRule(
        r"\bmust contain the word ['\"]?json\b",
        "OpenAI: platform.openai.com/docs/guides/structured-outputs; DeepSeek: api-docs.deepseek.com/guides/json_mode,"
        " read on 2026-11-27. Others answer in JSON without the word",
    ),
    LackRule(r"\bnot (?:supported|available) in (?:this|your) (?:region|country|location)\b", _ANY),
    LackRule(
        r"\b(?:not |un)(?:currently |yet )?(?:supported|available|accepted|enabled|allowed)\b[^.;!?\n]{0,20}"
        rf" (?:by|for|with|on|in|at) (?:\S+ ){{0,2}}{_MODELS}",
        _ANY,
    ),
    LackRule(
        rf"\b{_MODELS}[^;!?\n]{{0,100}}\b(?:does not|doesn.t|do not|don.t|cannot|can.t|is not able to|is unable to)"
        r" (?:support|accept|handle|process|take|read|understand|have)\b"
        r"(?! (?:an? )?(?:blank|duplicate|empty|negative)\b)",
        "Groq, of a schema: console.groq.com/docs/structured-outputs, read on 2026-11-27; others in this form",
    ),
    LackRule(
        rf"\bis not an? (?:multi-?modal|vision|VLM)\b|\b{_MODELS}[^;!?\n]{{0,100}}\bis not (?:multi-?modal|capable)\b",
        "vLLM and SiliconFlow, of a picture; no page",
    ),
    LackRule(
        r"^\S{1,200} does not support (?:tools|images?|pictures?|vision|audio|files?|documents?|function calling)\b",
        "Ollama: github.com/louisho5/picobot/issues/6, read on 2026-11-27",
    ),
    LackRule(
        rf"\bno {_MODELS}[^;!?\n]{{0,40}}\bsupports?\b",
        "OpenRouter: github.com/Kilo-Org/kilocode/issues/9006, github/app/issues/2163, read on 2026-11-27",
    ),
    LackRule(
        rf"\bonly (?:supported|available) (?:by|for|with|on|in) [^.;!?\n]{{0,60}}{_MODELS}",
        "OpenAI, of a picture; no page",
    ),
    LackRule(
        r"\brequires --enable-\S+",
        "vLLM, by how it was started: github.com/vllm-project/vllm/issues/9986, read on 2026-11-27",
    ),
    LackRule(
        r"\b(?:unknown variant|invalid value:?|input tag) \W?(?:image|input_image|image_url|video|video_url|input_video"
        rf"|input_audio|audio_url|file|input_file|document)\b|{_TEXT_ALONE}"
        r"|messages\.content\.type\b[^.;\n]{0,20}\['text'\]",
        "DeepSeek, OpenAI, Groq and Zhipu, of a picture where they take texts alone:"
        " studynil.com/ai/llm/deepseek/issues/claude-code-deepseek-compat-send-images-error.html, read on 2026-11-30;"
        " sam3gp8/jarvis-aio/issues/17, read on 2026-12-01; Zhipu's code 1210, from memory",
    ),
    LackRule(
        r"\bonly text \S{1,30} blocks are supported\b",
        "LM Studio, of a tool's picture: lmstudio-ai/lmstudio-bug-tracker/issues/2008, read on 2026-12-01",
    ),
    LackRule(
        r"\bmodel requires a newer version of codex\b|\bmodel is not supported when using x-openai-",
        "ChatGPT, of a proxy that passes for an old Codex: github.com/openai/codex-plugin-cc/issues/468,"
        " Wei-Shaw/sub2api/issues/4771, read on 2026-12-01",
    ),
    LackRule(r"\bdo(?:es)? not meet the model restrictions\b", "Alibaba, of a picture's sides; no page"),
    LackRule(r"不支持(?:图|音|视|文件|多模态|工具|函数)", "in Chinese"),
)
_LACKS: Final = re.compile("|".join(each.words for each in LACKS), re.IGNORECASE)
# That a model takes texts alone. Not of some pictures, or in some turns: "does not support images in tool results".
_SEEN: Final = (
    r"\b(?:images?|image_url|pictures?|vision|multi-?modal)(?: (?:content|inputs?))?"
    r"(?: blocks?(?: that you provided)?)?"
)
_END: Final = r"(?=\s*(?:[.,;:!)'\"-]|$))"
_NO_PICTURES: Final = re.compile(
    r"\bunknown variant \W?(?:image|image_url|input_image)\W{1,3}expected \W?text\b"
    rf"|\b(?:does not|doesn.t|do not|don.t) (?:support|accept) (?:the )?{_SEEN}{_END}"
    rf"|{_SEEN} (?:is |are )?not (?:supported|enabled)"
    rf"(?: (?:by|for|with|on) (?:\S+ ){{0,2}}{_MODELS}(?: \S{{1,80}})?)?{_END}"
    rf"|\bno endpoints found that support {_SEEN}{_END}|messages\.content\.type\b[^.;\n]{{0,20}}\['text'\]"
    rf"|\bis not an? (?:(?:multi-?modal|vision) model|VLM)\b|\bimage_url is only supported by certain {_MODELS}"
    rf"|\bno {_MODELS}[^;!?\n]{{0,40}}\bsupports? image inputs?{_END}|不支持图[片像]输入",
    re.IGNORECASE,
)
_OF_TURN: Final = re.compile(_TEXT_ALONE, re.IGNORECASE)
_PATTERNS: Final = tuple((rule.what, re.compile(rule.words, re.IGNORECASE | re.DOTALL)) for rule in RULES)
_LONGEST: Final = 4096  # characters of a message that are searched
_TOO_LARGE: Final = 413


def limit_of(status: int | None, message: str) -> Limit | None:
    """Return the limit that a refusal in these words is about; None if the refusal is about something else."""
    text = message[:_LONGEST]
    if tokens := longest_in(text.replace("\\", "")):
        return Limit(ANSWER, tokens)
    for what, words in _PATTERNS:
        if (match := words.search(text)) is not None:
            groups = match.groupdict()
            most = groups.get("most") or groups.get("limit")
            return Limit(what, None if most is None else int(most.replace(",", "")))
    return Limit(BYTES) if status == _TOO_LARGE and not is_too_long(text) else None


def is_of_model(text: str) -> bool:
    """Whether a refusal says that the model, or its server, cannot do something: other deployments may."""
    return _LACKS.search(text[:_LONGEST]) is not None


def lack_of(text: str) -> Limit | None:
    """Return what a model takes none of, by the words of a refusal that ``is_of_model``; None: the words do not say.

    A turn that has to be a text, and has a picture, is refused for the picture: "messages[1].content must be a string".
    """
    if (turn := _OF_TURN.search(text[:_LONGEST])) is not None:
        return Limit(PICTURES, 0, int(turn["turn"]))
    return None if _NO_PICTURES.search(text[:_LONGEST]) is None else Limit(PICTURES, 0)


def longest_in(text: str) -> int:
    """Return the tokens of the longest answer, by the words of a refusal; 0 if the words do not say."""
    match = _LONGEST_ANSWERS.search(text)
    if match is not None:
        return int(next(filter(None, match.groups()))) - (match["below"] is not None)
    match = _BOUNDED_ANSWERS.search(text)
    if match is None or is_too_long(text) or _OF_TIME.search(text) is not None:
        return 0
    return int(match[1] or match[2])
