"""What vendors say of a prompt that is too long, and what only sounds so."""

import pytest

from providers import ErrorKind, UpstreamError, stated_lengths, stated_limit
from providers.dialects import raw_json
from providers.refusals import Findings, decide_by_request


def refusal(message: str, status: int = 400, *names: str, outsized: bool = False) -> UpstreamError:
    return UpstreamError(
        ErrorKind.BAD_REQUEST, message, status=status, names=names, findings=Findings(is_outsized=outsized)
    )


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "Input is too long for requested model.",
        "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Please reduce the length of the messages or completion.",
        "the request exceeds the available context size, try increasing it",
        "tokens to keep from the initial prompt is greater than the context length",
        "Prompt contains 65673 tokens, too large for model with 32768 maximum context length",
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "prompt token count of 130000 exceeds the limit of 128000",
        "invalid params, context window exceeds limit (2013)",
        "Your request exceeded model token limit: 262144 (requested: 300000)",
        "too many tokens: the prompt has 200000",
        "Input length 140000 exceeds the maximum length 131072",
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
        "Total tokens of image and text exceed max message tokens.",
        "Prompt exceeds max length",
        "The decoder prompt (length 40000) is longer than the maximum model length of 32768.",
        "The total number of tokens (prompt and response) cannot exceed 8192.",
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
        "The provided prompt is 9000 tokens long, but the maximum supported sequence length is just 8192!",
        '{"error":"Requested input length 40021 exceeds maximum input length 32768"}',
        "Prompt length 9000 is greater than max_seq_len 8192",
        "Prompt length 40021 exceeds max input length 32768",
        "Bad request: prompt token count (40021) cannot exceed 32768. Total tokens requested: 40121.",
        "the input token count is 1200000 but the model only supports up to 1048576.",
        "Input token length too long",
        "The total length of the input exceeds 32000",
        "Request body too large for gpt-4o model. Max size: 8000 tokens.",
        "Request Entity Too Large: prompt has too many tokens (limit 32768)",
        "Maximum sequence length exceeded (40000 > 32768)",
        "n_tokens 40000 exceeds n_ctx 32768",
        "Your request has 40000 tokens but the model can only handle 32768",
        "Die Eingabe \u00fcberschreitet die maximale Kontextl\u00e4nge von 32768 Tokens",
        "L'invite d\u00e9passe la longueur maximale du contexte (32768 jetons)",
        "La entrada supera el l\u00edmite de contexto de 32768 tokens",
        "La requ\u00eate d\u00e9passe la longueur de contexte maximale du mod\u00e8le (32768 jetons)",
        "Die Anfrage \u00fcberschreitet das Kontextfenster des Modells",
        "La richiesta supera la lunghezza massima del contesto",
        "the request exceeded the maximum number of tokens for the model: 40021 > 32768",
        "max tokens of 32768 exceeded",
        "The prompt has more tokens than the model takes",
        "Your request has too many prompt tokens",
        "The input length is greater than 8192 tokens",
        "number of input tokens must be no more than 8192, got 8545",
        "prompt_tokens 超过 8192",
        "Prompt 超长",
        "输入内容过长,超过模型最大上下文长度限制",
        "输入长度超过模型上限,最大支持 32768 tokens",
        "入力トークン数(40021)がモデルの最大コンテキスト長(32768)を超えています",
        "プロンプトが長すぎます",
        "入力が長すぎます。最大 32768 トークンです。",
        "コンテキストの上限を超過しました",
        "会話の長さが上限を超えました",
        "입력 토큰 수(40021)가 모델의 최대 컨텍스트 길이(32768)를 초과했습니다",
        "프롬프트가 너무 깁니다.",
        "입력이 최대 길이를 초과하였습니다",
        "메시지가 컨텍스트 한도를 넘었습니다",
        "Запрос превышает максимальную длину контекста модели (32768 токенов)",
        "Слишком длинный промпт: 40021 токенов, максимум 32768",
        "Превышен лимит токенов контекста",
        "Контекст слишком большой",
        "Сообщение слишком длинное для этой модели",
        "Token数量超过模型的最大限制",
        "当前会话内容过长,请新建会话",
        "超过模型最大上下文限制",
        "プロンプトが大きすぎます",
        "トークンの上限を超えました",
        "토큰 한도를 초과했습니다",
        "입력이 너무 큽니다",
        "O prompt é muito longo (40021 tokens)",
        "Your prompt is over the token budget of this model",
        "prompt exceeds the window",
        "The conversation exceeds the window of this model",
        "input is too large for this model",
        "The prompt does not fit into the context window",
        "context full: 40021 of 32768 tokens",
        "out of context space",
        "prompt too long",
        "Message too long for model",
        "Your conversation is too long. Please start a new one.",
        "The text you sent is too long for this model",
        "Prompt too large: model gpt-2.5 takes 32768 tokens",
    ],
)
def test_a_prompt_that_is_too_long_is_known_by_the_vendors_words(message: str) -> None:
    assert refusal(message).is_too_long


