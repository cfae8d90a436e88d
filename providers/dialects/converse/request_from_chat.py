"""Translates a chat completion request into a Converse request.

The fields and their limits are those of the service's description in botocore (bedrock-runtime 2023-09-30).
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from providers.dialects.dialect import Habits
from providers.dialects.messages.dialect import MessagesHabits, habits_of, of_messages
from providers.dialects.messages.fields import (
    Losses,
    Object,
    RawObject,
    arguments_at,
    is_null,
    lose_stream_options,
    object_at,
    objects_at,
    raw_text_at,
    text_at,
    thinking_of_effort,
)
from providers.dialects.wording import (
    Malformed,
    Wording,
    as_users,
    decoded,
    is_string,
    raw_json,
    results_first,
)

_INLINE = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=-]+)*;base64,(.*)", re.DOTALL)
_IMAGES: Mapping[str, str] = {
    "image/gif": "gif",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",  # a common mistake, which chat accepts
    "image/png": "png",
    "image/webp": "webp",
}
_DOCUMENTS: Mapping[str, str] = {
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
_SOUNDS = frozenset({"aac", "flac", "m4a", "mp3", "mp4", "ogg", "opus", "wav", "webm"})
_THOUGHTS = frozenset({"reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"})
_LONGEST_BLANK_BYTES = 64  # a longer text is not searched for words: it may be a whole book
_NO_FIELD = "Converse has no such field"
_CACHE_POINT: Object = {"cachePoint": {"type": "default"}}
_FORBIDDEN_IN_ID = re.compile(r"[^a-zA-Z0-9_.:-]")
_LONGEST_ID = 64
_FORBIDDEN_IN_NAME = re.compile(r"[^a-zA-Z0-9\s()\[\]-]|\s(?=\s)")
_LONGEST_NAME = 200
_LONGEST_NUMBER = 8  # of a document among those of one name, with the space before it


def allowed_id(call_id: str) -> str:
    """Return a tool call's id as Converse allows it; equal ids stay equal, different ones different."""
    allowed = _FORBIDDEN_IN_ID.sub(lambda letter: f"_{ord(letter[0]):x}_", call_id)
    return allowed if len(allowed) <= _LONGEST_ID else hashlib.sha256(call_id.encode()).hexdigest()


