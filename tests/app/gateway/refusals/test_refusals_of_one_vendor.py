"""A 400 may be one vendor's, or its model's, and not the client's: a table of their words, and who is asked next."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from providers.simulator import Raw, RoleOnly, Status, Step, answer
from tests.app.gateway.refusals.test_found_in_time import STRIKES
from tests.app.gateway.refusals.test_meanings import asked
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.shared_gateway import SharedGateways


class Said:
    """What a vendor says: status, words, code and type of its error, in OpenAI's shape or as it is."""

    def __init__(self, status: int, message: str, code: str | int | None = None, **more: Any) -> None:
        self.status = status
        self.message = message
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": "invalid_request_error", "code": code, **more}
        }

    def whole(self) -> list[Step]:
        return [Status(self.status, self.body)]

    def within(self) -> list[Step]:
        error = {**self.body["error"], "status_code": self.status}
        return [RoleOnly(), Raw(b"event: error\ndata: " + json.dumps({"error": error}).encode() + b"\n\n")]


def anthropic(status: int, message: str, kind: str = "invalid_request_error") -> Said:
    said = Said(status, message)
    said.body = {"type": "error", "error": {"type": kind, "message": message}}
    return said


def google(status: int, message: str) -> Said:
    said = Said(status, message)
    said.body = {"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT"}}
    return said


def pydantic(message: str, *place: Any) -> Said:
    said = Said(422, message)
    said.body = {"detail": [{"type": "missing", "loc": ["body", *place], "msg": message}]}
    return said


def tools(most: int, sent: int = 150) -> str:
    return (
        f"Invalid 'tools': array too long. Expected an array with maximum length {most}, but got an array with length"
        f" {sent} instead."
    )


