"""Translates a chat completion request into an interaction's."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.forced_call import loses_format
from providers.dialects.chat.searches import SEARCH_FIELD, search_in
from providers.dialects.gemini.dialect import GeminiHabits
from providers.dialects.gemini.fields import HIGHER, is_said
from providers.dialects.gemini.request_from_chat import GoogleConversation, functions_of, signature_of
from providers.dialects.interactions.fields import (
    IN_CONFIG,
    TIERS,
    with_signed_calls,
    without_empty_required,
)
from providers.dialects.messages.fields import (
    DEFAULTS,
    budget_of,
    chosen_tool,
    limit_of,
    lose_rest_of_answer,
    lose_stream_options,
    request_of,
    stops_of,
)
from providers.dialects.messages.request_from_chat import is_error
from providers.dialects.reading import Object, RawObject, object_at, objects_at, raw_text_at, text_at
from providers.dialects.wording import (
    CACHE_REASON,
    CANNOT_STOP_THINKING,
    LEFT_OUT,
    Losses,
    Wording,
    as_users,
    decoded,
    is_string,
    raw_json,
)

_API = "Google's Interactions API"
_NO_FIELD = f"{_API} has no such field"
_KINDS = {"input_audio": "audio", "image_url": "image", "file": "document"}  # types of parts, by chat's types


class _Conversation(GoogleConversation):
    """The steps so far, and the system prompt's texts."""

    api = _API

    def __init__(self, losses: Losses) -> None:
        super().__init__(losses)
        self.system: list[str] = []
        self.steps: list[Object] = []

    def read(self, messages: Sequence[RawObject]) -> None:
        """Translate all messages of a request.

        Raises:
            Malformed: a message is not valid in chat.

        """
        role = self._read(messages)
        if self.steps and self.steps[0]["type"] not in {"user_input", "function_result"}:
            self.steps.insert(0, {"type": "user_input", "content": [{"type": "text", "text": LEFT_OUT}]})
        if role != "assistant" and self.steps and self.steps[-1]["type"] == "model_output":
            self._add_user([{"type": "text", "text": LEFT_OUT}])  # the last message is blank

    def _add_user(self, parts: list[Object]) -> None:
        self._add("user_input", parts)

    def _add(self, kind: str, content: list[Object]) -> None:
        if content:
            self.steps.append({"type": kind, "content": content})

    def _add_system(self, message: RawObject, path: str) -> None:
        self._losses.rest(message, ("role", "content"), path, self._no_field)
        parts = self._parts(message.get("content"), f"{path}.content", texts_only=True)
        texts = [decoded(raw_json(part["text"]), str, path) for part in parts]
        if not self.steps:
            self.system += texts
            return
        reason = f"{_API} takes a system prompt only first: this one goes into the user's turn, in <system> tags"
        self._losses.add(f"{path}.role", reason, hint=True)
        self._add("user_input", [{"type": "text", "text": as_users(text)} for text in texts])

    def _add_assistant(self, message: RawObject, path: str) -> None:
        content, signature = message.get("content"), signature_of(message, path)
        lose_rest_of_answer(
            message,
            path,
            self._losses,
            said=("role", "content", "tool_calls", "refusal", "extra_content"),
            thoughts=() if signature is None else ("reasoning_details",),
            unsigned=f"{_API} takes no thoughts that its model did not sign",
            api=_API,
        )
        parts = self._parts(content, f"{path}.content", texts_only=True) if is_said(content) else []
        if is_string(message.get("refusal")):
            parts.append({"type": "text", "text": message["refusal"]})
        if signature:
            self.steps.append({"type": "thought", "signature": signature})
        self._add("model_output", parts)
        for number, call in enumerate(objects_at(message.get("tool_calls"), f"{path}.tool_calls")):
            self._call(call, f"{path}.tool_calls[{number}]")

    def _call(self, call: RawObject, at: str) -> None:
        calling = self._calling(call, at)
        if calling is None:
            return
        if calling.signature:
            self.steps.append({"type": "thought", "signature": calling.signature})
        self.steps.append(
            {
                "type": "function_call",
                "id": calling.id,
                "name": calling.name,
                "arguments": calling.arguments,
            }
        )

    def _add_result(self, message: RawObject, path: str) -> None:
        call_id = self._answered(message, path)
        if call_id is None:
            return
        content = message.get("content")
        result: Any = content if is_string(content) else self._parts(content, f"{path}.content")
        step: Object = {"type": "function_result", "call_id": call_id, "name": self._names[call_id], "result": result}
        self.steps.append({**step, "is_error": True} if is_error(message, path) else step)

    def _text(self, text: msgspec.Raw) -> Object:
        return {"type": "text", "text": text}

    def _inline(self, kind: str, mime: str, data: str) -> Object:
        return {"type": _KINDS[kind], "mime_type": mime, "data": data}

    def _at_address(self, kind: str, url: str, path: str) -> list[Object]:
        if url.startswith("https://"):
            return [{"type": _KINDS[kind], "uri": url}]
        self._losses.add(path, "Google takes pictures and files in base64, or at addresses with https")
        return []