class Conversation:
    """The turns so far, and the system prompt's blocks. Roles alternate: turns of one role are joined."""

    def __init__(self, losses: Losses) -> None:
        self.system: list[Object] = []
        self.turns: list[Object] = []
        self.called: dict[str, msgspec.Raw] = {}  # names of tools
        self.has_results = False
        self._losses = losses
        self._names: set[str] = set()  # of documents, in lower case
        self._numbers: Counter[str] = Counter()  # by the beginnings of names that came again

    def read(self, messages: Sequence[RawObject]) -> None:
        """Translate all messages of a request.

        Raises:
            Malformed: one is not valid in chat.

        """
        role = ""
        for number, message in results_first(messages):
            path = f"messages[{number}]"
            role = text_at(message, "role", path)
            match role:
                case "system" | "developer":
                    self._add_system(message, path)
                case "user":
                    self._losses.rest(message, ("role", "content"), path, _NO_FIELD)
                    content = message.get("content")
                    if content is None or is_null(content):
                        raise Malformed(f"'{path}.content' is required", f"{path}.content")
                    self._say("user", self._blocks(content, f"{path}.content"))
                case "assistant":
                    self._add_assistant(message, path)
                case "tool":
                    self._add_result(message, path)
                case _:
                    self._losses.add(path, f"Converse has no role {role!r}")
        if self.turns and self.turns[0]["role"] == "assistant":
            first = next(at for at, message in enumerate(messages) if bytes(message["role"]) == b'"assistant"')
            self._losses.add(f"messages[{first}]", "Converse's conversations begin with the user")
        if role == "assistant":
            reason = "Converse continues an assistant's last message, and does not answer it"
            self._losses.add(f"messages[{len(messages) - 1}]", reason)

    def _say(self, role: str, blocks: list[Object]) -> None:
        if not blocks:
            return
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})

    def _add_system(self, message: RawObject, path: str) -> None:
        self._losses.rest(message, ("role", "content"), path, _NO_FIELD)
        blocks = self._blocks(message.get("content"), f"{path}.content", texts_only=True)
        if not self.turns:
            self.system += blocks
            return
        reason = "system prompts go first: this one goes into the user's message, in <system> tags"
        self._losses.add(f"{path}.role", reason, hint=True)
        for block in blocks:
            if "text" in block:
                block["text"] = as_users(decoded(raw_json(block["text"]), str, path))
        self._say("user", blocks)

    def _add_result(self, message: RawObject, path: str) -> None:
        said = ("role", "content", "tool_call_id", "name", "cache_control")  # the call has the name too
        self._losses.rest(message, said, path, _NO_FIELD)
        call_id = allowed_id(text_at(message, "tool_call_id", path))
        told = self._blocks(message.get("content"), f"{path}.content", in_result=True)
        blocks = [block for block in told if "cachePoint" not in block]
        self._say("user", [{"toolResult": {"toolUseId": call_id, "content": blocks or [{"text": "(no output)"}]}}])
        if "cache_control" in message or len(blocks) < len(told):
            self._say("user", [_CACHE_POINT])
        self.has_results = True

    def _add_assistant(self, message: RawObject, path: str) -> None:
        said = {"role", "content", "tool_calls", "refusal"}
        for name in sorted(_THOUGHTS & message.keys()):
            said.add(name)
            if bytes(message[name]) not in {b"null", b'""', b"[]"}:
                self._losses.add(f"{path}.{name}", "Converse takes reasoning only with its signature", hint=True)
        for name in ("annotations", "function_call"):  # SDKs send an answer back unchanged, empty fields included
            if bytes(message.get(name, b"null")) == b"[]":
                said.add(name)
        self._losses.rest(message, said, path, _NO_FIELD)
        blocks = self._blocks(message.get("content"), f"{path}.content")
        if is_string(message.get("refusal")):
            blocks += self._text({"text": message["refusal"]}, f"{path}.refusal", "text")
        for number, call in enumerate(objects_at(message.get("tool_calls"), f"{path}.tool_calls")):
            blocks += self._call(call, f"{path}.tool_calls[{number}]")
        self._say("assistant", blocks)

    def _call(self, call: RawObject, at: str) -> list[Object]:
        kind = decoded(call.get("type"), str, f"{at}.type") or "function"
        if kind != "function":
            self._losses.add(at, "Converse has functions only")
            return []
        function = object_at(call.get("function"), f"{at}.function")
        arguments = arguments_at(function, f"{at}.function", self._losses, "Converse")
        self._losses.rest(call, ("id", "type", "index", "function"), at, _NO_FIELD)
        self._losses.rest(function, ("name", "arguments"), f"{at}.function", _NO_FIELD)
        name = raw_text_at(function, "name", f"{at}.function")
        self.called.setdefault(text_at(function, "name", f"{at}.function"), name)
        return [{"toolUse": {"toolUseId": allowed_id(text_at(call, "id", at)), "name": name, "input": arguments}}]

    def _blocks(
        self, content: msgspec.Raw | None, path: str, *, texts_only: bool = False, in_result: bool = False
    ) -> list[Object]:
        """Return a message's content as blocks. A blank text is left out, as Bedrock refuses it."""
        if content is None or is_null(content):
            return []
        if is_string(content):
            return self._text({"text": content}, path, "text", empty_is_said=in_result)
        blocks: list[Object] = []
        for number, part in enumerate(objects_at(content, path)):
            at = f"{path}[{number}]"
            kind = text_at(part, "type", at)
            if kind in {"text", "refusal"}:
                blocks += self._text(part, at, kind, empty_is_said=in_result)
            elif texts_only:
                self._losses.add(at, "a system prompt of Converse is text")
            elif kind == "image_url":
                blocks += self._image(part, at)
            elif kind == "file":
                blocks += self._file(part, at)
            elif kind == "input_audio" and not in_result:
                blocks += self._sound(part, at)
            else:
                self._losses.add(at, "Converse has no such part")
            if "cache_control" in part and not is_null(part["cache_control"]) and blocks:
                blocks.append(_CACHE_POINT)
        return blocks

    def _text(self, part: RawObject, at: str, name: str, *, empty_is_said: bool = False) -> list[Object]:
        text = raw_text_at(part, name, at)
        self._losses.rest(part, ("type", name, "cache_control"), at, _NO_FIELD)
        if len(memoryview(text)) <= _LONGEST_BLANK_BYTES and not msgspec.json.decode(text, type=str).strip():
            if not empty_is_said:
                self._losses.add(at, "Converse refuses empty text", hint=True)
            return []
        return [{"text": text}]

    def _image(self, part: RawObject, at: str) -> list[Object]:
        image = object_at(part.get("image_url"), f"{at}.image_url")
        url = text_at(image, "url", f"{at}.image_url")
        if bytes(image.get("detail", b"null")) not in {b"null", b'"auto"'}:
            self._losses.add(f"{at}.image_url.detail", "Converse has no detail level for images", hint=True)
        self._losses.rest(part, ("type", "image_url", "cache_control"), at, _NO_FIELD)
        self._losses.rest(image, ("url", "detail"), f"{at}.image_url", _NO_FIELD)
        inline = _INLINE.fullmatch(url)
        if inline is None or inline[1].lower() not in _IMAGES:
            self._losses.add(f"{at}.image_url.url", "Converse takes JPEG, PNG, GIF and WebP, in base64 only")
            return []
        return [{"image": {"format": _IMAGES[inline[1].lower()], "source": {"bytes": inline[2]}}}]

    def _file(self, part: RawObject, at: str) -> list[Object]:
        file = object_at(part.get("file"), f"{at}.file")
        self._losses.rest(part, ("type", "file", "cache_control"), at, _NO_FIELD)
        self._losses.rest(file, ("file_data", "filename"), f"{at}.file", "Bedrock has no access to OpenAI's files")
        inline = _INLINE.fullmatch(decoded(file.get("file_data"), str, f"{at}.file.file_data") or "")
        if inline is None or inline[1].lower() not in _DOCUMENTS:
            if "file_data" in file or not is_string(file.get("file_id")):  # an id is noted above
                self._losses.add(f"{at}.file.file_data", "Converse takes PDF, text, HTML and Office files, in base64")
            return []
        name = self._own_name(decoded(file.get("filename"), str, f"{at}.file.filename") or "")
        source = {"bytes": inline[2]}
        return [{"document": {"format": _DOCUMENTS[inline[1].lower()], "name": name, "source": source}}]

    def _own_name(self, given: str) -> str:
        """Return a document's name as Bedrock takes it: it refuses a conversation with two of one name."""
        name = _FORBIDDEN_IN_NAME.sub("", given.rpartition(".")[0] or given).strip()[:_LONGEST_NAME].rstrip()
        own = name or f"document {len(self._names) + 1}"
        begin = (name or "document")[: _LONGEST_NAME - _LONGEST_NUMBER].rstrip()
        while own.lower() in self._names:
            self._numbers[begin.lower()] += 1  # counted on: a request may have very many of one name
            own = f"{begin} {self._numbers[begin.lower()] + 1}"
        self._names.add(own.lower())
        return own

    def _sound(self, part: RawObject, at: str) -> list[Object]:
        sound = object_at(part.get("input_audio"), f"{at}.input_audio")
        kind = text_at(sound, "format", f"{at}.input_audio")
        self._losses.rest(part, ("type", "input_audio", "cache_control"), at, _NO_FIELD)
        self._losses.rest(sound, ("data", "format"), f"{at}.input_audio", _NO_FIELD)
        if kind not in _SOUNDS:
            self._losses.add(f"{at}.input_audio.format", f"Converse has no audio format {kind!r}")
            return []
        data = raw_text_at(sound, "data", f"{at}.input_audio")
        return [{"audio": {"format": kind, "source": {"bytes": data}}}]


