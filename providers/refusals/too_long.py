"""Refusals of a prompt that is too long for one deployment: another with a longer context may take it."""

import re
from collections.abc import Iterable

import msgspec

from providers.refusals.refused_fields import SENTENCES

# The words of vendors, as github.com/badlogic/pi-mono has them (packages/ai/src/utils/overflow.ts, read on 2026-11-27):
# of OpenAI, Azure, vLLM, OpenRouter, Anthropic, Google, Bedrock, xAI, Groq, GitHub Copilot, MiniMax, Kimi, llama.cpp
# and LM Studio. Mistral, SGLang and Together name a context length, too. The last five lines are of TGI, Alibaba
# (github.com/QwenLM/qwen-code/issues/98, zed-industries/zed/issues/50729, read on 2026-11-30), Zhipu and SGLang, older
# vLLM, Volcengine: without a page where none is named.
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|context.{0,12}(?:length|window|size|limit).{0,40}(?:exceed|overflow)"
    r"|(?:maximum|exceeds?|longer than|greater than|too long|too large|overflows?).{0,60}\bcontext"
    r"|(?:prompt|input)(?: \w+)? is too long|maximum prompt length|too many (?:input |prompt )?tokens"
    r"|(?:input|prompt|request)\W.{0,60}exceeds? the (?:maximum|limit).{0,30}token|token count.{0,40}exceeds"
    r"|exceeded model token limit|reduce the length of (?:the|your) (?:messages|prompt|input)|request_too_large"
    r"|`?inputs`? tokens \+ `?max_new_tokens`? must be"
    r"|`?inputs`? must have less than \d+ tokens|range of input length should be"
    r"|\b(?:prompt|input)(?: length)?(?: \d+)? exceeds? (?:the )?max(?:imum)?(?: allowed)? length"
    r"|\bprompt .{0,40}longer than the maximum model length"
    r"|\bcannot be greater than max_model_len="  # vLLM's, of an answer longer than the context
    r"|\bprompt length \(\d{1,9}.{0,80}\bshould not exceed max_"  # TensorRT-LLM's
    r"|\btotal (?:number of )?tokens\b.{0,60}(?:\bcannot exceed \d|exceeds? (?:the )?max)"
    # Codes of GitHub Models, with 413, of Baidu and of Copilot.
    r"|\btokens_limit_reached\b|\btokens_too_long\b|\bmodel_max_prompt_tokens_exceeded\b|\bmax size: \d+ tokens\b"
    r"|\bmax tokens of \d+ exceeded\b"  # Snowflake's
    r"|\bmax length of (?:the )?current question\b"  # Baidu's, of old
    r"|\b(?:length of )?prompt_tokens \(\d{1,9}\) must be less than\b"  # SiliconFlow's
    # Of own servers, from memory.
    r"|\bsequence length\b.{0,20}\bexceeded\b|\bexceeds? n_ctx\b|\bcontext overflow"
    r"|\bcontext(?: window)? (?:is )?full\b|\bout of context (?:space|room|window)\b",
    re.IGNORECASE,
)
# Words that the list does not have: a sentence says that a prompt is too much, in tokens or as a length. SambaNova,
# Bedrock (Nova), Vertex, DeepInfra, TabbyAPI, NVIDIA NIM, Databricks, Moonshot and Hunyuan have such sentences.
_OF_A_PROMPT = re.compile(
    r"\b(?:prompts?|inputs?|messages|conversations?|requests?|(?:input|prompt)_tokens)\b", re.IGNORECASE
)
_IS_TOO_MUCH = re.compile(
    r"exceed|overflow|\btoo (?:long|large|big)\b|\btoo many (?:\w+ ){0,2}tokens\b|\bover the\b"
    r"|\b(?:longer|greater|larger|bigger) than\b"
    r"|\bmore (?:tokens )?than (?:the |its |our |this |a )?(?:\d[\d,]{2}|max|limit|model|context|allowed|supported)"
    r"|\bno more than \d|\bcan only (?:handle|hold|process|take)\b"
    r"|\b(?:does not|doesn.t|do not|don.t|cannot|can.t|will not|won.t) fit\b"
    r"|\bmaximum supported\b|\bsupports? (?:only )?(?:up to|at most|a maximum)\b|\bonly (?:supports?|takes|accepts)\b",
    re.IGNORECASE,
)
_IN_TOKENS = re.compile(
    r"\btokens?\b|\bcontext\b|\blength of (?:the|your)\b|\b(?:the|its|our|model.?s) window\b"
    r"|\b(?:max_?)?(?:seq|sequence|input|prompt|model)[_ ]?len(?:gth)?\b",
    re.IGNORECASE,
)
# Such a sentence without tokens or a length: the whole prompt is too much.
_IS_TOO_LONG = re.compile(
    r"\b(?:prompt|query|conversation"
    r"|(?:input|messages?|text)(?=[^.;!?]{0,40}\bfor (?:(?:this|the|that|our|your) )?(?:\w+ )?(?:model|deployment)))\b"
    r"(?: you \w+)?(?: is| are| was)?(?: far| much)? too (?:long|large|big)\b",
    re.IGNORECASE,
)
# What else may be too long in such a sentence, or should be longer.
_OF_ANOTHER_THING = re.compile(
    r"\b(?:images?|pictures?|audios?|videos?|files?|urls?|characters|bytes|pixels|strings?|items|arrays?|elements|stop"
    r"|schemas?|names?|ids?|(?:max|output|completion|thinking|budget)_tokens|(?<!token )budget|n_predict|logit_bias"
    r"|temperature|quota|credits?|balance|seconds|minutes|hours|daily|monthly|thinking (?:tokens?|token budget)"
    r"|budget (?:of|for|on) (?:your|this|the) (?:account|key|organi[sz]ation)"
    r"|top_\w+|cached|caching)\b|\b(?:access|api|auth\w*|bearer|page|session) token"
    r"|\b(?:must|should|shall|has to|have to|needs? to|requires?|ensure|expected)\b.{0,40}"
    r"(?<!\bno )\b(?:longer|greater|larger|more|bigger) than\b|\bthan (?:or equal to )?[01]\b",
    re.IGNORECASE,
)
_IN_CHINESE = re.compile(  # Zhipu's code 1261 and others: the input, or tokens, are too long, or beyond a limit
    r"(?:输入|提示词|上下文|对话|会话|消息|(?<!输出 )\b(?:prompt|input|(?:(?:prompt|input)_)?tokens?)(?![A-Za-z_]))"
    r"[^。\uff1b;\n图片文件视音输出频参_]{0,20}"
    r"(?:过长|超长|太长|超过|超出|超限)"
    r"|(?:超过|超出)[^。\uff1b;\n图片文件视音输出频参_]{0,12}(?:上下文|输入长度|提示词长度)",
    re.IGNORECASE,
)
# The same in Japanese and Korean, of servers whose operators have translated their words: from memory.
_IN_JAPANESE = re.compile(
    r"(?:入力|プロンプト|コンテキスト|会話|メッセージ(?!の?数)|(?<!出力)トークン数)"
    r"(?:(?!画像|音声|動画|ファイル|出力|パラメータ)[^。;\n_]){0,40}(?:超え|超過|長すぎ|大きすぎ)"
    r"|(?<!出力)トークン(?:数)?の?(?:上限|制限|最大)[^。;\n_]{0,8}(?:超え|超過)"
)
_IN_KOREAN = re.compile(
    r"(?:입력|프롬프트|컨텍스트|대화|메시지(?! ?수)|(?<!출력 )토큰 ?수)"
    r"(?:(?!이미지|음성|영상|파일|출력|매개변수|파라미터)[^.;\n_]){0,40}(?:초과|너무 [길깁긴큽큰]|넘[었습는어])"
    r"|(?<!출력 )(?<!API )토큰 ?(?:한도|제한|상한)[^.;\n_]{0,8}(?:초과|넘)"
)
_IN_RUSSIAN = re.compile(
    r"^(?!.*(?:изображен|картин|файл|аудио|видео|параметр|символ|вывод|ответ|минут|секунд|сутк))"
    r"(?:.*\b(?:запрос|промпт|подсказк|контекст|сообщени|ввод|входны|диалог|бесед)\w*\b[^.;\n_]{0,60}"
    r"(?:превыша|превысил|слишком (?:длин|больш|велик)|не помеща)"
    r"|.*(?:превышен|превышает|слишком (?:длин|больш))\w*[^.;\n_]{0,40}"
    r"\b(?:запрос|промпт|подсказк|контекст|сообщени|ввод|входн|диалог|бесед)(?!\w*ов\b))",
    re.IGNORECASE,
)
# In languages of Europe.
_IN_EUROPEAN = re.compile(
    r"^(?!.*(?:\bausgabe|\bsalida|\bsaída|\bsortie|\buscita|\bminut))"
    r"(?:.*\b(?:eingabe|kontext|prompt|entrada|contexto|invite|entrée|contexte|contesto|invoer)\w*\b[^.;\n]{0,60}"
    r"(?:\büberschr|\bzu lang|\bexced|\bsuper(?:a|ó)\b|\bdemasiad|\bdépass"
    r"|\btrop (?:de|long)|\btroppo|\bte lang|\bmuito long)"
    r"|.*(?:\büberschr|\bexced|\bsuper(?:a|ó)\b|\bdépass)[^.;\n]{0,60}\b(?:kontext|contexto|contexte|contesto))",
    re.IGNORECASE,
)
_WORDS = (_TOO_LONG, _IN_CHINESE, _IN_JAPANESE, _IN_KOREAN, _IN_RUSSIAN, _IN_EUROPEAN)
# The limit in them: "188240 + 21333 > 200000", "maximum context length is 8192 tokens", "allowed (1048575)", "limit:
# 262144 (requested: 300000)", "65673 tokens, too large for model with 32768 maximum context length", "should be
# [1, 129024]", "must have less than 4096 tokens", "cannot exceed 8192",
# "supports up to 1048576". No limit: by how much the prompt exceeds one, "exceeded by 11326 tokens" (Cohere, Ollama's
# cloud).
_LIMITS = (
    re.compile(r"> ?(\d[\d,]{2,11})"),
    re.compile(r"(?:\bn_ctx|context window limit)\W{1,3}(\d[\d,]{2,11})", re.IGNORECASE),
    re.compile(
        r"(?:\bmax(?:imum)?\b|\bmax_(?:seq|model|input|prompt|context|num_tokens)\w{0,12}|limit|allowed"
        r"|context (?:length|size|window|of)|最大|上限|최대|한도)"
        r"(?:(?!\bby\b)\D){0,40}(\d[\d,]{2,11})",
        re.IGNORECASE,
    ),
    re.compile(r"(\d[\d,]{2,11}) maximum", re.IGNORECASE),
    re.compile(
        r"(?:should be \[\d+, ?|have less than |cannot exceed |exceeds? |up to |greater than )(\d[\d,]{2,11})",
        re.IGNORECASE,
    ),
)
# Of a limit per minute, which smaller prompts reach as well, and of an answer alone.
_OF_A_MINUTE = re.compile(
    r"per (?:minute|day|hour)|\bTP[MD]\b|rate.?limit|\bplease wait\b|每(?:分钟|小时|[天日秒])"
    r"|[分日秒]あたり|毎[分日秒]|[분초]당",
    re.IGNORECASE,
)