_SAME: Sequence[str] = ("temperature", "top_p", "seed")
_READ = frozenset({
    *_SAME,
    *("max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls", "reasoning_effort"),
    *("response_format", "service_tier", "shows_thoughts", "stop", "store", "stream", "stream_options", "tool_choice"),
    "tools",
})  # fmt: skip
_MOST_STOPS = 5  # stop sequences
_HINTS: Mapping[str, str] = {
    "metadata": f"{_API} has no metadata",
    "prediction": f"{_API} takes no prediction",
    "prompt_cache_key": CACHE_REASON,
    "prompt_cache_options": CACHE_REASON,
    "prompt_cache_retention": CACHE_REASON,
    "user": f"{_API} takes no name of a user",
}
_FALSE = msgspec.Raw(b"false")


def from_chat(fields: Mapping[str, msgspec.Raw], habits: GeminiHabits) -> Wording:
    """Translate a chat completion request into an interaction's, for a model with these ``habits``.

    The interaction is not stored, unless the request says so: the client's next turn sends everything again.

    Raises:
        Malformed: the request is not valid in chat.

    """
    losses = Losses()
    asked, given = request_of(fields)
    conversation = _Conversation(losses)
    conversation.read(given)
    if not conversation.steps:
        losses.add("messages", f"{_API} needs more than a system prompt")
    said: Object = {name: asked[name] for name in ("model", "stream") if name in asked}
    said["input"] = with_signed_calls(conversation.steps) if habits.signs else conversation.steps
    if conversation.system:
        said["system_instruction"] = "\n\n".join(conversation.system)
    said["store"] = asked["store"] if "store" in asked and is_said(asked["store"]) else _FALSE
    if decoded(asked.get("n"), int, "n") not in {None, 1}:
        losses.add("n", f"{_API} gives one answer")
    asked.pop("n", None)
    said.update({IN_CONFIG + name: asked[name] for name in _SAME if name in asked})
    if (limit := limit_of(asked, losses, _API)) is not None:
        said[IN_CONFIG + "max_output_tokens"] = limit
    stops = stops_of(asked)
    if len(stops) > _MOST_STOPS:
        losses.add("stop", f"{_API} takes {_MOST_STOPS} stop sequences at most")
    said.update({IN_CONFIG + "stop_sequences": stops[:_MOST_STOPS]} if stops else {})
    said.update(_tier(asked, losses))
    said.update(_tools(asked, losses))
    if habits.searches and search_in(asked, losses, {}):
        said["tools"] = [*said.get("tools", ()), {"type": "google_search"}]
        del asked[SEARCH_FIELD]
    said.update(_form(asked, losses, calls="tools" in said and not habits.levels))
    said.update(_thinking(asked, losses, habits))
    lose_stream_options(asked, losses, _NO_FIELD)
    for name, value in asked.items():
        if name not in _READ and bytes(value) not in DEFAULTS.get(name, ()):
            losses.add(name, _HINTS.get(name, _NO_FIELD), hint=name in _HINTS)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.met())