_TRANSLATED = frozenset(
    {
        *("max_completion_tokens", "max_tokens", "messages", "model", "reasoning_effort", "response_format"),
        *("service_tier", "stop", "stream", "stream_options", "temperature", "tool_choice", "tools", "top_k", "top_p"),
    }
)
_DEFAULTS: Mapping[str, tuple[bytes, ...]] = {  # values that are the default
    "frequency_penalty": (b"0", b"0.0"),
    "function_call": (b'"none"', b'"auto"'),
    "functions": (b"[]",),
    "logit_bias": (b"{}",),
    "logprobs": (b"false",),
    "metadata": (b"{}",),
    "modalities": (b'["text"]', b'[ "text" ]'),
    "n": (b"1",),
    "parallel_tool_calls": (b"true",),
    "presence_penalty": (b"0", b"0.0"),
    "store": (b"false",),
    "top_logprobs": (b"0",),
    "verbosity": (b'"medium"',),
}
_HINTS = frozenset(
    {
        *("metadata", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "user"),
    }
)
_REASONS: Mapping[str, str] = {
    "parallel_tool_calls": "Converse may call several tools",
    "n": "Converse gives one answer",
}
_TIERS = frozenset({"default", "flex", "priority"})
_CLAUDE = "claude"
_KNOWN = Habits()
_MOST_TEMPERATURE = 1