# The tokens of the prompt, and of the answer that was asked for beside it: of OpenAI, vLLM, SGLang, Anthropic.
_BESIDE = (
    re.compile(
        r"\((?P<prompt>\d{1,9}) in the (?:messages|prompt)[^,;]{0,40}[,;] (?P<answer>\d{1,9}) in the completion"
    ),
    re.compile(
        r"requested (?P<answer>\d{1,9}) output tokens and your prompt contains (?:at least )?(?P<prompt>\d{1,9})"
    ),
    re.compile(r"(?P<prompt>\d{1,9}) tokens from the input messages and (?P<answer>\d{1,9}) tokens for the completion"),
    re.compile(r"(?P<prompt>\d{1,9}) \+ (?P<answer>\d{1,9}) > \d"),
)
# In any language: of tokens.
_NAMES_TOKENS = re.compile(r"tok[eé]n|токен|トークン|토큰|رمز|\bjetons?\b", re.IGNORECASE)
_LEAST_BYTES_PER_TOKEN, _MOST_BYTES_PER_TOKEN = 1, 8
_NUMBER = re.compile(r"(?<![\w.,])(\d[\d,]{2,11})(?!\w)")


class StatedLengths(msgspec.Struct, frozen=True):
    """The tokens in such a refusal; None: unknown."""

    prompt: int | None = None
    answer: int | None = None  # asked for; only where the prompt itself would fit
    most: int | None = None  # of the context


