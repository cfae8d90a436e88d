"""Translates an interaction's request into a chat completion request."""

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from providers.dialects.gemini.fields import is_said
from providers.dialects.gemini.request_to_chat import name_of_function
from providers.dialects.interactions.fields import IN_CONFIG, LEVELS, TIERS, step_objects
from providers.dialects.reading import Object, RawObject, object_at, objects_at, present, raw_text_at, text_at
from providers.dialects.wording import (
    CHANGING_NOTHING,
    GOOGLE,
    OURS,
    SEE_BELOW,
    SHOWN_LATER,
    HistoryCalls,
    Losses,
    Malformed,
    Wording,
    as_error,
    blocks_within,
    decoded,
    extra_content,
    is_string,
    raw_json,
    results_first,
    shown,
    shows_results,
    signer_of,
    with_properties,
)

_NO_FIELD = "chat has no such field"
_NO_STEP = "chat has no such step"
_NO_PART = "chat has no such content"
_OWN_THOUGHTS = "chat has no earlier thoughts: only the model that had them can use them"
_SIGNATURE = "chat has no signatures of thoughts: only the model that signed them can use them"
_SOUNDS: Mapping[str, str] = {
    **dict.fromkeys(("audio/wav", "audio/x-wav", "audio/wave"), "wav"),
    **dict.fromkeys(("audio/mp3", "audio/mpeg"), "mp3"),
}
# Steps of Google's own tools in earlier answers: another model goes on without these steps.
_OF_GOOGLE = tuple(
    f"{tool}_{what}"
    for tool in (
        *("code_execution", "file_search", "google_maps", "google_search", "mcp_server_tool", "processing"),
        *("retrieval", "tool_search", "url_context"),
    )
    for what in ("call", "result")
)
_CHANGING_NOTHING: Mapping[str, str] = {**CHANGING_NOTHING} | dict.fromkeys(
    ("processing", "resolution", "short_description", "defer_loading", "channels", "sample_rate"), _NO_FIELD
)
_TRUE = msgspec.Raw(b"true")