def converse_from_chat(fields: Mapping[str, msgspec.Raw], model: str) -> Wording:
    """Translate a chat completion request into a Converse request to ``model``, without its name.

    A Claude thinks as in its own API: the fields for that are passed through Bedrock to the model. Other models are
    told an effort. A temperature or top_p of 1, the default, is not sent: newer Claudes refuse any value.

    Raises:
        Malformed: the request is not valid in chat.

    """
    losses = Losses()
    asked = {name: value for name, value in fields.items() if not is_null(value)}
    given = objects_at(asked.get("messages"), "messages")
    if not given:
        raise Malformed("'messages' must have at least one message", "messages")
    conversation = Conversation(losses)
    conversation.read(given)
    if not conversation.turns:
        losses.add("messages", "Converse needs more than a system prompt")
    said: Object = {"messages": conversation.turns}
    if conversation.system:
        said["system"] = conversation.system
    said |= _tools(asked, losses, conversation)
    inference, output, extra = _inference(asked, losses), _form(asked, losses), {}
    effort = decoded(asked.get("reasoning_effort"), str, "reasoning_effort")
    if _CLAUDE in model:
        extra = _claude(model, effort, inference, losses, said)
    elif effort not in {None, "none"}:
        output["effort"] = "low" if effort == "minimal" else effort
    if "top_k" in asked:
        if _CLAUDE in model and "thinking" not in extra and _habits(model).sampling != "none":
            extra["top_k"] = asked["top_k"]
        else:
            losses.add("top_k", "Converse has no top_k for this model")
    own = {"inferenceConfig": inference, "outputConfig": output, "additionalModelRequestFields": extra}
    said |= {name: value for name, value in own.items() if value}
    said |= _tier(asked, losses)
    lose_stream_options(asked, losses, _NO_FIELD)
    for name, value in asked.items():
        if name not in _TRANSLATED and bytes(value) not in _DEFAULTS.get(name, ()):
            losses.add(name, _REASONS.get(name, _NO_FIELD), hint=name in _HINTS)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.met())


def _tier(asked: RawObject, losses: Losses) -> Object:
    tier = decoded(asked.get("service_tier"), str, "service_tier")
    if tier in _TIERS:
        return {"serviceTier": {"type": tier}}
    if tier not in {None, "auto"}:
        losses.add("service_tier", f"Converse has no service tier {tier!r}", hint=True)
    return {}


def _inference(asked: RawObject, losses: Losses) -> Object:
    said: Object = {}
    old = decoded(asked.get("max_tokens"), int, "max_tokens")
    new = decoded(asked.get("max_completion_tokens"), int, "max_completion_tokens")
    if new is not None and old is not None and old != new:
        losses.add("max_tokens", "Converse has one limit, and max_completion_tokens is it")
    limit = old if new is None else new
    if limit is not None:
        if limit < 1:
            raise Malformed("'max_completion_tokens' must be at least 1", "max_completion_tokens")
        said["maxTokens"] = limit
    for name, own in (("temperature", "temperature"), ("top_p", "topP")):
        value = decoded(asked.get(name), float, name)
        if value is None or value == 1:
            continue
        if name == "temperature" and value > _MOST_TEMPERATURE:
            losses.add(name, "Converse has no temperature over 1")
        else:
            said[own] = asked[name]
    if "stop" in asked:
        one = is_string(asked["stop"])
        stops = [decoded(asked["stop"], str, "stop")] if one else decoded(asked["stop"], list[str], "stop")
        if kept := [stop for stop in stops if stop]:
            said["stopSequences"] = kept
    return said


def _claude(model: str, effort: str | None, inference: Object, losses: Losses, said: Object) -> Object:
    """Return the fields of Messages for a Claude; sampling that it refuses is taken out of ``inference``."""
    habits = _habits(model)
    limit = inference.get("maxTokens")
    within = {"max_tokens": limit or habits.max_tokens, "messages": _as_messages(said["messages"])}
    if said.get("toolConfig", {}).get("toolChoice", {}).keys() & {"any", "tool"}:
        within["tool_choice"] = {"type": "any"}
    adaptive, always = habits.adaptive_thinking, habits.always_thinks
    thinking = thinking_of_effort(effort, within, losses, adaptive=adaptive, limited=limit is not None, always=always)
    if "max_tokens" in thinking:
        inference["maxTokens"] = thinking.pop("max_tokens")
    thinks = thinking.get("thinking", {}).get("type") in {"enabled", "adaptive"}
    for name, own in (("top_p", "topP"), ("temperature", "temperature")):
        if own not in inference:
            continue
        if habits.sampling == "none" or thinks:
            losses.add(name, "this model takes none while it thinks" if thinks else f"this model takes no {name}")
            del inference[own]
        elif habits.sampling == "one" and own == "topP" and "temperature" in inference:
            losses.add(name, "this model takes a temperature or a top_p, not both")
            del inference[own]
    return thinking