UNKNOWN_LENGTHS = StatedLengths()


def is_too_long(text: str, codes: Iterable[str] = ()) -> bool:
    """Whether a refusal with this message, and its codes and types, is about the length of the prompt."""
    text = " ".join((text, *codes))
    if _OF_A_MINUTE.search(text) is not None:
        return False
    return any(words.search(text) is not None for words in _WORDS) or _is_in_other_words(text)


def _is_in_other_words(text: str) -> bool:
    return any(
        (
            _IS_TOO_LONG.search(sentence) is not None
            or all(words.search(sentence) is not None for words in (_OF_A_PROMPT, _IS_TOO_MUCH, _IN_TOKENS))
        )
        and _OF_ANOTHER_THING.search(sentence) is None
        for sentence in SENTENCES.split(text)
    )


def counts_too_many(text: str, prompt_bytes: int) -> bool:
    """Whether a refusal states a number of tokens that a prompt of so many bytes may have, and a lower one.

    In words of no list, in any language: "Die Anfrage hat 40021 Token, erlaubt sind 32768".
    """
    numbers = {int(each.replace(",", "")) for each in _NUMBER.findall(text)}
    if len(numbers) != 2 or _NAMES_TOKENS.search(text) is None:  # noqa: PLR2004 - the prompt's and the limit
        return False
    is_near = prompt_bytes // _MOST_BYTES_PER_TOKEN <= max(numbers) <= prompt_bytes // _LEAST_BYTES_PER_TOKEN
    return is_near and not any(words.search(text) is not None for words in (_OF_A_MINUTE, _OF_ANOTHER_THING))


def stated_limit(text: str) -> int | None:
    """Return the tokens of the context that such a refusal states; None: no number is stated."""
    matches = (match for pattern in _LIMITS if (match := pattern.search(text)) is not None)
    return next((int(match[1].replace(",", "")) for match in matches), None)


def stated_lengths(text: str) -> StatedLengths:
    """Return the tokens that such a refusal states."""
    most = stated_limit(text)
    if most is None:
        return UNKNOWN_LENGTHS
    for pattern in _BESIDE:
        if (match := pattern.search(text)) is not None:
            prompt, answer = int(match["prompt"]), int(match["answer"])
            return StatedLengths(prompt=prompt, answer=answer if prompt <= most else None, most=most)
    numbers = (int(each.replace(",", "")) for each in _NUMBER.findall(text))
    return StatedLengths(prompt=max((each for each in numbers if each > most), default=None), most=most)
