"""llama.cpp's server: one model, whose template has the last word."""

from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.apis.chat import asked_tokens
from strict_vendors.apis.own import OwnServer
from strict_vendors.models import Model, Models, alike
from strict_vendors.rules import servers as rules
from strict_vendors.script import Asked, Broken, Given
from strict_vendors.shapes import Fault
from strict_vendors.vendor import LETTERS, Refused, Reply, Request

Json = dict[str, Any]

_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    500: "server_error", 501: "not_supported_error", 503: "unavailable_error",
}  # fmt: skip


class LlamaCpp(OwnServer):
    """llama-server, started with ``--jinja`` and a key; it answers to any name of a model."""

    name = "llama_cpp"
    key = "strict-llama-cpp"
    pages: ClassVar[Sequence[str]] = (rules.LLAMA_CPP, rules.LLAMA_CPP_ROUTES)
    chat = rules.LLAMA
    thoughts = "reasoning_content"
    fingerprint = "b9731-9731ad3f2"
    signature = ""
    call_ids = ("", 32, LETTERS)
    marks: ClassVar[frozenset[str]] = frozenset({rules.FIRST_SYSTEM})
    context = 16_384
    models = Models(
        *alike(
            ["qwen3.5-27b.gguf"],
            Model(context=16_384, efforts=("none", "low", "medium", "high"), usual="medium", marks=marks),
        )
    )

    def admit(self, request: Request) -> None:
        """Take the key of either kind."""
        if request.headers.get("x-api-key") != self.key:
            super().admit(request)

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        raise Refused(401, "Invalid API Key", rule="key", page=rules.LLAMA_CPP_ROUTES)

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, "File Not Found", rule="path", page=rules.LLAMA_CPP_ROUTES)

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in its shape."""
        error: Json = {
            "code": refused.status,
            "message": refused.message,
            "type": refused.kind or _KINDS.get(refused.status, "server_error"),
        }
        if isinstance(refused, _TooLong):
            error |= {"n_prompt_tokens": refused.tokens, "n_ctx": self.context}
        return Reply({"error": error}, refused.status)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(broken.status, "Loading model", rule="as asked for")

    def words(self, fault: Fault) -> Refused:
        """Return a fault in its words."""
        if fault.path == ("messages",):
            said = "'messages' is required" if fault.kind == "missing" else "Expected 'messages' to be an array"
            return Refused(400, said, rule=f"field {fault.kind}", page=rules.LLAMA_CPP)
        return Refused(400, f"Invalid value of '{fault.field}'", rule=f"field {fault.kind}", page=rules.LLAMA_CPP)

    def check_fields(self, body: Any) -> None:
        """Refuse types that it does not read."""
        if isinstance(body, dict) and "messages" not in body:
            raise Refused(400, "'messages' is required", rule="field missing", page=rules.LLAMA_CPP)
        body.setdefault("model", self.models.names[0])
        super().check_fields(body)

    def check_items(self, body: Json) -> None:
        """Refuse items whose kind it cannot tell, thoughts that are not in the clear, and what it does not keep."""
        if body.get("previous_response_id"):
            raise _refused("llama.cpp does not support 'previous_response_id'.", "nothing is kept")
        if "input" not in body:
            raise _refused("'input' is required", "field missing")
        for item in body["input"] if isinstance(body["input"], list) else ():
            self._check_item(item)
        if not isinstance(body["input"], str | list):
            raise _refused("'input' must be a string or array of objects", "field type")

    @staticmethod
    def _check_item(item: Json) -> None:
        kind, role = item.get("type"), item.get("role")
        if role in {"user", "system", "developer"} and kind in {None, "message"}:
            for part in item["content"] if isinstance(item.get("content"), list) else ():
                if part.get("type") == "input_file":
                    raise _refused("'input_file' is not supported by llamacpp at this moment", "files")
                if part.get("type") not in {"input_text", "input_image"}:
                    said = "'type' must be one of 'input_text', 'input_image', or 'input_file'"
                    raise _refused(said, "content")
        elif role == "assistant" and kind == "message":
            return
        elif kind == "reasoning":
            content = item.get("content")
            if not isinstance(content, list):
                raise Refused(400, "item['content'] is not an array", rule="thoughts", page=rules.LLAMA_CPP_REASONING)
            if not content:
                raise Refused(400, "item['content'] is empty", rule="thoughts", page=rules.LLAMA_CPP_REASONING)
        elif kind not in {"function_call", "function_call_output"}:
            said = "Cannot determine type of 'item'"
            raise Refused(400, said, rule="kind of an item", page=rules.LLAMA_CPP_ITEMS)

    def check_turns(self, body: Json) -> None:
        """Refuse a request without messages."""
        if "messages" not in body:
            raise _refused("'messages' is required", "field missing")

    def model_of(self, name: str, api: str) -> Model:
        """Return its model."""
        found = self.models.find(self.models.names[0])
        assert found is not None
        return found

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse what does not go together."""
        form = (body.get("response_format") or {}).get("type", "text")
        if form not in {"text", "json_object", "json_schema"}:
            said = f'response_format type must be one of "text" or "json_object", but got: {form}'
            raise _refused(said, "form of an answer")
        if body.get("tools") and body.get("grammar"):
            raise _refused("Cannot use custom grammar constraints with tools.", "grammar and tools")
        if body.get("logprobs") and body.get("tools") and body.get("stream"):
            raise _refused("logprobs is not supported with tools + stream", "logprobs")
        if body.get("top_logprobs") is not None and not body.get("logprobs"):
            raise _refused("top_logprobs requires logprobs to be set to true", "top_logprobs")
        choice = body.get("tool_choice")
        if isinstance(choice, str) and choice not in {"auto", "none", "required"}:
            raise _refused(f"Invalid tool_choice: {choice}", "tool_choice")
        for said, rule, page in rules.refused_by_template(body["messages"], model.marks):
            where = f"{{{{- raise_exception('{said[:38]}...\n{' ' * 43}^"
            raised = f"\n------------\nWhile executing CallExpression at line 85, column 32 in source:\n...first %}}↵            {where}\nError: Jinja Exception: {said}"
            raise Refused(500, raised, rule=rule, page=f"{rules.LLAMA_CPP_TEMPLATE} {page}")

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse contents that are missing or of another kind; the order is the template's."""
        for message in messages:
            is_assistant = message["role"] == "assistant"
            if not is_assistant and "content" not in message:
                raise _refused("All non-assistant messages must contain 'content'", "content")
            if is_assistant and "content" not in message and "tool_calls" not in message:
                raise _refused("Assistant message must contain either 'content' or 'tool_calls'!", "content")
            content = message.get("content")
            if content is not None and not isinstance(content, str | list):
                raise _refused("Expected 'content' to be a string or an array", "content")
            for part in content if isinstance(content, list) else ():
                if part.get("type") in {"image_url", "input_audio"}:
                    kind = "image" if part["type"] == "image_url" else "audio"
                    said = f"{kind} input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
                    raise Refused(500, said, rule="pictures", page=rules.LLAMA_CPP)
                if part.get("type") != "text":
                    raise _refused("unsupported content[].type", "content")
        if [message["role"] for message in messages[-2:]] == ["assistant", "assistant"]:
            raise _refused("Cannot have 2 or more assistant messages at the end of the list.", "prefix")

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse a prompt that does not fit into its context."""
        tokens = asked_tokens(asked)
        if tokens > self.context:
            raise _TooLong(tokens, self.context)

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether the model thinks: its template may be told not to."""
        return bool((body.get("chat_template_kwargs") or {}).get("enable_thinking", True))

    def read(self, body: Json, model: Model) -> Asked:
        """Read a request: only a word chooses a tool, and several are called only if asked for."""
        choice = body.get("tool_choice") if isinstance(body.get("tool_choice"), str) else None
        return super().read(
            {**body, "tool_choice": choice, "parallel_tool_calls": body.get("parallel_tool_calls") is True}, model
        )

    def finished(self, answer: Json, given: Given) -> Json:
        """Return an answer with its times."""
        return {**answer, "timings": {"prompt_n": given.tokens_in, "predicted_n": given.tokens_out}}


class _TooLong(Refused):
    def __init__(self, tokens: int, context: int) -> None:
        said = f"request ({tokens} tokens) exceeds the available context size ({context} tokens), try increasing it"
        super().__init__(400, said, kind="exceed_context_size_error", rule="context", page=rules.LLAMA_CPP_CONTEXT)
        self.tokens = tokens


def _refused(message: str, rule: str) -> Refused:
    return Refused(400, message, rule=rule, page=rules.LLAMA_CPP)


VENDOR = LlamaCpp