def test_a_code_or_a_status_says_so_too() -> None:
    assert refusal("no", 400, "context_length_exceeded").is_too_long
    assert refusal("no", 400, "exceed_context_size_error").is_too_long
    assert not refusal("Request exceeds the maximum size", 413, "request_too_large").is_too_long  # bytes, not tokens


@pytest.mark.parametrize(
    "message",
    [
        "La salida excede el contexto; entrada: 5",
        "Limite pro Minute: Eingabe zu lang",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        "Invalid 'input[0].id': string too long. Expected a string with maximum length 64",
        "Rate limit reached: too many tokens per minute (TPM): Limit 6000, Requested 8000",
        "image exceeds 5 MB maximum",
        "total tokens exceed your organization's limit per day",
        "Range of output length should be [1, 8192]",
        "Invalid 'user': the input exceeds what is allowed",
        "tools.0.custom.name: String should have at most 64 characters",
        "Unknown parameter: 'context_management'.",
        "Invalid 'messages[3].content': string too long. Expected at most 1048576 characters",
        "The number of stop sequences in the input exceeds 4",
        "max_tokens exceeds what is left beside thinking.budget_tokens of the input",
        "The messages have more than 20 images, which the context of this model does not take",
        "The request has more than 128 tools",
        "Requests may ask for no more than 16384 output_tokens, yours exceeds that",
        "The number of prompt tokens must be greater than 0",
        "Prompt must be longer than 1 token in length",
        "prompt tokens: ensure this value is greater than 0",
        "Request rejected: bearer token is too long",
        "The cached prompt must be larger than 1024 tokens",
        "logit_bias in your request has more than 300 tokens",
        "Requests with more than one message in context are not supported",
        "messages: too many tool calls in the context of one turn",
        "Input validation error: `temperature` must be greater than 0, whatever the length of the prompt",
        "your prompt contains too many images",
        "输入参数 temperature 超过最大值 2",
        "输入的 max_tokens 超过 8192",
        "输出长度超过限制",
        "输入图片超过大小限制",
        "每分钟 tokens 超过限制",
        "入力画像がサイズの上限を超えています",
        "入力パラメータ temperature が最大値 2 を超えています",
        "入力の max_tokens が 8192 を超えています",
        "出力トークン数が上限を超えています",
        "メッセージの数が上限を超えています",
        "1分あたりの入力トークン数の上限を超えました",
        "アクセストークンが長すぎます",
        "입력 이미지가 최대 크기를 초과했습니다",
        "출력 토큰 수가 최대값을 초과했습니다",
        "메시지 수가 한도를 초과했습니다",
        "분당 입력 토큰 수를 초과했습니다",
        "Слишком много запросов: 100 токенов в минуту превышено",
        "Сообщений слишком много: превышен лимит запросов",
        "Параметр max_tokens в запросе превышает 8192",
        "Изображение в запросе слишком большое",
        "Requests exceed the window of 60 seconds",
        "Your request exceeds the daily token budget",
        "Your request exceeds the token budget of your key",
        "thinking token budget exceeds max_tokens",
        "Input file too large for this model",
        "The input of tool `f` is too long",
        "输出 token 数超过限制",
        "出力トークンの上限を超えました",
        "1分あたりのトークンの上限を超えました",
        "출력 토큰 한도를 초과했습니다",
        "분당 토큰 한도를 초과했습니다",
    ],
)
def test_what_is_too_long_besides_the_prompt_is_not_about_it(message: str) -> None:
    assert not refusal(message).is_too_long


COUNTED = [
    "Die Anfrage hat 40021 Token, erlaubt sind 32768",
    "token budget exceeded: 40021 of 32768",
    "Prompt tokens: 40021. Limit: 32768.",
    "The prompt has 40021 tokens, limit 32768",
    "This model takes 32,768 tokens, you sent 40,021",
    "Input tokens (40021) > model limit (32768)",
    "Het verzoek is te lang: 40021 tokens, hoogstens 32768",
    "İstek çok uzun: 40021 token, en fazla 32768",
    "Zapytanie jest zbyt długie: 40021 tokenów (limit 32768)",
    "Promptet er for langt: 40021 tokens, maks 32768",
    "Yêu cầu vượt quá giới hạn: 40021 token, tối đa 32768",
]


def decided(said: str, prompt: str, status: int = 400, **fields: int) -> UpstreamError:
    error = refusal(said, status)
    values = {"messages": [{"role": "user", "content": prompt}], **fields}
    decide_by_request(error, "m", {name: raw_json(each) for name, each in values.items()}, may_lack_path=False)
    return error


