"""DeepSeek: chat completions whose thoughts must come back while tools are called."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.apis.chat import asked_tokens, blocks_to_cache
from strict_vendors.apis.chat_like import ChatLike
from strict_vendors.apis.messages_like import MessagesLike, calls_without_thoughts
from strict_vendors.caches import Prefixes, Used
from strict_vendors.models import Model, Models, alike
from strict_vendors.rules import deepseek as rules
from strict_vendors.script import Asked, Broken, Given
from strict_vendors.shapes import Fault
from strict_vendors.vendor import Refused, Request, Route, as_json

Json = dict[str, Any]

_READ = "Failed to deserialize the JSON body into the target type: "
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "floating point", list: "sequence", dict: "map"}
_RUST = {"string": "a string", "integer": "u32", "decimal": "f32", "boolean": "a boolean", "array": "a sequence"}


class VENDOR(ChatLike):
    """DeepSeek."""

    name = "deepseek"
    key = "sk-strict-deepseek"
    pages: ClassVar[Sequence[str]] = (rules.CHAT_PAGE, rules.THINKING, rules.PRICING, rules.PREFIX)
    chat = rules.CHAT
    thoughts = "reasoning_content"
    fingerprint = "fp_strict_prod0820_fp8_kvcache"
    usage_in = "last"
    before = b": keep-alive\n\n"  # https://api-docs.deepseek.com/quick_start/rate_limit
    call_ids = ("call_00_", 24, "0123456789abcdefghijklmnopqrstuvwxyz")
    models = Models(
        *alike(
            ["deepseek-v4-pro", "deepseek-v4-flash", "deepseek-flash"],
            Model(context=1_000_000, longest=393_216, efforts=rules.EFFORTS, usual="high", page=rules.PRICING),
        )
    )

    def __init__(self, seed: str = "", account: str = "") -> None:
        self.own_messages = _Messages(seed, account)
        super().__init__(seed, account)
        self.prefixes = Prefixes(least=64, whole=True)  # api-docs.deepseek.com/guides/kv_cache, read on 2026-11-29

    def used(self, body: Json) -> Used:
        """Return what of a prompt is in its cache: of earlier prompts that are its beginning as a whole."""
        return Used(self.prefixes.read(body["model"], blocks_to_cache(body)))

    def routes(self) -> Sequence[Route]:
        """Return its addresses: with or without a version, and those of its beta."""
        return [
            ("POST", "/anthropic/v1/messages", self.own_messages.speak),
            *self._of_chat(),
        ]

    def _of_chat(self) -> Sequence[Route]:
        return [
            route
            for base in ("/v1", "", "/beta", "/beta/v1")
            for route in (
                ("POST", f"{base}/chat/completions", self.complete),
                ("GET", f"{base}/models", self.list_models),
            )
        ]

    def refuse_key(self, given: str) -> None:
        """Refuse a key."""
        said = f"Authentication Fails, Your api key: ****{given[-4:]} is invalid"
        raise Refused(401, said, kind="authentication_error", code="invalid_request_error", rule="key")

    def refusal(self, refused: Refused) -> Any:
        """Return a refusal: its code repeats its kind."""
        refused.code = refused.code or refused.kind or "invalid_request_error"
        return super().refusal(refused)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(
            broken.status, "Server overloaded, please retry later.", kind="service_error", rule="as asked for"
        )

    def words(self, fault: Fault) -> Refused:
        """Return a fault as its reader says it."""
        where = ".".join(str(step) for step in fault.path).replace(".0", "[0]")
        match fault.kind:
            case "missing":
                said = f"{_READ}{_outer(fault)}missing field `{fault.field}`"
            case "value":
                wanted = ", ".join(f"`{each}`" for each in fault.bound)
                said = f"{_READ}{_written(fault)}: unknown variant `{fault.value}`, expected one of {wanted}"
            case "type":
                got = _TYPES.get(type(fault.value), "null")
                said = (
                    f"{_READ}{_written(fault)}: invalid type: {got}, expected {_RUST.get(str(fault.bound), 'struct')}"
                )
            case "pattern":
                return _refused(
                    f"Invalid '{_written(fault)}': string does not match pattern. Expected a string that matches the"
                    f" pattern '{fault.bound}'.",
                    "pattern",
                    fault.page or rules.CHAT_PAGE,
                )
            case "low" | "high":
                least, most = {"temperature": (0, 2), "top_p": (0, 1), "top_logprobs": (0, 20)}.get(where, (-2, 2))
                said = f"Invalid {where} value, the valid range of {where} is [{least}, {most}]"
                return _refused(said, "range", rules.CHAT_PAGE)
            case _:
                return _refused(f"Invalid '{_written(fault)}'", fault.kind, rules.CHAT_PAGE)
        return _refused(f"{said} at line 1 column {len(as_json(fault.value)) + 80}", f"field {fault.kind}", rules.ROLES)

    def no_model(self, name: str) -> Refused:
        """Refuse a model that it does not have."""
        return Refused(400, "Model Not Exist", rule="model", page=rules.PRICING)

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse choices of tools while it thinks, forms that it does not have, and too long answers."""
        most = body.get("max_tokens")
        if most is not None and not 1 <= most <= model.longest:
            said = f"Invalid max_tokens value, the valid range of max_tokens is [1, {model.longest}]"
            raise _refused(said, "longest answer", rules.MAX_TOKENS)
        if self.thinks(body, model) and body.get("tool_choice") not in (None, "auto", "none"):
            raise _refused("Thinking mode does not support this tool_choice", "choice of a tool", rules.CHOICE)
        kind = (body.get("response_format") or {}).get("type", "text")
        if kind not in {"text", "json_object"}:
            raise _refused("This response_format type is unavailable now", "form of an answer", rules.FORMAT)
        if kind == "json_object" and "json" not in json.dumps(body["messages"]).lower():
            said = "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'."
            raise _refused(said, "the word json", rules.JSON_MODE)
        if self.thinks(body, model):
            _check_thoughts(body["messages"])

    def check_messages(self, messages: Sequence[Json]) -> None:
        """Refuse contents of other types, and calls and results that do not belong together."""
        for number, message in enumerate(messages):
            _check_content(message, number)
        waiting: list[str] = []
        for message in [*messages, {"role": "end"}]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    said = "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
                    raise _refused(said, "result without calls", rules.FOLLOWED)
                waiting.remove(message["tool_call_id"])
            elif waiting:
                said = (
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
                    " 'tool_call_id'. (insufficient tool messages following tool_calls message)"
                )
                raise _refused(said, "calls without results", rules.FOLLOWED)
            if message["role"] == "assistant":
                waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if any(message.get("prefix") for message in messages[:-1]):
            said = "The assistant message with prefix set to true must be the last message"
            raise _refused(said, "prefix", rules.PREFIX)

    def complete(self, request: Request) -> Any:
        """Answer; a prefix is one of the beta's only."""
        messages = request.body.get("messages") if isinstance(request.body, dict) else None
        last = messages[-1] if isinstance(messages, list) and messages else {}
        if isinstance(last, dict) and last.get("prefix") and not request.path.startswith("/beta"):
            said = "Chat Prefix Completion is a beta feature, please set base_url to https://api.deepseek.com/beta"
            raise _refused(said, "prefix outside of the beta", rules.PREFIX)
        return super().complete(request)

    def check_length(self, body: Json, model: Model, asked: Asked) -> None:
        """Refuse a prompt that, with its answer, the model's context does not hold."""
        tokens, most = asked_tokens(asked), body.get("max_tokens") or 0
        if tokens + most > model.context:
            said = (
                f"This model's maximum context length is {model.context} tokens. However, you requested {tokens + most}"
                f" tokens ({tokens} in the messages, {most} in the completion). Please reduce the length of the"
                " messages or completion."
            )
            raise _refused(said, "context", rules.CONTEXT)

    def thinks(self, body: Json, model: Model) -> bool:
        """Say whether it thinks: it does unless it is told not to."""
        return (body.get("thinking") or {}).get("type") != "disabled"

    def begun(self, body: Json) -> str:
        """Return the text of a last message that is a prefix."""
        last = body["messages"][-1]
        return last.get("content") or "" if last.get("prefix") else ""

    def finished(self, answer: Json, given: Given) -> Json:
        """Return an answer whose usage tells what was in its cache."""
        answer["usage"] = _usage(answer["usage"])
        for choice in answer["choices"]:
            choice["message"]["content"] = choice["message"]["content"] or ""
        return answer

    def shaped(self, chunks: Sequence[Json], asked: Asked, given: Given, usage: Json) -> list[Json]:
        """Return chunks of which the last tells the usage."""
        return list(super().shaped(chunks, asked, given, _usage(usage)))


