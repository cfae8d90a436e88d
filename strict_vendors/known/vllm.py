"""vLLM: a server of one's own, with parsers for tools and for thoughts, and with the paths of its newest release."""

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import structs

from strict_vendors.apis.chat import asked_tokens, text_of
from strict_vendors.apis.chat_like import OPENED, TAGS
from strict_vendors.apis.own import OwnServer
from strict_vendors.models import Model, Models
from strict_vendors.rules import servers as rules
from strict_vendors.script import Asked, Broken
from strict_vendors.shapes import Fault
from strict_vendors.vendor import Refused, Reply, Request
from strict_vendors.words import pydantics_message

Json = dict[str, Any]

_KINDS = {
    400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError", 422: "UnprocessableEntityError",
    500: "InternalServerError", 501: "NotImplementedError", 503: "ServiceUnavailableError",
}  # fmt: skip
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # what its templates make of them is theirs


class VLLM(OwnServer):
    """vLLM; ``parses``: it was started with ``--enable-auto-tool-choice``, a tool parser and a reasoning parser."""

    name = "vllm"
    key = "strict-vllm"
    pages: ClassVar[Sequence[str]] = (rules.VLLM_CHAT, rules.VLLM_ROUTES)
    chat = rules.VLLM
    parses: ClassVar[bool] = True
    thoughts: ClassVar[str | None] = "reasoning"
    whole_calls = True
    signature = "8f3c1f2c2b7d4b6f9a0e5d4c3b2a1908"  # a random one, which means nothing
    call_ids = ("chatcmpl-tool-", 32, "0123456789abcdef")
    models = Models(
        Model(
            "Qwen/Qwen3.5-27B",
            context=32_768,
            longest=32_768,
            efforts=_EFFORTS,
            usual="medium",
            marks=frozenset({rules.FIRST_SYSTEM, "pictures"}),
        ),
        Model("meta-llama/Llama-3.3-70B-Instruct", context=131_072, longest=131_072),
        Model("google/gemma-3-27b-it", context=8_192, longest=8_192, marks=frozenset({rules.ALTERNATES, "pictures"})),
    )

    def refuse_key(self, given: str) -> None:
        """Refuse a key: it was started with ``--api-key``."""
        raise Refused(401, "Unauthorized", rule="key", page=rules.VLLM_BEARER)

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, "Not Found", rule="path", page=rules.VLLM_ROUTES)

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in its shape."""
        if refused.rule == "key":
            return Reply({"error": "Unauthorized"}, 401)
        if refused.rule == "path":
            return Reply({"detail": "Not Found"}, 404)
        error = {
            "message": refused.message,
            "type": refused.kind or _KINDS.get(refused.status, "BadRequestError"),
            "param": refused.param,
            "code": refused.status,
        }
        return Reply({"error": error}, refused.status)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(broken.status, "EngineCore encountered an issue.", rule="as asked for")

    def words(self, fault: Fault) -> Refused:
        """Return a fault as FastAPI tells it."""
        kinds = {"missing": "missing", "value": "literal_error", "type": f"{fault.bound}_type"}
        place = ", ".join(repr(step) for step in ("body", *fault.path))
        error = f"{{'type': '{kinds.get(fault.kind, fault.kind)}', 'loc': ({place}), 'msg': \"{pydantics_message(fault)}\"}}"
        return Refused(
            400,
            f"1 validation error:\n  {error}",
            param=fault.field,
            rule=f"field {fault.kind}",
            page=fault.page or self.pages[0],
        )

    def no_model(self, name: str) -> Refused:
        """Refuse a model that it does not serve."""
        return Refused(404, f"The model `{name}` does not exist.", param="model", rule="model", page=rules.VLLM_ROUTES)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what does not go together, and what it was not started for."""
        if body.get("stream_options") and not body.get("stream"):
            raise _refused("Stream options can only be defined when `stream=True`.", "stream_options")
        if body.get("tools") == []:
            said = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
            raise _refused(said, "tools")
        choice = body.get("tool_choice")
        if choice not in (None, "none") and body.get("tools") is None:
            raise _refused("When using `tool_choice`, `tools` must be set.", "tool_choice")
        if isinstance(choice, str) and choice not in {"none", "auto", "required"}:
            said = f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.'
            raise _refused(said, "tool_choice")
        names = [tool["function"]["name"] for tool in body.get("tools") or ()]
        if isinstance(choice, dict) and choice.get("function", {}).get("name") not in names:
            said = "The tool specified in `tool_choice` does not match any of the specified `tools`"
            raise _refused(said, "tool_choice")
        if names and choice in (None, "auto") and not self.parses:
            said = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            raise Refused(400, said, rule="no parser of calls", page=rules.VLLM_PARSERS)
        if body.get("top_logprobs") and not body.get("logprobs"):
            raise _refused("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
        form = body.get("response_format") or {}
        if form.get("type") == "json_schema" and form.get("json_schema") is None:
            said = "When response_format type is 'json_schema', the 'json_schema' field must be provided."
            raise _refused(said, "response_format")
        parts = [
            part
            for message in body["messages"]
            for part in (message.get("content") if isinstance(message.get("content"), list) else ())
        ]
        if "pictures" not in model.marks and any(part.get("type") == "image_url" for part in parts):
            said = "At most 0 image(s) may be provided in one prompt."
            raise Refused(400, said, rule="pictures", page=rules.VLLM_ROUTES)
        if body.get("continue_final_message") and body.get("add_generation_prompt"):
            said = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            raise _refused(said, "continue_final_message")
        for said, rule, page in rules.refused_by_template(body["messages"], model.marks):
            raise Refused(400, f"{said} {said}", rule=rule, page=page)

    def model_of(self, name: str, api: str) -> Model:
        """Return a model that it serves; its first one if none is named."""
        return super().model_of(name or self.models.names[0], api)

    def check_items(self, body: Json) -> None:
        """Refuse to go on from a response: unless it is told to, it keeps none."""
        if not body.get("input") and not body.get("previous_response_id"):
            said = "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'input'), 'msg': 'Field required'}"
            raise Refused(400, said, param="input", rule="field missing", page=rules.VLLM_RESPONSES)
        if (name := body.get("previous_response_id")) is not None:
            said = f"Response with id '{name}' not found."
            raise Refused(404, said, param="response_id", rule="nothing is kept", page=rules.VLLM_STORE)

    def check_turns(self, body: Json) -> None:
        """Refuse what its types need."""
        for name in ("messages", "max_tokens"):
            if body.get(name) is None:
                said = (
                    f"1 validation error:\n  {{'type': 'missing', 'loc': ('body', '{name}'), 'msg': 'Field required'}}"
                )
                raise Refused(400, said, rule="field missing", page=rules.VLLM_MESSAGES)

    def refused_message(self, refused: Refused) -> Reply:
        """Return a refusal of Messages in Anthropic's shape."""
        kinds = {400: "invalid_request_error", 404: "not_found_error"}
        error = {"type": kinds.get(refused.status, "internal_error"), "message": refused.message}
        return Reply({"type": "error", "error": error}, refused.status)

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse nothing: the order of calls and results is the template's."""

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse a prompt that, with its answer, the model's context does not hold."""
        tokens = asked_tokens(asked)
        most = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        if tokens + most > model.context:
            said = (
                f"This model's maximum context length is {model.context} tokens. However, you requested {most} output tokens"
                f" and your prompt contains at least {tokens} input tokens, for a total of at least {tokens + most} tokens."
                " Please reduce the length of the input prompt or the number of requested output tokens."
                f" (parameter=input_tokens, value={tokens})"
            )
            raise Refused(400, said, param="input_tokens", rule="context", page=rules.VLLM_CONTEXT)

    def begun(self, body: Json) -> str:
        """Return the text of a last message that is to be gone on with."""
        last = body["messages"][-1]
        is_begun = body.get("continue_final_message") and last["role"] == "assistant"
        return text_of(last.get("content")) if is_begun else ""

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether the model thinks: its template may be told not to."""
        told = (body.get("chat_template_kwargs") or {}).get("enable_thinking", True)
        return model.thinks and told and body.get("reasoning_effort") != "none"


class Plain(VLLM):
    """vLLM as it is started by its name alone: no parsers, and an older release with fewer paths."""

    name = "vllm_plain"
    is_newest = False
    parses = False
    thoughts = None
    models = Models(
        Model(
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
            context=32_768,
            longest=32_768,
            efforts=_EFFORTS,
            usual="medium",
            marks=frozenset({OPENED}),
        ),
        Model("Qwen/QwQ-32B", context=32_768, efforts=_EFFORTS, usual="medium", marks=frozenset({TAGS})),
        *[structs.replace(VLLM.models.find(name) or Model(), name=name) for name in VLLM.models.names[1:]],
    )


def _refused(message: str, param: str) -> Refused:
    return Refused(400, message, param=param, rule=f"combination: {param}", page=rules.VLLM_CHAT)


VENDOR = VLLM
