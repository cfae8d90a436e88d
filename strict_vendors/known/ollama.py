"""Ollama: a server of one's own with the paths of its newest release."""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.apis.own import OwnServer
from strict_vendors.models import Model, Models, alike
from strict_vendors.rules import servers as rules
from strict_vendors.script import Asked, Broken, Given
from strict_vendors.shapes import Fault
from strict_vendors.vendor import Refused, Reply, Request

Json = dict[str, Any]

_EFFORTS = ("none", "minimal", "low", "medium", "high", "max", "xhigh", "ultra")
_GO = {"string": "string", "integer": "int", "decimal": "float64", "boolean": "bool", "array": "[]openai.Message"}
_ITEMS = ("message", "function_call", "function_call_output", "reasoning", "web_search_call")
_PICTURE_TYPES = ("jpeg", "jpg", "png", "webp")


class Ollama(OwnServer):
    """Ollama; it needs no key, and takes any."""

    name = "ollama"
    key = "ollama"
    pages: ClassVar[Sequence[str]] = (rules.OLLAMA_CHAT, rules.OLLAMA_ROUTES, rules.OLLAMA_MESSAGES)
    chat = rules.OLLAMA
    thoughts = "reasoning"
    fingerprint = "fp_ollama"
    whole_calls = True
    counts = False
    tells_thoughts = "summary"
    usual_model = ""
    call_ids = ("call_", 8, "0123456789abcdefghijklmnopqrstuvwxyz")
    models = Models(
        *alike(
            ["qwen3:8b", "gpt-oss:20b"],
            Model(context=4_096, efforts=_EFFORTS, usual="medium", marks=frozenset({"tools"})),
        ),
        Model("llama3.1:8b", context=4_096, marks=frozenset({"tools"})),
        Model("gemma3:4b", context=4_096, marks=frozenset({"pictures"})),
    )

    def admit(self, request: Request) -> None:
        """Let everybody in."""

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have, as plain text."""
        raise Refused(404, "404 page not found", rule="path", page=rules.OLLAMA_ROUTES)

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in its shape."""
        if refused.rule == "path":
            return Reply(b"404 page not found", 404, content_type="text/plain")
        kinds = {400: "invalid_request_error", 404: "not_found_error"}
        kind = refused.kind or kinds.get(refused.status, "api_error")
        error = {"message": refused.message, "type": kind, "param": None, "code": None}
        return Reply({"error": error}, refused.status)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(broken.status, "llama runner process has terminated: exit status 2", rule="as asked for")

    def words(self, fault: Fault) -> Refused:
        """Return a fault as Go's decoder tells it."""
        got = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
        where = ".".join(str(step) for step in fault.path if not isinstance(step, int))
        wanted = _GO.get(str(fault.bound), "openai.Message")
        kind = got.get(type(fault.value), "null")
        said = f"json: cannot unmarshal {kind} into Go struct field ChatCompletionRequest.{where} of type {wanted}"
        return Refused(400, said, rule=f"field {fault.kind}", page=fault.page or self.pages[0])

    def check_fields(self, body: Any) -> None:
        """Refuse types that it does not read, and a conversation without messages."""
        super().check_fields(body)
        if not body.get("messages"):
            raise Refused(400, "[] is too short - 'messages'", rule="no messages", page=rules.OLLAMA_CHAT)

    def check_items(self, body: Json) -> None:
        """Refuse items that it does not read; a response that a request goes on from is no field of its own."""
        given = body.get("input")
        if not isinstance(given, str | list):
            raise _unread("input must be a string or array")
        for number, item in enumerate(given if isinstance(given, list) else ()):
            kind = item.get("type") or ("message" if item.get("role") else "")
            if not kind:
                raise _unread(f"input[{number}]: input item missing required 'type' field")
            if kind not in _ITEMS:
                raise _unread(f'input[{number}]: unknown input item type: "{kind}"', rules.OLLAMA_RESPONSES)
            for part in item.get("content") if isinstance(item.get("content"), list) else ():
                if part.get("type") == "input_file":
                    raise _unread("file inputs are not currently supported", rules.OLLAMA_RESPONSES)

    def check_turns(self, body: Json) -> None:
        """Refuse a request without what Messages needs, and pictures by their address."""
        if not body.get("model"):
            raise _unread("model is required", rules.OLLAMA_ANTHROPIC)
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] <= 0:
            raise _unread("max_tokens is required and must be positive", rules.OLLAMA_ANTHROPIC)
        if not body.get("messages"):
            raise _unread("messages is required", rules.OLLAMA_ANTHROPIC)
        for message in body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else ():
                source = block.get("source") or {}
                if block["type"] == "image" and source.get("type") != "base64":
                    said = f"invalid image source type: {source.get('type')}. Only base64 images are supported."
                    raise _unread(said, rules.OLLAMA_ANTHROPIC)

    def refused_message(self, refused: Refused) -> Reply:
        """Return a refusal of Messages in Anthropic's shape."""
        kinds = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error"}
        error = {"type": kinds.get(refused.status, "api_error"), "message": refused.message}
        return Reply({"type": "error", "error": error, "request_id": self.ids.next("req_", 24)}, refused.status)

    def model_of(self, name: str, api: str) -> Model:
        """Return what is known of a model; all need their names."""
        if not name:
            raise Refused(400, "model is required", rule="model", page=rules.OLLAMA_ROUTES)
        return super().model_of(name, api)

    def no_model(self, name: str) -> Refused:
        """Refuse a model that was not pulled."""
        return Refused(404, f"model '{name}' not found", rule="model", page=rules.OLLAMA_ROUTES)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse tools and thinking that a model's template does not have."""
        effort = (body.get("reasoning") or {}).get("effort") or body.get("reasoning_effort") or ""
        if effort and effort not in _EFFORTS:
            said = (
                f'invalid reasoning value: "{effort}" (must be "minimal", "low", "medium", "high", "xhigh", "ultra", "max",'
                ' or "none")'
            )
            raise Refused(400, said, rule="effort", page=rules.OLLAMA_CHAT)
        if body.get("tools") and "tools" not in model.marks:
            said = f"registry.ollama.ai/library/{model.name} does not support tools"
            raise Refused(400, said, rule="tools", page=rules.OLLAMA_NO_TOOLS)
        if effort not in {"", "none"} and not model.thinks:
            raise Refused(
                400, f'"{model.name}" does not support thinking', rule="thinking", page=rules.OLLAMA_NO_THINKING
            )

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse contents that it cannot read; it does not look at the order of calls and results."""
        for message in messages:
            content = message.get("content")
            for part in content if isinstance(content, list) else ():
                self._check_part(part)
            if not isinstance(content, str | list) and message.get("tool_calls") is None:
                named = {type(None): "<nil>", dict: "map[string]interface {}", bool: "bool"}.get(
                    type(content), "float64"
                )
                raise _unread(f"invalid message content type: {named}")
            for call in message.get("tool_calls") or ():
                arguments = call["function"].get("arguments", "")
                try:
                    if not isinstance(json.loads(arguments), dict):
                        raise _unread("invalid tool call arguments")
                except (TypeError, ValueError):
                    raise _unread("invalid tool call arguments") from None

    @staticmethod
    def _check_part(part: Any) -> None:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            return
        if kind != "image_url":
            raise _unread("invalid message format")
        picture = part.get("image_url")
        url = picture.get("url") if isinstance(picture, dict) else picture
        if not isinstance(url, str):
            raise _unread("invalid message format")
        if url.startswith(("http://", "https://")):
            raise _unread("image URLs are not currently supported, please use base64 encoded data instead")
        found = next((each for each in _PICTURE_TYPES if url.startswith(f"data:image/{each};base64,")), None)
        if found is None and not url.startswith("data:;base64,"):
            raise _unread("invalid image input")
        try:
            base64.b64decode(url.partition(",")[2], validate=True)
        except (binascii.Error, ValueError):
            raise _unread("invalid image input") from None

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse nothing: it drops the oldest messages of a conversation that is too long."""

    def read(self, body: Json, model: Model) -> Asked:
        """Read a request; how a tool is chosen is not among its fields."""
        return super().read({**body, "tool_choice": None, "max_completion_tokens": None, "n": 1}, model)

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether a model thinks: it does if it can, unless it is told not to."""
        effort = (body.get("reasoning") or {}).get("effort") or body.get("reasoning_effort")
        return model.thinks and effort != "none"

    def finished(self, answer: Json, given: Given) -> Json:
        """Return an answer with the fields of its own types."""
        usage = answer["usage"]
        answer["usage"] = {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
        answer.pop("service_tier", None)
        for choice in answer["choices"]:
            choice.pop("logprobs", None)
            choice["message"]["content"] = choice["message"]["content"] or ""
        return answer


class Old(Ollama):
    """Ollama before 0.13.3 (Responses) and 0.14 (Messages)."""

    name = "ollama_old"
    is_newest = False


def _unread(message: str, page: str = rules.OLLAMA_CHAT) -> Refused:
    return Refused(400, message, rule="content", page=page)


VENDOR = Ollama