FAILED = "See 'failed_generation' for more details."
WROTE: Mapping[str, Said] = {
    "Groq, a call": Said(400, f"Failed to call a function. Please adjust your prompt. {FAILED}", "tool_use_failed"),
    "Groq, JSON": Said(400, f"Failed to validate JSON. Please adjust your prompt. {FAILED}", "json_validate_failed"),
    "Groq, Harmony": Said(400, f"Parsing failed. {FAILED}", "output_parse_failed"),
    "Cerebras, a call": Said(
        400,
        "Failed to generate tool_calls. Exception: Failed to generate tool call. Tool is not present in the tools"
        " list.",
    ),
    "TGI, a call": Said(422, "Tool error: No function found in generated text"),
    "MiniMax, JSON": Said(400, "Model did not output valid JSON. The output was truncated"),
}
# What a vendor's server says of itself with the status of a wrong request.
ITS_OWN: Mapping[str, Said] = {
    "NVIDIA": Said(400, "Function id '87ea0ddc-cff1-4bca-bf8b-3bd98a35ddd0': DEGRADED function cannot be invoked"),
    "LM Studio, no model": Said(400, "Model unloaded."),
    "LM Studio, a crash": Said(400, "The model has crashed without additional information. (Exit code: null)"),
    "Together": Said(400, "Endpoint is not running. Please start the endpoint and try again.", "endpoint_not_running"),
    "new-api": Said(400, "模型 m 倍率或价格未配置,请联系管理员设置 (request id: x)", "model_price_error"),
}
LIMITS: Mapping[str, Said] = {
    "OpenAI, tools": Said(400, tools(128), "array_above_max_length", param="tools"),
    "OpenAI, functions": Said(400, tools(128).replace("tools", "functions"), "array_above_max_length"),
    "Copilot, tools": Said(400, tools(128), "invalid_request_body"),
    "Groq, tools": Said(400, "'tools' : maximum number of items is 128"),
    "of OpenRouter's, pictures": Said(400, "Model 'moonshotai/kimi-k2.6' supports at most 1 image per prompt."),
    "Google, tools": google(
        400,
        "The GenerateContentRequest proto is invalid:\n  * tools[0].function_declarations: [FIELD_INVALID] At most 512"
        " function declarations can be specified.",
    ),
    "Google, fewer": google(400, "At most 128 function declarations can be specified."),
    "xAI, tools": Said(400, "Maximum tools limit reached. 219 tools have been provided but the maximum is 200."),
    "a proxy, tools": Said(400, "number of tools exceeds 128"),
    "a proxy, fewer tools": Said(400, "Too many tools: 150 (max 64)"),
    "a server's tools": Said(400, "The number of tools (150) exceeds the maximum allowed (128)."),
    "Vertex, tools": google(400, "Too many function declarations: 600. The maximum is 512."),
    "Anthropic, tools": anthropic(400, "tools: List should have at most 128 items after validation, not 150"),
    "pydantic, tools": pydantic("List should have at most 128 items after validation, not 150", "tools"),
    "AWS, tools": Said(
        400,
        "1 validation error detected: Value at 'toolConfig.tools' failed to satisfy constraint: Member must have length"
        " less than or equal to 128",
    ),
    "tools, in Chinese": Said(400, "tools 数量超过限制,最多支持 128 个"),
    "Groq, answers": Said(400, "'n' : number must be at most 1"),
    "Anthropic, a picture": anthropic(
        400,
        "messages.1.content.2.image.source.base64: image exceeds 5 MB maximum: 6275800 bytes > 5242880 bytes",
    ),
    "Anthropic, a picture, in short": anthropic(400, "messages.1.content.2: image exceeds 5 MB maximum"),
    "Bedrock, pictures": anthropic(400, "too many images and documents: 21 + 0 > 20"),
    "Anthropic, pictures": anthropic(400, "too many images and documents: 104 + 1 > 100"),
    "Anthropic, pixels": anthropic(
        400,
        "messages.7.content.2.image.source.base64.data: At least one of the image dimensions exceed max allowed size:"
        " 8000 pixels",
    ),
    "Anthropic, pixels of many": anthropic(
        400,
        "messages.38.content.1.image.source.base64.data: At least one of the image dimensions exceeds max allowed size"
        " for many-images requests: 2000 pixels",
    ),
    "Anthropic, pages": anthropic(
        400, "messages.4.content.0.pdf.source.base64.data: A maximum of 100 PDF pages may be provided."
    ),
    "vLLM, pictures": Said(400, "At most 1 image(s) may be provided in one request.", 400),
    "Copilot, pictures": Said(
        400, "Too many images in request: 11 images provided, but the model supports a maximum of 10 images."
    ),
    "Meta, pictures": Said(400, "Request contains 52 images, exceeding the maximum of 50 allowed per request"),
    "new-api, pictures": Said(400, "too many images in the message, max allowed is 16"),
    "Groq, pictures": Said(400, "Too many images provided. This model supports up to 5 images"),
    "Mistral, pictures": Said(400, "Total number of images (9) exceeds the maximum of 8"),
    "xAI, a picture": Said(400, "Image size exceeds the maximum allowed size of 20971520 bytes"),
    "a picture, in short": Said(400, "Image too large: maximum 10MB"),
    "Alibaba, a picture": Said(400, "Exceeded limit on max bytes per data-uri item : 10485760"),
    "Groq, pixels": Said(400, "image has too many pixels: 40000000, max 33177600"),
    "pixels": Said(400, "Image dimensions 9000x9000 exceed the maximum of 33177600 pixels"),
    "a picture, in Chinese": Said(400, "图片大小超过限制,最大 10MB"),
    "Google, bytes": google(400, "Request payload size exceeds the limit: 20971520 bytes."),
    "Anthropic, bytes": anthropic(413, "Request exceeds the maximum size", "request_too_large"),
    "a proxy, bytes": Said(413, "Maximum request body size 1048576 exceeded, actual body size 1056562", 413),
    "nginx, bytes": Said(413, "413 Request Entity Too Large"),
    "no words": Said(413, "nope"),
    "OpenAI, a text": Said(
        400,
        "Invalid 'messages[17].content': string too long. Expected a string with maximum length 1048576, but got a"
        " string with length 1744259 instead.",
        "string_above_max_length",
    ),
    "OpenAI, an item": Said(
        400,
        "Invalid 'input[0].content': string too long. Expected a string with maximum length 10485760, but got a string"
        " with length 62114761 instead.",
        "string_above_max_length",
    ),
    "OpenAI, messages": Said(
        400,
        "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length"
        " 2100 instead.",
        "array_above_max_length",
    ),
    "Alibaba, a text": Said(
        400,
        "String value length (20054016) exceeds the maximum allowed (20000000, from"
        " `StreamReadConstraints.getMaxStringLength()`)",
    ),
}
LACKS: Mapping[str, Said] = {
    "OpenAI, an image": Said(400, "Invalid content type. image_url is only supported by certain models."),
    "vLLM, a picture": Said(400, "m is not a multimodal model"),
    "DeepSeek, a picture": Said(400, "This model does not support image input"),
    "DeepSeek, a picture's part": Said(
        400,
        "Failed to deserialize the JSON body into the target type: messages[0]: unknown variant `image_url`, expected"
        " `text` at line 1 column 219",
    ),
    "OpenAI, a picture of a tool": Said(400, "Invalid value: 'image_url'. Value must be 'text'.", "invalid_value"),
    "Groq, a picture's part": Said(400, "messages[0].content must be a string"),
    "Groq, pictures": Said(400, "Image input is not supported by the selected model."),
    "Ollama, tools": Said(400, "registry.ollama.ai/library/m:latest does not support tools"),
    "DeepSeek, a schema": Said(400, "This response_format type is unavailable now"),
    "Mistral, tools": Said(400, "Function calling is not enabled for this model"),
    "vLLM, tools": Said(
        400, "auto tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set", 400
    ),
    "Alibaba, a picture's sides": Said(
        400,
        "<400> InternalError.Algo.InvalidParameter: The image length and width do not meet the model restrictions."
        " [height:9 or width:9 must be larger than 10]",
    ),
    "Groq, JSON beside tools": Said(400, "json mode cannot be combined with tool/function calling"),
    "OpenAI, the word": Said(
        400, "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
    ),
    "Google, tools beside JSON": google(
        400, "Function calling with a response mime type: 'application/json' is unsupported"
    ),
    "Google, tools beside a search": google(
        400, "Built-in tools ({google_search}) and Function Calling cannot be combined in the same request."
    ),
    "a server, a tool": Said(400, "Tool 'computer_use_preview' is not supported with gpt-5."),
    "ChatGPT, an old Codex": Said(
        400,
        "The 'gpt-6-astra' model requires a newer version of Codex..",
    ),
    "ChatGPT, an internal header": Said(
        400, "This model is not supported when using X-OpenAI-Internal-Codex-Responses-Lite.", "unsupported_value"
    ),
    "a server, a region": Said(400, "This tier is not available in your region"),
    "Zhipu, a picture": Said(400, "\u5f53\u524d\u6a21\u578b\u4e0d\u652f\u6301\u56fe\u7247\u8f93\u5165"),
}
AZURE = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
FILTERS: Mapping[str, Said] = {
    "Azure": Said(
        400,
        AZURE,
        "content_filter",
        param="prompt",
        innererror={
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {"violence": {"filtered": True, "severity": "medium"}},
        },
    ),
    "Azure, without a code": Said(400, AZURE),
    "Azure, 403": Said(403, AZURE, "content_filter"),
    "OpenAI, a prompt": Said(
        400,
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a"
        " different prompt.",
        "invalid_prompt",
    ),
    "OpenAI, a policy": Said(400, "Your request was rejected.", "content_policy_violation"),
    "OpenAI, a picture": Said(400, "Your request was rejected as a result of our safety system.", "moderation_blocked"),
    "OpenAI, 403": Said(403, "Your request was rejected as a result of our safety system."),
    "Anthropic": anthropic(400, "Output blocked by content filtering policy"),
    "xAI": Said(403, "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO", "permission-denied"),
    "OpenRouter": Said(
        403,
        "your chosen model requires moderation and your input was flagged",
        403,
        metadata={"reasons": ["violence"], "flagged_input": "x"},
    ),
    "OpenRouter, of words alone": Said(403, "Your input was flagged for violence. No credits were charged."),
    "Alibaba": Said(400, "Input data may contain inappropriate content.", "data_inspection_failed"),
    "Xiaomi": Said(421, "Moderation Block", "content_filter"),
    "Google": google(400, "The prompt was blocked due to PROHIBITED_CONTENT"),
    "DeepSeek": Said(400, "Content Exists Risk", "invalid_request_error"),
    "MiniMax": Said(422, "input new_sensitive (1026)", "1026"),
    "Baidu": Said(400, "the content of message not safe", "336104"),
    "Hunyuan": Said(400, "input text contains sensitive words", "FailedOperation.SensitiveText"),
    "in Chinese": Said(400, "您的输入内容违反了相关规定,请修改后重试"),
    "in German": Said(422, "Die Anfrage verstößt gegen die Inhaltsrichtlinien."),
    "a classifier": Said(400, "Blocked by safety classifier"),
    "in Japanese, 403": Said(403, "コンテンツポリシーに違反しています。"),
    "Anthropic, its policy": anthropic(400, "This request appears to violate our Usage Policy."),
}
# What is the client's own mistake everywhere.
MISTAKES: Mapping[str, Said] = {
    "a type": Said(400, "temperature must be a number"),
    "a field is missing": pydantic("Field required", "messages", 0, "role"),
    "a role": Said(400, "Invalid value: 'tester'. Supported values are: 'system', 'assistant' and 'user'."),
    "a schema": Said(400, "Invalid schema for function 'f': 'objct' is not valid under any of the given schemas."),
    "a tool's name": Said(
        400,
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, but got a string"
        " with length 70 instead.",
        "string_above_max_length",
    ),
    "stop words": Said(
        400,
        "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5"
        " instead.",
        "array_above_max_length",
    ),
    "two limits": Said(400, "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."),
    "two states": Said(400, "previous_response_id cannot be used together with conversation."),
    "a call without its result": anthropic(400, "messages.2: `tool_use` ids were found without `tool_result` blocks"),
    "a tool's description": Said(
        400,
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got"
        " a string with length 2000 instead.",
    ),
    "a limit": Said(400, "max_tokens is too large: 999999", "invalid_value"),
    "no message": anthropic(400, "messages: at least one message is required"),
    "content": Said(400, "Invalid value for 'content': expected a string, got null."),
    "pictures": Said(400, "your prompt contains too many images"),
    "too few tokens": Said(400, "The number of prompt tokens must be greater than 0"),
    "a file of another account": Said(400, "File with id file_123 is not available"),
    "a picture that is none": anthropic(400, "messages.0.content.1.image.source.base64: invalid base64 data"),
}
REFUSED = {**WROTE, **ITS_OWN, **LIMITS, **LACKS, **FILTERS}
ORDERS: Mapping[str, Any] = {
    "single": {"mode": "single", "budget": 0},
    "raced": {"mode": "race", "width": 2, "budget": 1.0},
}
pytestmark = pytest.mark.asyncio(loop_scope="module")
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ORDERED = pytest.mark.parametrize("order", ORDERS)