class _Conversation:
    """The messages so far. Steps of the model that follow each other are one message."""

    def __init__(self, losses: Losses, *, thoughts: bool, signed: str, elsewhere: bool) -> None:
        """``thoughts``: keep earlier thoughts. ``signed``: keep the thoughts that this vendor has signed.

        ``elsewhere``: steps before these are stored at Google.
        """
        self.said: list[Object] = []
        self._ids = HistoryCalls(elsewhere=elsewhere)
        self._losses = losses
        self._thoughts = thoughts
        self._signed = signed
        self._signature = ""  # the signature of the thought before the next step
        self._waiting: Object = {}  # other parts of thoughts that are kept, for the message to which the thoughts led

    def read(self, steps: list[RawObject], *, has_blocks: bool) -> None:
        """Translate all steps; ``has_blocks``: a step has thoughts that Anthropic's models have signed.

        Raises:
            Malformed: a step is not valid in interactions.

        """
        blocks_are_kept = has_blocks and self._signed not in {"", GOOGLE}
        kind = ""
        for number, step in enumerate(steps):
            path = f"input[{number}]"
            kind = text_at(step, "type", path)
            if kind == "user_input":
                self._user(step, path)
            elif kind == "model_output":
                self._model(step, path)
            elif kind == "thought":
                self._thought(step, path, blocks_are_kept=blocks_are_kept)
            elif kind == "function_call":
                self._call(step, path)
            elif kind == "function_result":
                self._result(step, path)
            else:
                self._losses.add(path, _NO_STEP, hint=kind in _OF_GOOGLE)
        for message in self.said:
            if message["role"] == "assistant":
                _join(message)
        if kind == "model_output":
            last = f"input[{len(steps) - 1}]"
            self._losses.add(last, "chat answers a model's last turn, and does not continue it")

    def _user(self, step: RawObject, path: str) -> None:
        self._forget()
        self._losses.rest(step, ("type", "content"), path, _NO_FIELD)
        content, places = self._contents(step.get("content"), f"{path}.content")
        if content:
            message: Object = {"role": "user", "content": _content(content)}
            self.said.append(self._losses.places.put(message, places[0] if len(places) == 1 else path, places))

    def _contents(self, raw: msgspec.Raw | None, path: str) -> tuple[list[Object], list[str]]:
        content: list[Object] = []
        places: list[str] = []
        if is_string(raw):
            return [{"type": "text", "text": raw}], [path]
        for number, part in enumerate(objects_at(raw, path)):
            at = f"{path}[{number}]"
            content += parts_of(part, at, self._losses)
            places += [at] * (len(content) - len(places))
        return content, places

    def _forget(self) -> None:
        """Forget thoughts that led to no step of the model."""
        self._signature = ""
        self._waiting = {}

    def _of_model(self, path: str) -> Object:
        """Return the message of the model's current turn, with the thoughts before the message."""
        if not (self.said and self.said[-1]["role"] == "assistant"):
            self._ids.begin_turn()
            self.said.append(self._losses.places.put({"role": "assistant", "content": []}, path))
        message, waiting = self.said[-1], self._waiting
        self._waiting = {}
        for name, told in waiting.items():
            message.setdefault(name, []).extend(told)
        return message

    def _model(self, step: RawObject, path: str) -> None:
        self._losses.rest(step, ("type", "content", "error"), path, _NO_FIELD)
        texts: list[str] = []
        if is_string(step.get("content")):
            texts.append(text_at(step, "content", path))
        else:
            for number, part in enumerate(objects_at(step.get("content"), f"{path}.content")):
                at = f"{path}.content[{number}]"
                if text_at(part, "type", at) == "text":
                    self._losses.rest(part, ("type", "text", "annotations"), at, _NO_FIELD)
                    texts.append(text_at(part, "text", at))
                else:
                    self._losses.add(at, "chat has no pictures or sounds of the model's")
        message = self._of_model(path)
        message["content"] += texts
        if self._signature:
            message.update(extra_content(self._signature))
            self._signature = ""

    def _thought(self, step: RawObject, path: str, *, blocks_are_kept: bool) -> None:
        self._losses.rest(step, ("type", "summary", "signature"), path, _NO_FIELD)
        parts = objects_at(step.get("summary"), f"{path}.summary")
        texts = [
            decoded(part["text"], str, f"{path}.summary[{number}].text") or ""
            for number, part in enumerate(parts)
            if "text" in part
        ]
        if text := "".join(texts):
            if self._thoughts:
                self._waiting.setdefault("reasoning_content", []).append(text)
            elif not blocks_are_kept:
                self._losses.add(f"{path}.summary", _OWN_THOUGHTS, hint=True)
        if not is_said(step.get("signature")):
            return
        signature = text_at(step, "signature", path)
        if blocks := blocks_within(signature):
            if own := [block for block in blocks if signer_of(block) == self._signed]:
                self._waiting.setdefault("thinking_blocks", []).extend(own)
                return
        elif signature and self._signed == GOOGLE:
            self._signature = signature
            return
        if signature:
            self._losses.add(f"{path}.signature", _SIGNATURE, hint=True)

    def _call(self, step: RawObject, path: str) -> None:
        self._losses.rest(step, ("type", "id", "name", "arguments", "signature"), path, _NO_FIELD)
        call_id, name = text_at(step, "id", path), text_at(step, "name", path)
        arguments = step.get("arguments")
        written = bytes(arguments).decode() if arguments is not None and is_said(arguments) else "{}"
        if not written.startswith("{"):
            raise Malformed(f"'{path}.arguments' must be an object", f"{path}.arguments")
        message = self._of_model(path)
        self._ids.add(call_id, f"{path}.id")
        signed = extra_content(self._signature) if self._signature else {}
        self._signature = ""
        function = {"name": name_of_function(name), "arguments": written}
        call = {"id": call_id, "type": "function", "function": function, **signed}
        message.setdefault("tool_calls", []).append(call)

    def _result(self, step: RawObject, path: str) -> None:
        self._forget()
        self._losses.rest(step, ("type", "call_id", "name", "result", "is_error"), path, _NO_FIELD)
        call_id = text_at(step, "call_id", path)
        self._ids.answer(call_id, f"{path}.call_id")
        raw, shown_later = step.get("result"), list[Object]()
        failed = bool(decoded(step.get("is_error"), bool, f"{path}.is_error"))
        content: Any
        if raw is not None and bytes(memoryview(raw)[:1]) == b"[":
            parts, _ = self._contents(raw, f"{path}.result")
            if any(part["type"] != "text" for part in parts) and not shows_results(self._losses):
                self._losses.add(f"{path}.result", SHOWN_LATER, hint=True)
                shown_later = [part for part in parts if part["type"] != "text"]
                parts = [part for part in parts if part["type"] == "text"]
                parts.append({"type": "text", "text": SEE_BELOW})
            is_text = all(part["type"] == "text" for part in parts)
            told = [decoded(raw_json(part["text"]), str, path) for part in parts if "text" in part]
            content = "\n".join(told) if is_text else parts
        elif is_string(raw):
            content = text_at(step, "result", path)
        else:
            content = "" if raw is None else bytes(raw).decode()
        keeps = failed and "results" in self._losses.beyond
        if failed and not keeps and isinstance(content, str):
            content = as_error(content)
        message: Object = {"role": "tool", "tool_call_id": call_id, "content": content}
        self.said.append(self._losses.places.put(message | ({"is_error": True} if keeps else {}), path))
        if shown_later:
            introduced = [{"type": "text", "text": shown(call_id)}, *shown_later]
            self.said.append(self._losses.places.put({"role": "user", "content": introduced}, path))