def _thinking(asked: RawObject, losses: Losses, habits: GeminiHabits) -> Object:
    effort = decoded(asked.get("reasoning_effort"), str, "reasoning_effort")
    budget_of(asked)  # a budget stands for an effort, which is sent already
    shows = {IN_CONFIG + "thinking_summaries": "auto"}
    if effort is None:
        return shows if "shows_thoughts" in asked else {}
    level = HIGHER.get(effort, effort)
    if level == "none":
        losses.add("reasoning_effort", CANNOT_STOP_THINKING, hint=True)
        level = habits.least if habits.least in _LEVELS else "minimal"
        return {IN_CONFIG + "thinking_level": level}
    if level not in _LEVELS:
        losses.add("reasoning_effort", f"{_API} has no effort {effort!r}")
        return {}
    if effort in HIGHER:
        losses.add("reasoning_effort", f"{_API} has no effort above {level!r}", hint=True)
    if level == "minimal" and habits.least in _LEVELS:
        level = habits.least
    return {IN_CONFIG + "thinking_level": level, **shows}


_LEVELS = frozenset({"minimal", "low", "medium", "high"})


def _tier(asked: RawObject, losses: Losses) -> Object:
    tier = decoded(asked.get("service_tier"), str, "service_tier")
    if tier in TIERS:
        return {"service_tier": TIERS[tier]}
    if tier not in {None, "auto", "default"}:
        losses.add("service_tier", f"{_API} has no service tier {tier!r}")
    return {}


def _tools(asked: RawObject, losses: Losses) -> Object:
    declared: list[Object] = []
    strict = False
    for function, at in functions_of(asked, losses, _API):
        one: Object = {"type": "function", "name": raw_text_at(function, "name", at)}
        one |= {name: function[name] for name in ("description", "parameters") if is_said(function.get(name))}
        if b'"required"' in bytes(one.get("parameters", b"")):
            one["parameters"] = without_empty_required(decoded(one["parameters"], dict[str, Any], f"{at}.parameters"))
        strict = strict or bytes(function.get("strict", b"null")) == b"true"
        declared.append(one)
    if not declared:
        if "tool_choice" in asked and bytes(asked["tool_choice"]) not in {b'"none"', b'"auto"'}:
            losses.add("tool_choice", f"{_API} chooses among tools only")
        return {}
    decoded(asked.get("parallel_tool_calls"), bool, "parallel_tool_calls")  # the answer has the first of several calls
    choice = _choice(asked, losses, strict=strict)
    return {"tools": declared} if choice is None else {"tools": declared, IN_CONFIG + "tool_choice": choice}


def _choice(asked: RawObject, losses: Losses, *, strict: bool) -> object:
    chosen = chosen_tool(asked)
    if isinstance(chosen, msgspec.Raw):
        return {"allowed_tools": {"mode": "any", "tools": [chosen]}}
    if chosen is None and "tool_choice" in asked:
        choice, path = object_at(asked["tool_choice"], "tool_choice"), "tool_choice.allowed_tools"
        allowed = object_at(choice.get("allowed_tools"), path)
        mode = decoded(allowed.get("mode"), str, f"{path}.mode")
        functions = [object_at(tool.get("function"), path) for tool in objects_at(allowed.get("tools"), path)]
        names = [raw_text_at(function, "name", path) for function in functions if "name" in function]
        if names and mode in {"auto", "required"}:
            return {"allowed_tools": {"mode": "validated" if mode == "auto" else "any", "tools": names}}
        losses.add("tool_choice", f"{_API} chooses among functions, by their names")
        return None
    if chosen in {None, "auto"}:
        return "validated" if strict else None  # in mode ``auto`` a call need not match its schema
    return "any" if chosen == "required" else "none"


def _form(asked: RawObject, losses: Losses, *, calls: bool) -> Object:
    """Return the field for the format; ``calls``: there are functions, beside which this model takes no format."""
    form = object_at(asked.get("response_format"), "response_format")
    kind = text_at(form, "type", "response_format") if form else "text"
    if kind == "text":
        return {}
    if calls:
        if not loses_format(asked, losses):
            losses.add("response_format", "this model calls functions or answers as JSON, not both")
        return {}
    json: Object = {"type": "text", "mime_type": "application/json"}
    if kind not in {"json_object", "json_schema"}:
        losses.add("response_format", f"{_API} does not answer as {kind!r}")
        return {}
    path = "response_format.json_schema"
    given = object_at(form.get("json_schema"), path)
    losses.rest(given, ("name", "description", "schema", "strict"), path, _NO_FIELD)
    return {"response_format": {**json, "schema": given["schema"]} if "schema" in given else json}