@pytest.mark.parametrize("said", COUNTED)
def test_a_number_near_the_prompts_tokens_says_in_any_words_that_the_prompt_is_too_long(said: str) -> None:
    assert decided(said, "four" * 40_021, seed=7, n=1).is_too_long
    assert decided(said, "four" * 40_021, status=413).is_too_long
    assert decided(said, "four" * 40_021).again(ErrorKind.BAD_REQUEST).is_too_long
    assert not decided(said, "a short prompt").is_too_long
    assert not decided(said, "four" * 40_021, max_tokens=40_021).is_too_long  # the number is the answer's limit


@pytest.mark.parametrize(
    "said",
    [
        "40021 Bytes gelesen, Fehler in Zeile 32768",
        "Der Text hat 40021 Token",
        "max_tokens 40021, erlaubt sind 32768 Token",
        "thinking tokens: 40021, limit 32768",
        "40021 Token je Minute (TPM), erlaubt sind 32768",
        "Your account has used 40021 tokens of its quota of 32768",
        "The cached tokens (40021) are more than 32768",
        "1024, 40021 and 32768 tokens",
    ],
)
def test_numbers_of_other_things_say_nothing_of_the_prompts_length(said: str) -> None:
    assert not decided(said, "four" * 40_021).is_too_long


def test_what_is_too_large_for_a_minute_is_no_length() -> None:
    assert not refusal(
        "Request too large for model `x`: please reduce your message size", 413, outsized=True
    ).is_too_long


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease it", 200_000),
        ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),
        ("This model's maximum context length is 8,192 tokens. However, you requested 9000 tokens", 8192),
        ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", 1_048_575),
        ("Your request exceeded model token limit: 262144 (requested: 300000)", 262_144),
        ("Prompt contains 65673 tokens, too large for model with 32768 maximum context length", 32_768),
        ("Input is too long for requested model.", None),
        ("too many tokens: size limit exceeded by 11326 tokens. Try using shorter inputs", None),  # Cohere
        ("prompt too long; exceeded max context length by 1200 tokens", None),  # Ollama's cloud
        ("greater than the context length (n_keep: 40021>= n_ctx: 32768). Try to load the model", 32_768),  # LM Studio
        ("maximum output tokens (40277) exceeded this model context window limit (32768).", 32_768),  # Cloudflare
        ("Prompt length 9000 is greater than max_seq_len 8192", 8192),
        ("prompt tokens (5000) and max_tokens (4000) exceed 8192", 8192),
        ("The input token count is 1200000 but the model only supports up to 1048576.", 1_048_576),
        ("The total length of the input exceeds 32000", 32_000),
        ("Request body too large for gpt-4o model. Max size: 8000 tokens.", 8000),
        ("Prompt of 40021 tokens exceeds the model's context of 32768 tokens", 32_768),
        ("输入长度超过模型上限,最大支持 32768 tokens", 32_768),
        ("入力トークン数(40021)がモデルの最大コンテキスト長(32768)を超えています", 32_768),
        ("입력 토큰 수(40021)가 모델의 최대 컨텍스트 길이(32768)를 초과했습니다", 32_768),
    ],
)
def test_the_limit_is_read_where_it_is_stated(said: str, limit: int | None) -> None:
    assert stated_limit(said) == limit


@pytest.mark.parametrize(
    ("message", "lengths"),
    [
        ("prompt is too long: 208310 tokens > 200000 maximum", (208310, None, 200000)),
        (
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            (1196265, None, 1048575),
        ),
        ("maximum context length is 8192 tokens. However, your messages resulted in 8,545 tokens.", (8545, None, 8192)),
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            (537812, None, 131072),
        ),
        (
            (
                "maximum context length is 8192 tokens. However, you requested 9002 tokens (2 in the messages,"
                " 9000 in the completion)."
            ),
            (2, 9000, 8192),
        ),
        (
            (
                "maximum context length is 32768 tokens. However, you requested 2000 output tokens and your"
                " prompt contains at least 40000 input tokens"
            ),
            (40000, None, 32768),
        ),
        (
            (
                "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a"
                " total of 33208 tokens: 508 tokens from the input messages and 32700 tokens for the completion."
            ),
            (508, 32700, 32768),
        ),
        ("exceed context limit: 188240 + 21333 > 200000, decrease input length", (188240, 21333, 200000)),
        ("Your input exceeds the context window of this model.", (None, None, None)),
        ("maximum context length is 4096 tokens", (None, None, 4096)),
    ],
)
def test_the_tokens_that_a_refusal_states_are_read(message: str, lengths: tuple[int | None, ...]) -> None:
    found = stated_lengths(message)
    assert (found.prompt, found.answer, found.most) == lengths