def _habits(model: str) -> MessagesHabits:
    return of_messages(habits_of(model, None, _KNOWN))


def _as_messages(turns: list[Object]) -> list[Object]:
    """Return the last turn as ``thinking_of_effort`` reads it: whether it answers tools' calls."""
    answers = bool(turns) and any("toolResult" in block for block in turns[-1]["content"])
    return [{"content": [{"type": "tool_result"}] if answers else []}]


def _tools(asked: RawObject, losses: Losses, conversation: Conversation) -> Object:
    tools: list[Object] = []
    for number, tool in enumerate(objects_at(asked.get("tools"), "tools")):
        tools += _tool(tool, f"tools[{number}]", losses)
    choice = _tool_choice(asked, losses)
    if not tools:
        if choice not in (None, _AUTO):
            losses.add("tool_choice", "Converse chooses among tools only")
        if not conversation.called:
            if conversation.has_results:
                losses.add("tools", "Converse needs the tools that were called before, and no call names them")
            return {}
        losses.add("tools", "Converse needs the tools that were called before, so they are offered again", hint=True)
        schema: Object = {"type": "object", "properties": {}}
        specs = [{"name": name, "inputSchema": {"json": schema}} for name in conversation.called.values()]
        return {"toolConfig": {"tools": [{"toolSpec": spec} for spec in specs]}}
    if choice is None and "tool_choice" in asked:  # none
        if not (conversation.called or conversation.has_results):
            return {}
        losses.add("tool_choice", "Converse cannot forbid tools that were called before", hint=True)
    return {"toolConfig": {"tools": tools, **({"toolChoice": choice} if choice not in (None, _AUTO) else {})}}


def _tool(tool: RawObject, path: str, losses: Losses) -> list[Object]:
    kind = text_at(tool, "type", path)
    if kind != "function":
        losses.add(path, f"Converse has no tool of type {kind!r}")
        return []
    at = f"{path}.function"
    function = object_at(tool.get("function"), at)
    schema: Object = dict(object_at(function.get("parameters"), f"{at}.parameters"))
    if "type" not in schema:  # required by Bedrock, and implied in chat
        schema = {"type": "object", **schema}
    spec: Object = {"name": raw_text_at(function, "name", at)}
    if bytes(function.get("description", b"null")) not in {b"null", b'""'}:
        spec["description"] = function["description"]
    spec["inputSchema"] = {"json": schema}
    if bytes(function.get("strict", b"null")) == b"true":
        spec["strict"] = True
    losses.rest(tool, ("type", "function", "cache_control"), path, _NO_FIELD)
    losses.rest(function, ("name", "description", "parameters", "strict"), at, _NO_FIELD)
    is_marked = "cache_control" in tool and not is_null(tool["cache_control"])
    return [{"toolSpec": spec}, *([_CACHE_POINT] if is_marked else [])]


_AUTO: Object = {"auto": {}}


def _tool_choice(asked: RawObject, losses: Losses) -> Object | None:
    """Return the choice in Converse; None where there is none, or no tool may be called."""
    given = asked.get("tool_choice")
    if given is None:
        return None
    if is_string(given):
        word = decoded(given, str, "tool_choice")
        if word not in {"auto", "none", "required"}:
            raise Malformed("'tool_choice' must be none, auto, required or a tool", "tool_choice")
        return {"any": {}} if word == "required" else _AUTO if word == "auto" else None
    choice = object_at(given, "tool_choice")
    if text_at(choice, "type", "tool_choice") != "function":
        losses.add("tool_choice", "Converse can choose one tool, any or all")
        return _AUTO
    function = object_at(choice.get("function"), "tool_choice.function")
    return {"tool": {"name": raw_text_at(function, "name", "tool_choice.function")}}


def _form(asked: RawObject, losses: Losses) -> Object:
    form = object_at(asked.get("response_format"), "response_format")
    kind = text_at(form, "type", "response_format") if form else "text"
    if kind == "text":
        return {}
    if kind != "json_schema":
        losses.add("response_format", f"Converse answers as text or by a JSON schema, not as {kind!r}")
        return {}
    path = "response_format.json_schema"
    given = object_at(form.get("json_schema"), path)
    if "schema" not in given:
        losses.add(path, "Converse needs the schema itself")
        return {}
    losses.rest(given, ("name", "description", "schema", "strict"), path, _NO_FIELD)
    schema: Object = {"schema": bytes(given["schema"]).decode()}  # the JSON is in a string
    schema |= {name: given[name] for name in ("name", "description") if name in given and not is_null(given[name])}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