class _Messages(MessagesLike):
    """Its Messages, at another path: ``thread`` and other fields that it does not know are passed over."""

    name = "deepseek-messages"
    messages = rules.MESSAGES
    counted = rules.MESSAGES
    models = VENDOR.models

    def check_model(self, body: Json, model: Model) -> None:
        """Refuse calls without thoughts while it thinks."""
        if self.thinks(body, model) and calls_without_thoughts(body) is not None:
            said = "The `content[].thinking` in the thinking mode must be passed back to the API."
            raise _refused(said, "calls without thoughts", rules.THOUGHTS_IN_MESSAGES)


def _refused(message: str, rule: str, page: str) -> Refused:
    return Refused(400, message, rule=rule, page=page)


def _written(fault: Fault) -> str:
    written = ""
    for step in fault.path:
        written += f"[{step}]" if isinstance(step, int) else f".{step}"
    return written.removeprefix(".")


def _outer(fault: Fault) -> str:
    outer = _written(Fault(fault.path[:-1], fault.kind))
    return f"{outer}: " if outer else ""


def _check_content(message: Json, number: int) -> None:
    content = message.get("content")
    if isinstance(content, list):
        other = next((part.get("type") for part in content if part.get("type") != "text"), None)
        said = f"unknown variant `{other}`, expected `text`" if other else "invalid type: sequence, expected a string"
        raise _refused(f"{_READ}messages[{number}]: {said} at line 1 column 100", "content in parts", rules.SEQUENCE)
    if content is None and (message["role"] != "assistant" or not message.get("tool_calls")):
        raise _refused(
            f"{_READ}messages[{number}]: missing field `content` at line 1 column 100", "content", rules.NO_FIELD
        )
    if message["role"] == "tool" and "tool_call_id" not in message:
        said = f"{_READ}messages[{number}]: missing field `tool_call_id` at line 1 column 100"
        raise _refused(said, "id of a result", rules.NO_FIELD)


def _check_thoughts(messages: Sequence[Json]) -> None:
    """Refuse calls of tools without the thoughts that led to them, in all turns."""
    if any(message.get("tool_calls") and message.get("reasoning_content") is None for message in messages):
        said = "The `reasoning_content` in the thinking mode must be passed back to the API."
        raise _refused(said, "calls without thoughts", rules.PASSED_BACK)


def _usage(usage: Json) -> Json:
    tokens, read = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    kept = {name: value for name, value in usage.items() if name != "prompt_tokens_details"}
    cached = {"prompt_tokens_details": {"cached_tokens": read}, "prompt_cache_hit_tokens": read}
    details = {"reasoning_tokens": usage["completion_tokens_details"]["reasoning_tokens"]}
    return {**kept, **cached, "prompt_cache_miss_tokens": tokens - read, "completion_tokens_details": details}