def of(names: Sequence[str], order: str = "single", **more: Any) -> dict[str, Any]:
    return {"deployments": [f"{name}/m" for name in names], "race": ORDERS[order], **more}


def refusing(running: RunningGateway, said: Said, *names: str, within: bool = False) -> None:
    for name in names:
        running[name].answers = lambda body: said.within() if within and body.get("stream") else said.whole()


def counts(running: RunningGateway, *names: str) -> list[int]:
    return [len(running.received(name)) for name in names]


@STREAMS
@ORDERED
@pytest.mark.parametrize("vendor", [*WROTE, *ITS_OWN, *LIMITS, *LACKS])
async def test_the_third_answers_what_two_vendors_or_their_models_alone_refuse(
    shared: SharedGateways, vendor: str, order: str, stream: bool
) -> None:
    models = {MODEL: of(("alpha", "beta", "gamma"), order)}
    async with shared.row(alpha=None, beta=None, gamma=answer("Hello"), config={"models": models}) as running:
        running.prefer("alpha", "beta", "gamma")
        refusing(running, REFUSED[vendor], "alpha", "beta")
        status, said = await asked(running, "chat", stream=stream)
        assert (status, "Hello" in json.dumps(said)) == (200, True)
        assert counts(running, "alpha", "beta", "gamma") == [1, 1, 1]