def _join(message: Object) -> None:
    """Join the texts of a message of the model."""
    message["content"] = "".join(message["content"]) or (None if "tool_calls" in message else "")
    if "reasoning_content" in message:
        message["reasoning_content"] = "".join(message["reasoning_content"])


def _content(parts: list[Object]) -> object:
    """Return parts as a message's content; a single text as a string, which every server accepts."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def parts_of(part: RawObject, at: str, losses: Losses) -> list[Object]:
    """Return chat's parts for one content of a user's turn, or of a function's result."""
    kind = text_at(part, "type", at)
    if kind == "text":
        losses.rest(part, ("type", "text", "annotations"), at, _NO_FIELD)
        return [{"type": "text", "text": raw_text_at(part, "text", at)}]
    losses.rest(part, ("type", "data", "mime_type", "uri"), at, _NO_FIELD)
    mime = (decoded(part.get("mime_type"), str, f"{at}.mime_type") or "").lower()
    data = decoded(part.get("data"), str, f"{at}.data")
    uri = decoded(part.get("uri"), str, f"{at}.uri")
    if not (data or uri):
        raise Malformed(f"'{at}' must have 'data' or 'uri'", at)
    is_public = bool(uri) and str(uri).startswith("https://") and "generativelanguage.googleapis.com" not in str(uri)
    if kind == "image" and (data or is_public):
        url = f"data:{mime or 'image/png'};base64,{data}" if data else uri
        return [{"type": "image_url", "image_url": {"url": url}}]
    if kind == "audio" and data and mime in _SOUNDS:
        return [{"type": "input_audio", "input_audio": {"data": data, "format": _SOUNDS[mime]}}]
    if kind == "document" and mime in {"application/pdf", ""}:
        if data:
            url = f"data:application/pdf;base64,{data}"
            return [{"type": "file", "file": {"filename": "document.pdf", "file_data": url}}]
        if is_public and "addresses" in losses.beyond:
            return [{"type": "file", "file": {"file_url": uri}}]
    losses.add(at, f"chat takes no {mime or kind}" if data else "chat takes pictures by their address, and no files")
    return []


