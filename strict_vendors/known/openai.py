"""OpenAI: chat completions, Responses, embeddings."""

import base64
import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.apis.chat import blocks_to_cache
from strict_vendors.apis.responses import ResponsesVendor
from strict_vendors.caches import Used
from strict_vendors.models import Model
from strict_vendors.rules.openai import CHAT, EMBEDDINGS, MODELS
from strict_vendors.schemas import STRICT_PAGE, plain_faults, strict_faults
from strict_vendors.script import tokens_of
from strict_vendors.vendor import Json, Refused, Reply, Request, Route
from strict_vendors.words import first_fault, in_openais_words, listed

_CHAT_PAGE = "https://platform.openai.com/docs/api-reference/chat/create"


class OpenAI(ResponsesVendor):
    """OpenAI's own servers."""

    name = "openai"
    chat = CHAT
    models = MODELS
    pages: ClassVar[Sequence[str]] = (
        "https://github.com/openai/openai-openapi",
        "https://platform.openai.com/docs/guides/error-codes",
    )

    def routes(self) -> Sequence[Route]:
        """Return the routes of embeddings too."""
        return [*super().routes(), ("POST", f"{self.base}/embeddings", self.embed)]

    def used(self, body: Json) -> Used:
        """Return what of a prompt is in its cache: of the same tools, and the same messages from the first."""
        return self.prefixes.of_openai(body, blocks_to_cache(body))

    def embed(self, request: Request) -> Reply:
        """Answer a request of embeddings."""
        body = request.body
        if (fault := first_fault(EMBEDDINGS, body)) is not None:
            raise in_openais_words(fault)
        model = self.models.find(body["model"])
        if model is None:
            raise self.no_model(body["model"])
        page = "https://platform.openai.com/docs/guides/embeddings"
        if "embeddings" not in model.apis:
            raise Refused(
                403,
                f"You are not allowed to generate embeddings from this model: {model.name}",
                rule="model",
                page=page,
            )
        if body.get("dimensions") is not None and "ada" in model.name:
            raise Refused(
                400,
                "This model does not support specifying dimensions.",
                param="dimensions",
                rule="dimensions",
                page=page,
            )
        given = body["input"]
        texts = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
        tokens = [len(text) if isinstance(text, list) else tokens_of(text) for text in texts]
        if max(tokens) > model.context:
            raise Refused(
                400,
                f"This model's maximum context length is {model.context} tokens, however you requested {max(tokens)} tokens"
                f" ({max(tokens)} in your prompt; 0 for the completion). Please reduce your prompt; or completion length.",
                rule="context",
                page=page,
            )
        size = body.get("dimensions") or (3072 if "large" in model.name else 1536)
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": self._vector(str(text), size, body.get("encoding_format")),
            }
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)}
        return Reply({"object": "list", "data": data, "model": body["model"], "usage": usage})

    @staticmethod
    def _vector(text: str, size: int, form: str | None) -> Any:
        """Return a vector of length one, the same for the same text."""
        digest = hashlib.sha256(text.encode()).digest()
        values = [digest[at % len(digest)] - 127.5 for at in range(size)]
        length = math.sqrt(sum(value * value for value in values))
        values = [value / length for value in values]
        return base64.b64encode(struct.pack(f"<{size}f", *values)).decode() if form == "base64" else values

    def refuse_key(self, given: str) -> None:
        """Refuse a key, in the words of https://platform.openai.com/docs/guides/error-codes."""
        if not given:
            raise Refused(
                401,
                "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer"
                " auth (i.e. Authorization: Bearer YOUR_KEY), or as the password field (with blank username) if you're"
                " accessing the API from your browser and are prompted for a username and password. You can obtain an API"
                " key from https://platform.openai.com/account/api-keys.",
                rule="key",
                page=self.pages[1],
            )
        raise Refused(
            401,
            f"Incorrect API key provided: {given[:4]}***. You can find your API key at"
            " https://platform.openai.com/account/api-keys.",
            code="invalid_api_key",
            rule="key",
            page=self.pages[1],
        )

    def not_in_api(self, model: Model, api: str) -> Refused:
        """Refuse a model of another API (https://github.com/docker/docker-agent/issues/313)."""
        if api == "chat" and "responses" in model.apis:
            return Refused(
                404,
                "This model is only supported in v1/responses and not in v1/chat/completions.",
                param="model",
                rule="only in Responses",
                page="https://github.com/docker/docker-agent/issues/313",
            )
        if api == "responses" and "chat" in model.apis:
            return Refused(
                400,
                f"The requested model '{model.name}' cannot be used with the Responses API.",
                code="unsupported_model",
                param="model",
                rule="not in Responses",
                page="https://platform.openai.com/docs/guides/error-codes",
            )
        return Refused(
            404,
            "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use"
            " v1/completions?",
            param="model",
            rule="no chat model",
            page="https://platform.openai.com/docs/guides/error-codes",
        )

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what this model does not take in chat."""
        effort = body.get("reasoning_effort")
        if effort is not None and not model.thinks:  # https://github.com/umputun/tg-spam/issues/304
            raise Refused(
                400,
                "Unrecognized request argument supplied: reasoning_effort",
                rule="no thinking model",
                page="https://github.com/umputun/tg-spam/issues/304",
            )
        if effort is not None and effort not in model.efforts:
            raise self._unsupported(
                "reasoning_effort", effort, f"Supported values are: {listed(model.efforts)}.", model
            )
        if "max_completion_tokens" in model.marks and body.get("max_tokens") is not None:
            raise Refused(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
                " instead.",
                code="unsupported_parameter",
                param="max_tokens",
                rule="max_completion_tokens",
                page="https://github.com/fish2018/YPrompt/issues/26",
            )
        refused = set(model.not_taken)
        warm = body.get("temperature") not in {None, 1}
        if "only temperature 1" in model.marks and warm:
            raise self._unsupported(
                "temperature", body["temperature"], "Only the default (1) value is supported.", model
            )
        if "samples without effort" in model.marks and (effort or model.usual) != "none":
            if warm:
                raise self._unsupported(
                    "temperature", body["temperature"], "Only the default (1) value is supported.", model
                )
            refused |= {"top_p", "logprobs", "top_logprobs"}
        for name in body:
            if (
                name in refused and body[name] not in {None, False}
                if not isinstance(body[name], list | dict)
                else name in refused
            ):
                raise Refused(
                    400,
                    f"Unsupported parameter: '{name}' is not supported with this model.",
                    code="unsupported_parameter",
                    param=name,
                    rule="not taken by this model",
                    page=model.page,
                )
        if body.get("verbosity") not in {None, "medium"} and not body["model"].startswith(
            ("gpt-5", "gpt-6", "ft:gpt-5")
        ):
            raise self._unsupported("verbosity", body["verbosity"], "Supported values are: 'medium'.", model)
        if "no tools with effort in chat" in model.marks and body.get("tools") and (effort or model.usual) != "none":
            raise Refused(  # https://github.com/GEMISIS/leviath/issues/333
                400,
                f"Function tools with reasoning_effort are not supported for {body['model']} in /v1/chat/completions."
                " To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
                param="reasoning_effort",
                rule="no tools with effort in chat",
                page=model.page,
            )
        if "no tools" in model.marks and body.get("tools"):
            raise Refused(
                400, "tools is not supported in this model. For a list of supported models, refer to"
                " https://platform.openai.com/docs/guides/function-calling#models-supporting-function-calling.",
                param="tools", rule="no tools", page=model.page,
            )  # fmt: skip
        self._check_combinations(body, model)

    def _check_combinations(self, body: Json, model: Model) -> None:
        for name in ("max_tokens", "max_completion_tokens"):
            if (most := body.get(name)) is not None and most > model.longest:
                raise Refused(
                    400,
                    f"{name} is too large: {most}. This model supports at most {model.longest} completion tokens, whereas"
                    f" you provided {most}.",
                    code="invalid_value",
                    param=name,
                    rule="longest answer",
                    page=model.page,
                )
        if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
            raise Refused(
                400,
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
                code="invalid_parameter_combination",
                rule="two limits",
                page=f"{_CHAT_PAGE}#chat-create-max_completion_tokens",
            )
        if body.get("stream_options") is not None and not body.get("stream"):
            raise Refused(
                400,
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                param="stream_options",
                rule="stream_options without stream",
                page=f"{_CHAT_PAGE}#chat-create-stream_options",
            )
        if body.get("top_logprobs") is not None and not body.get("logprobs"):
            raise Refused(
                400,
                "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
                param="top_logprobs",
                rule="top_logprobs without logprobs",
                page=f"{_CHAT_PAGE}#chat-create-top_logprobs",
            )
        if body.get("metadata") and not body.get("store"):
            raise Refused(
                400,
                "The 'metadata' parameter is only allowed when 'store' is enabled.",
                param="metadata",
                rule="metadata without store",
                page="https://github.com/langchain-ai/langchain-litellm/issues/8",
            )
        for name in ("tool_choice", "parallel_tool_calls"):
            if body.get(name) is not None and not body.get("tools"):
                raise Refused(
                    400,
                    f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.",
                    param=name,
                    rule=f"{name} without tools",
                    page=f"{_CHAT_PAGE}#chat-create-tools",
                )

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse an id that comes twice, beside what all refuse (https://github.com/agno-agi/agno/issues/5116)."""
        super().check_messages(messages)
        told: dict[str, int] = {}
        for number, message in enumerate(messages):
            if message["role"] != "tool":
                told = {}
            ids = [message["tool_call_id"]] if message["role"] == "tool" else []
            for name in ids or [call["id"] for call in message.get("tool_calls") or ()]:
                if name in told:
                    raise Refused(
                        400,
                        f"Invalid parameter: Duplicate value for 'tool_call_id' of '{name}', in messages[{told[name]}] and"
                        f" messages[{number}].",
                        param=f"messages.[{number}].tool_call_id",
                        rule="an id twice",
                        page="https://github.com/agno-agi/agno/issues/5116",
                    )
                told[name] = number
            if message["role"] != "tool":
                told = {}

    def check_tools(self, body: Json) -> None:
        """Refuse schemas that the strict mode does not take, and any that are no function's."""
        for number, tool in enumerate(body.get("tools") or ()):
            if tool["type"] == "function":
                check_function(tool["function"], f"tools[{number}].function.parameters")
        form = body.get("response_format") or {}
        if form.get("type") == "json_schema":
            inner = form["json_schema"]
            check_format(inner.get("schema"), inner["name"], "response_format", strict=bool(inner.get("strict")))
        if form.get("type") == "json_object" and "json" not in str(body["messages"]).lower():
            raise Refused(
                400,
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
                param="messages",
                rule="the word json",
                page="https://platform.openai.com/docs/guides/structured-outputs#json-mode",
            )
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice["type"] in {"function", "custom"}:
            name = choice[choice["type"]]["name"]
            if name not in {tool[tool["type"]]["name"] for tool in body.get("tools") or ()}:
                raise Refused(
                    400,
                    f"Tool choice '{name}' not found in 'tools' parameter.",
                    param="tool_choice",
                    rule="choice of no tool",
                    page=f"{_CHAT_PAGE}#chat-create-tool_choice",
                )

    @staticmethod
    def _unsupported(name: str, value: Any, end: str, model: Model) -> Refused:
        return Refused(
            400,
            f"Unsupported value: '{name}' does not support {value if not isinstance(value, str) else repr(value)} with this"
            f" model. {end}",
            code="unsupported_value",
            param=name,
            rule="value not taken by this model",
            page=model.page,
        )


def check_function(function: Json, param: str) -> None:
    """Refuse the schema of a function (https://github.com/BerriAI/litellm/issues/4923 has the words)."""
    schema = function.get("parameters")
    found = strict_faults(schema or {}) if function.get("strict") and schema is not None else plain_faults(schema)
    if (fault := next(iter(found), None)) is not None:
        raise Refused(
            400,
            f"Invalid schema for function '{function['name']}': {fault}",
            code="invalid_function_parameters",
            param=param,
            rule="strict schema" if function.get("strict") else "schema",
            page=STRICT_PAGE,
        )


def check_format(schema: Any, name: str, param: str, *, strict: bool) -> None:
    """Refuse the schema of an answer."""
    if schema is None:
        raise Refused(
            400,
            f"Missing required parameter: '{param}.json_schema.schema'.",
            code="missing_required_parameter",
            param=f"{param}.json_schema.schema",
            rule="missing",
            page=STRICT_PAGE,
        )
    if strict and (fault := next(iter(strict_faults(schema)), None)) is not None:
        raise Refused(
            400,
            f"Invalid schema for response_format '{name}': {fault}",
            param=param,
            rule="strict schema",
            page=STRICT_PAGE,
        )


VENDOR = OpenAI