@STREAMS
@pytest.mark.parametrize("vendor", REFUSED)
async def test_a_fallback_answers_what_one_vendor_refuses(shared: SharedGateways, vendor: str, stream: bool) -> None:
    models = {MODEL: of(("alpha",), fallbacks=["spare"]), "spare": of(("beta",))}
    async with shared.row(alpha=None, beta=answer("Hello"), config={"models": models}) as running:
        refusing(running, REFUSED[vendor], "alpha")
        assert (await asked(running, "chat", stream=stream))[0] == 200
        assert counts(running, "alpha", "beta") == [1, 1]


@STREAMS
@ORDERED
@pytest.mark.parametrize("vendor", FILTERS)
async def test_one_more_is_asked_after_a_filter(shared: SharedGateways, vendor: str, order: str, stream: bool) -> None:
    models = {MODEL: of(("alpha", "beta"), order)}
    async with shared.row(alpha=None, beta=answer("Hello"), config={"models": models}) as running:
        running.prefer("alpha", "beta")
        refusing(running, FILTERS[vendor], "alpha")
        assert (await asked(running, "chat", stream=stream))[0] == 200
        assert counts(running, "alpha", "beta") == [1, 1]


@STREAMS
@ORDERED
@pytest.mark.parametrize("vendor", FILTERS)
async def test_and_no_third_nor_a_fallback(shared: SharedGateways, vendor: str, order: str, stream: bool) -> None:
    names = ("alpha", "beta", "gamma")
    models = {MODEL: of(names, order, fallbacks=["spare"]), "spare": of(("delta",))}
    async with shared.row(alpha=None, beta=None, gamma=None, delta=None, config={"models": models}) as running:
        running.prefer(*names, first_s=5.0)
        refusing(running, FILTERS[vendor], *names, "delta")
        status, said = await asked(running, "chat", stream=stream)
        assert 400 <= status < 404
        assert FILTERS[vendor].message in json.dumps(said, ensure_ascii=False)
        assert sum(counts(running, *names, "delta")) == 2