_SAME: Mapping[str, str] = {  # chat's names of the parameters that both APIs have
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_completion_tokens",
    "seed": "seed",
}
_MOST_STOPS = 4  # stop sequences in chat
_READ = frozenset({
    *("input", "model", "response_format", "response_mime_type", "safety_settings", "service_tier", "store", "stream"),
    *("system_instruction", "tools"),
    *(IN_CONFIG + name for name in _SAME),
    *(IN_CONFIG + name for name in ("stop_sequences", "thinking_level", "thinking_summaries", "tool_choice")),
})  # fmt: skip
_DEFAULTS: Mapping[str, tuple[bytes, ...]] = {  # values that are the default
    "background": (b"false",),
    "labels": (b"{}",),
    "response_modalities": (b'["text"]', b'[ "text" ]', b"[]", b'["TEXT"]'),
}
_HINTS: Mapping[str, str] = {"labels": "chat has no labels"}
_REASONS: Mapping[str, str] = {
    "agent": "only Google has its agents",
    "agent_config": "only Google has its agents",
    "background": "chat runs nothing in the background",
    "cached_content": "only Google has what it keeps in its cache",
    "continuation_token": "only who gave this token can go on from it",
    "environment": "chat has no environments",
    "previous_interaction_id": "only who stores an interaction can go on from it",
    "response_modalities": "chat answers in text",
    "webhook_config": "chat calls nobody when it has ended",
    IN_CONFIG + "speech_config": "chat answers in text",
}
_CHOICES: Mapping[str, str] = {"auto": "auto", "validated": "auto", "any": "required", "none": "none"}
_LETS_ALL_PASS = frozenset({"block_none", "off"})


def to_chat(
    fields: Mapping[str, msgspec.Raw], *, thoughts: bool = False, signed: str = "", beyond: Container[str] = ()
) -> Wording:
    """Translate an interaction's request into a chat completion request.

    With ``thoughts``, earlier thoughts are sent as ``reasoning_content``. The vendor ``signed`` gets back the thoughts
    that it has signed. Parts ``beyond`` chat are kept in the pivot's own fields.

    Raises:
        Malformed: the request is not valid in interactions.

    """
    losses = Losses(beyond=beyond, changing_nothing=_CHANGING_NOTHING)
    asked = present(fields)
    elsewhere = "previous_interaction_id" in asked
    conversation = _Conversation(losses, thoughts=thoughts, signed=signed, elsewhere=elsewhere)
    if is_said(asked.get("system_instruction")):
        text = raw_text_at(asked, "system_instruction", "")
        message: Object = {"role": "system", "content": text}
        conversation.said.append(losses.places.put(message, "system_instruction"))
    steps = step_objects(asked)
    if not steps and not elsewhere:
        raise Malformed("'input' must have a text, a content, or a step", "input")
    conversation.read(steps, has_blocks=OURS in bytes(asked.get("input", b"")))
    chat: Object = {name: asked[name] for name in ("model", "stream") if name in asked}
    chat["messages"] = [each for _, each in results_first(conversation.said)]
    for name, chats in _SAME.items():
        if IN_CONFIG + name in asked:
            chat[chats] = asked[IN_CONFIG + name]
    chat.update(_stops(asked, losses))
    if tools := _tools(asked, losses):
        chat.update({"tools": tools} | _choice(asked))
    chat.update(_form(asked, losses))
    chat.update(_effort(asked, losses))
    chat.update(_tier(asked, losses))
    chat.update({"store": asked["store"]} if asked.get("store") == _TRUE else {})
    for number, setting in enumerate(objects_at(asked.get("safety_settings"), "safety_settings")):
        path = f"safety_settings[{number}]"
        if decoded(setting.get("threshold"), str, f"{path}.threshold") not in _LETS_ALL_PASS:
            losses.add(path, "chat has no thresholds of safety")
    for name, value in asked.items():
        if name not in _READ and bytes(value) not in _DEFAULTS.get(name, ()):
            losses.add(name, _HINTS.get(name) or _REASONS.get(name, _NO_FIELD), hint=name in _HINTS)
    return losses.with_chat(chat)


def _stops(asked: RawObject, losses: Losses) -> Object:
    path = IN_CONFIG + "stop_sequences"
    stops = decoded(asked.get(path), list[str], path)
    if not stops:
        return {}
    if len(stops) > _MOST_STOPS:
        losses.add(path, f"chat takes {_MOST_STOPS} stop sequences at most")
    return {"stop": stops[:_MOST_STOPS]}


def _tools(asked: RawObject, losses: Losses) -> list[Object]:
    said: list[Object] = []
    for number, tool in enumerate(objects_at(asked.get("tools"), "tools")):
        path = f"tools[{number}]"
        kind = text_at(tool, "type", path)
        if kind != "function":
            losses.add(path, f"chat has no tool {kind!r}")
            continue
        function: Object = {"name": name_of_function(text_at(tool, "name", path))}
        if is_said(tool.get("description")):
            function["description"] = tool["description"]
        if is_said(tool.get("parameters")):
            function["parameters"] = with_properties(tool["parameters"])
        losses.rest(tool, ("type", "name", "description", "parameters"), path, "chat's functions have no such field")
        said.append(losses.places.put({"type": "function", "function": function}, path))
    return said