@pytest.mark.parametrize("vendor", FILTERS)
async def test_after_a_fallbacks_filter_no_other_fallback_is_asked(shared: SharedGateways, vendor: str) -> None:
    models = {
        MODEL: of(("alpha",), fallbacks=["second", "third"]),
        "second": of(("beta", "gamma"), "raced"),
        "third": of(("delta",)),
    }
    async with shared.row(alpha=None, beta=None, gamma=None, delta=None, config={"models": models}) as running:
        refusing(running, FILTERS[vendor], "alpha", "beta", "gamma", "delta")
        assert 400 <= (await asked(running, "chat"))[0] < 404
        assert counts(running, "alpha", "delta") == [1, 0]
        assert sum(counts(running, "beta", "gamma")) == 1


async def test_a_fallback_that_is_for_filters_alone_is_the_one(serve: Serve) -> None:
    fallback = {"model": "mild", "causes": ["content_filter"]}
    models = {MODEL: of(("alpha", "beta"), fallbacks=[fallback]), "mild": of(("gamma",))}
    async with serve(alpha=None, beta=None, gamma=answer("Hello"), config={"models": models}) as running:
        running.prefer("alpha", "beta")
        refusing(running, FILTERS["Azure"], "alpha", "beta")
        assert (await asked(running, "chat"))[0] == 200
        assert counts(running, "alpha", "beta", "gamma") == [1, 0, 1]


async def test_another_provider_is_asked_before_one_with_the_same_filter(serve: Serve) -> None:
    models = {MODEL: {"deployments": ["alpha/m", "alpha/n", "beta/m"], "race": ORDERS["single"]}}
    async with serve(alpha=None, beta=answer("Hello"), config={"models": models}) as running:
        running.prefer("alpha", "beta")
        refusing(running, FILTERS["Azure"], "alpha")
        for _ in range(4):
            assert (await asked(running, "chat"))[0] == 200


@pytest.mark.parametrize("vendor", REFUSED)
async def test_within_a_stream_before_its_first_text_it_is_the_same(shared: SharedGateways, vendor: str) -> None:
    models = {MODEL: of(("alpha", "beta"))}
    async with shared.row(alpha=None, beta=answer("Hello"), config={"models": models}) as running:
        running.prefer("alpha", "beta")
        refusing(running, REFUSED[vendor], "alpha", within=True)
        status, said = await asked(running, "chat", stream=True)
        assert (status, "Hello" in json.dumps(said)) == (200, True)


@STREAMS
@pytest.mark.parametrize("vendor", [*LIMITS, *LACKS, *FILTERS, *MISTAKES])
async def test_alone_it_is_told_in_the_vendors_words_and_takes_nobody_out(
    shared: SharedGateways, vendor: str, stream: bool
) -> None:
    said = {**REFUSED, **MISTAKES}[vendor]
    async with shared.row(alpha=said.whole()) as running:
        for _ in range(STRIKES):
            status, told = await asked(running, "chat", stream=stream)
            assert 400 <= status < 500
            assert status == 400 or said.status != 400
            assert said.message.split("\n", maxsplit=1)[0] in json.dumps(told, ensure_ascii=False).replace("\\\\", "")
        assert counts(running, "alpha") == [STRIKES]
        [deployment] = running.gateway.steering.leaderboard(MODEL + running.suffix).deployments
        assert deployment.state == "ok"
        running["alpha"].script = answer("Hello")
        assert (await asked(running, "chat"))[0] == 200


@STREAMS
@pytest.mark.parametrize("vendor", [*WROTE, *ITS_OWN])
async def test_alone_what_is_no_fault_of_the_request_is_told_as_what_programs_ask_again(
    shared: SharedGateways, vendor: str, stream: bool
) -> None:
    async with shared.row(alpha=REFUSED[vendor].whole()) as running:
        status, told = await asked(running, "chat", stream=stream)
    assert status == 502, told


NO_ENDPOINT = 'No endpoints found that support tool use. Try disabling "f".'


@STREAMS
async def test_what_openrouter_has_nobody_for_is_no_model_that_is_gone(serve: Serve, stream: bool) -> None:
    refusal = [Status(404, {"error": {"message": NO_ENDPOINT, "code": 404}})]
    models = {MODEL: of(("alpha", "beta")), "alone": of(("alpha",))}
    async with serve(alpha=refusal, beta=answer("Hello"), config={"models": models}) as running:
        running.prefer("alpha", "beta")
        for path in ("chat", "messages", "responses", "gemini"):
            assert (await asked(running, path, stream=stream))[0] == 200
            status, told = await asked(running, path, model="alone", stream=stream)
            assert (status, json.dumps(NO_ENDPOINT)[1:-1] in json.dumps(told)) == (400, True)
        assert counts(running, "alpha", "beta") == [8, 4]


@STREAMS
@ORDERED
async def test_throttling_with_status_400_is_a_rate_limit(serve: Serve, order: str, stream: bool) -> None:
    words = {"__type": "ThrottlingException", "message": "Too many tokens, please wait before trying again."}
    models = {MODEL: of(("alpha", "beta"), order), "alone": of(("gamma",))}
    refusal = [Status(400, words)]
    async with serve(alpha=refusal, beta=answer("Hello"), gamma=refusal, config={"models": models}) as running:
        running.prefer("alpha", "beta")
        assert (await asked(running, "chat", stream=stream))[0] == 200
        assert (await asked(running, "chat", model="alone", stream=stream))[0] == 429


@STREAMS
@ORDERED
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_the_clients_own_mistake_is_told_at_once(
    shared: SharedGateways, mistake: str, order: str, stream: bool
) -> None:
    names = ("alpha", "beta", "gamma")
    models = {MODEL: of(names, order, fallbacks=["spare"]), "spare": of(("delta",))}
    async with shared.row(alpha=None, beta=None, gamma=None, delta=None, config={"models": models}) as running:
        running.prefer(*names, first_s=5.0)
        refusing(running, MISTAKES[mistake], *names, "delta")
        status, said = await asked(running, "chat", stream=stream)
        assert status in {400, 422}
        assert MISTAKES[mistake].message in json.dumps(said, ensure_ascii=False)
        assert sum(counts(running, *names, "delta")) <= 2
        assert counts(running, "delta") == [0]