def choice_of(raw: msgspec.Raw | None) -> tuple[str, list[str]]:
    """Return the mode in which functions are called, and the names of those that may be called; none: all functions.

    Raises:
        Malformed: ``raw`` is neither a mode nor a choice among tools.

    """
    path = IN_CONFIG + "tool_choice"
    names: list[str] = []
    if raw is None or is_string(raw):
        mode = decoded(raw, str, path) or "auto"
    else:
        allowed = object_at(object_at(raw, path).get("allowed_tools"), f"{path}.allowed_tools")
        mode = decoded(allowed.get("mode"), str, f"{path}.allowed_tools.mode") or "auto"
        names = decoded(allowed.get("tools"), list[str], f"{path}.allowed_tools.tools") or []
    if mode not in _CHOICES:
        raise Malformed(f"'{path}' must be auto, any, none or validated", path)
    return mode, names


def _choice(asked: RawObject) -> Object:
    mode, names = choice_of(asked.get(IN_CONFIG + "tool_choice"))
    choice = _CHOICES[mode]
    functions = [{"type": "function", "function": {"name": name_of_function(name)}} for name in names]
    if choice == "required" and len(functions) == 1:
        return {"tool_choice": functions[0]}
    if functions and choice != "none":
        return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": choice, "tools": functions}}}
    return {} if choice == "auto" else {"tool_choice": choice}


_JSON = "application/json"


def schema_of(raw: msgspec.Raw | None, mime: str | None) -> tuple[bool, msgspec.Raw | None]:
    """Return whether an answer is to be JSON, and the schema that it must match, if one is named.

    The format may be one of a list. Before June 2026 the format was the schema itself, beside ``response_mime_type``.

    Raises:
        Malformed: the format is no object and no list of objects.

    """
    if raw is None or not is_said(raw):
        return mime == _JSON, None
    path = "response_format"
    is_list = bytes(memoryview(raw)[:1]) == b"["
    for form in objects_at(raw, path) if is_list else [object_at(raw, path)]:
        kind = decoded(form.get("type"), str, f"{path}.type")
        if kind == "text":
            own = decoded(form.get("mime_type"), str, f"{path}.mime_type")
            schema = form.get("schema")
            if is_said(schema) or own == _JSON:
                return True, schema if is_said(schema) else None
        elif kind not in {"audio", "image", "video"}:
            return True, raw
    return mime == _JSON, None


def _form(asked: RawObject, losses: Losses) -> Object:
    raw = asked.get("response_format")
    is_json, schema = schema_of(raw, decoded(asked.get("response_mime_type"), str, "response_mime_type"))
    if (
        raw is not None
        and not is_json
        and any(f'"{kind}"'.encode() in bytes(raw) for kind in ("audio", "image", "video"))
    ):
        losses.add("response_format", "chat answers as text or JSON")
    if not is_json:
        return {}
    if schema is None:
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def _effort(asked: RawObject, losses: Losses) -> Object:
    path = IN_CONFIG + "thinking_level"
    level = decoded(asked.get(path), str, path)
    summaries = decoded(asked.get(IN_CONFIG + "thinking_summaries"), str, IN_CONFIG + "thinking_summaries")
    said: Object = {}
    if level is not None and level.lower() in LEVELS:
        said["reasoning_effort"] = level.lower()
    elif level is not None:
        losses.add(path, f"chat has no effort {level!r}")
    if summaries == "auto" and "thoughts" in losses.beyond:
        said["shows_thoughts"] = True
    return said


def _tier(asked: RawObject, losses: Losses) -> Object:
    tier = (decoded(asked.get("service_tier"), str, "service_tier") or "standard").lower()
    if tier in TIERS:
        return {"service_tier": tier}
    if tier != "standard":
        losses.add("service_tier", f"chat has no service tier {tier!r}")
    return {}
