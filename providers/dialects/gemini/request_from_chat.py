"""Translates a chat completion request into a Gemini request."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from providers.dialects.chat.deltas import googles_in
from providers.dialects.chat.forced_call import loses_format
from providers.dialects.chat.searches import SEARCH_FIELD, search_in
from providers.dialects.gemini.fields import HIGHER, IN_CONFIG, TIERS, UNSIGNED, is_said, kind_at, thinking_of
from providers.dialects.messages.fields import (
    DEFAULTS,
    arguments_at,
    budget_of,
    chosen_tool,
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
    GEMINIS,
    LEFT_OUT,
    OF_ANSWER,
    Losses,
    Malformed,
    Wording,
    as_users,
    decoded,
    is_null,
    is_string,
    raw_json,
    results_first,
)

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)
_API = "Gemini"
_NO_FIELD = f"{_API} has no such field"
_NOT_READ = "Gemini takes pictures and files in base64, or at addresses with https that end like one that it reads"
_INLINE_ONLY = "this model takes pictures and files inside of the request, in base64"


def signature_of(call: RawObject, at: str) -> str | None:
    """Return a chat message's or tool call's signature, in Google's field or in OpenRouter's; None: no signature."""
    extra = object_at(call.get("extra_content"), f"{at}.extra_content")
    google = object_at(extra.get("google"), f"{at}.extra_content.google")
    signature: str | None = decoded(
        google.get("thought_signature"), str, f"{at}.extra_content.google.thought_signature"
    )
    if signature is None and GEMINIS.encode() in bytes(call.get("reasoning_details", b"")):
        details = decoded(call["reasoning_details"], list[dict[str, Any]], f"{at}.reasoning_details")
        signature = googles_in({"reasoning_details": details}) or None
    return signature


class Calling(NamedTuple):
    """A call of a function in a chat conversation."""

    id: str
    name: msgspec.Raw
    arguments: Any
    signature: str | None


class GoogleConversation(ABC):
    """Reads a chat conversation for either of Google's APIs, whose turns differ."""

    api: ClassVar[str]

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._no_field = f"{self.api} has no such field"
        self._names: dict[str, msgspec.Raw] = {}  # names of functions, by the ids of their calls
        self._lost_calls: set[str] = set()  # ids of calls of tools that are no functions

    @abstractmethod
    def _add_system(self, message: RawObject, path: str) -> None: ...

    @abstractmethod
    def _add_user(self, parts: list[Object]) -> None: ...

    @abstractmethod
    def _add_assistant(self, message: RawObject, path: str) -> None: ...

    @abstractmethod
    def _add_result(self, message: RawObject, path: str) -> None: ...

    @abstractmethod
    def _text(self, text: msgspec.Raw) -> Object:
        """Return the part with a text."""

    @abstractmethod
    def _inline(self, kind: str, mime: str, data: str) -> Object:
        """Return the part with ``data`` in base64; ``kind`` is the type of chat's part."""

    @abstractmethod
    def _at_address(self, kind: str, url: str, path: str) -> list[Object]:
        """Return the part with the file at ``url``; no part, and a loss, if the API does not read such an address."""

    def _read(self, messages: Sequence[RawObject]) -> str:
        """Translate all messages of a request; return the last message's role.

        Raises:
            Malformed: a message is not valid in chat.

        """
        role = ""
        for number, message in results_first(messages):
            path = f"messages[{number}]"
            role = text_at(message, "role", path)
            if role in {"system", "developer"}:
                self._add_system(message, path)
            elif role == "user":
                self._losses.rest(message, ("role", "content"), path, self._no_field)
                if not is_said(message.get("content")):
                    raise Malformed(f"'{path}.content' is required", f"{path}.content")
                self._add_user(self._parts(message.get("content"), f"{path}.content"))
            elif role == "assistant":
                self._add_assistant(message, path)
            elif role == "tool":
                self._add_result(message, path)
            else:
                self._losses.add(path, f"{self.api} has no role {role!r}")
        if role == "assistant":
            last = f"messages[{len(messages) - 1}]"
            self._losses.add(last, f"{self.api} does not promise to continue a model's last turn")
        return role

    def _calling(self, call: RawObject, at: str) -> Calling | None:
        """Return what a call says; None, and a loss, if the called tool is no function."""
        if (decoded(call.get("type"), str, f"{at}.type") or "function") != "function":
            self._losses.add(at, f"{self.api} has functions only")
            self._lost_calls.add(text_at(call, "id", at))
            return None
        function = object_at(call.get("function"), f"{at}.function")
        arguments = arguments_at(function, f"{at}.function", self._losses, self.api)
        self._losses.rest(call, ("id", "type", "index", "function", "extra_content"), at, self._no_field)
        self._losses.rest(function, ("name", "arguments"), f"{at}.function", self._no_field)
        call_id, name = text_at(call, "id", at), raw_text_at(function, "name", f"{at}.function")
        self._names[call_id] = name
        return Calling(call_id, name, arguments, signature_of(call, at))

    def _answered(self, message: RawObject, path: str) -> str | None:
        """Return the id of the call that a result answers; None, and a loss, if the called tool is no function."""
        said = ("role", "content", "tool_call_id", "name", "is_error")  # the call has the name too
        self._losses.rest(message, said, path, self._no_field)
        call_id = text_at(message, "tool_call_id", path)
        if call_id in self._lost_calls:
            self._losses.add(path, f"{self.api} takes no result without its call")
            return None
        if call_id not in self._names:
            raise Malformed(f"'{path}.tool_call_id' is of no call before it", f"{path}.tool_call_id")
        return call_id

    def _parts(self, content: msgspec.Raw | None, path: str, *, texts_only: bool = False) -> list[Object]:
        if content is None or is_null(content):
            return []
        if is_string(content):
            return [self._text(content)] if bytes(memoryview(content)[:3]) != b'""' else []
        parts: list[Object] = []
        for number, part in enumerate(objects_at(content, path)):
            at = f"{path}[{number}]"
            kind = text_at(part, "type", at)
            if kind in {"text", "refusal"}:
                self._losses.rest(part, ("type", kind), at, self._no_field, repeated=OF_ANSWER)
                text = raw_text_at(part, kind, at)
                parts += [] if bytes(text) == b'""' else [self._text(text)]  # Google refuses an empty part
            elif texts_only:
                self._losses.add(at, f"this is text only in {self.api}")
            else:
                parts += self._media(part, kind, at)
        return parts

    def _media(self, part: RawObject, kind: str, at: str) -> list[Object]:
        path = f"{at}.{kind}"
        self._losses.rest(part, ("type", kind), at, self._no_field)
        inner = object_at(part.get(kind), path)
        if kind == "input_audio":
            self._losses.rest(inner, ("data", "format"), path, self._no_field)
            data, form = text_at(inner, "data", path), text_at(inner, "format", path)
            return [self._inline(kind, f"audio/{form}", data)]
        if kind == "image_url":
            self._losses.rest(inner, ("url", "detail"), path, self._no_field)
            if bytes(inner.get("detail", b"null")) not in {b"null", b'"auto"'}:
                reason = f"{self.api} has another scale for the details of pictures"
                self._losses.add(f"{path}.detail", reason, hint=True)
            url = text_at(inner, "url", path)
        elif kind == "file":
            said = ("file_data", "file_url", "filename")
            self._losses.rest(inner, said, path, "Google has no access to OpenAI's files")
            if is_said(inner.get("filename")):
                self._losses.add(f"{path}.filename", f"{self.api} takes no names of files", hint=True)
            address = decoded(inner.get("file_url"), str, f"{path}.file_url")
            url = address or decoded(inner.get("file_data"), str, f"{path}.file_data") or ""
        else:
            self._losses.add(at, f"{self.api} has no such part")
            return []
        found = _DATA_URL.fullmatch(url)
        if found is None:
            return self._at_address(kind, url, path)
        return [self._inline(kind, found[1].replace("image/jpg", "image/jpeg"), found[2])]


class _Conversation(GoogleConversation):
    """The turns so far, and the system prompt's parts."""

    api = _API

    def __init__(self, losses: Losses, *, shows_results: bool, reads_addresses: bool) -> None:
        """``shows_results``: results of functions may have pictures."""
        super().__init__(losses)
        self.shows_results = shows_results
        self.reads_addresses = reads_addresses
        self.system: list[Object] = []
        self.turns: list[Object] = []
        self._answers_tools = False  # the last turn has only functions' answers

    def read(self, messages: Sequence[RawObject]) -> None:
        """Translate all messages of a request.

        Raises:
            Malformed: a message is not valid in chat.

        """
        role = self._read(messages)
        if self.turns and self.turns[0]["role"] == "model":
            self.turns.insert(0, {"role": "user", "parts": [{"text": LEFT_OUT}]})
        if role != "assistant" and self.turns and self.turns[-1]["role"] == "model":  # the last message is blank
            self._add_user([{"text": LEFT_OUT}])

    def _add_user(self, parts: list[Object]) -> None:
        self._add("user", parts)

    def _add(self, role: str, parts: list[Object]) -> None:
        self._answers_tools = False
        if not parts:
            return
        last = self.turns[-1] if self.turns else {}
        if role == last.get("role") == "model" and not any("functionCall" in part for part in last["parts"]):
            last["parts"] += parts  # a call comes behind a turn of the user, or in the same turn as the texts before it
            return
        self.turns.append({"role": role, "parts": parts})

    def _add_system(self, message: RawObject, path: str) -> None:
        self._losses.rest(message, ("role", "content"), path, self._no_field)
        parts = self._parts(message.get("content"), f"{path}.content", texts_only=True)
        if not self.turns:
            self.system += parts
            return
        reason = "Gemini takes a system prompt only first: this one goes into the user's turn, in <system> tags"
        self._losses.add(f"{path}.role", reason, hint=True)
        for part in parts:
            part["text"] = as_users(decoded(raw_json(part["text"]), str, path))
        self._add("user", parts)

    def _add_assistant(self, message: RawObject, path: str) -> None:
        content, signature = message.get("content"), signature_of(message, path)
        lose_rest_of_answer(
            message,
            path,
            self._losses,
            said=("role", "content", "tool_calls", "refusal", "extra_content"),
            thoughts=() if signature is None else ("reasoning_details",),
            unsigned="Gemini takes no thoughts that it did not sign",
            api="Gemini",
        )
        parts = self._parts(content, f"{path}.content") if is_said(content) else []
        if is_string(message.get("refusal")):
            parts.append({"text": message["refusal"]})
        if parts and signature is not None:
            parts[-1]["thoughtSignature"] = signature
        calls: list[Object] = []
        for number, call in enumerate(objects_at(message.get("tool_calls"), f"{path}.tool_calls")):
            calls += self._call(call, f"{path}.tool_calls[{number}]")
        if calls and not any("thoughtSignature" in call for call in calls):
            calls[0]["thoughtSignature"] = UNSIGNED if parts or signature is None else signature
        self._add("model", parts + calls)

    def _call(self, call: RawObject, at: str) -> list[Object]:
        calling = self._calling(call, at)
        if calling is None:
            return []
        part: Object = {"functionCall": {"id": calling.id, "name": calling.name, "args": calling.arguments}}
        return [part if calling.signature is None else {**part, "thoughtSignature": calling.signature}]

    def _add_result(self, message: RawObject, path: str) -> None:
        call_id = self._answered(message, path)
        if call_id is None:
            return
        content, shown = message.get("content"), list[Object]()
        if is_string(content):
            output: Any = content
        else:
            parts = self._parts(content, f"{path}.content", texts_only=not self.shows_results)
            shown = [part for part in parts if "text" not in part]
            output = "".join(decoded(raw_json(part["text"]), str, path) for part in parts if "text" in part)
        told = {"error" if is_error(message, path) else "output": output}
        response = {"id": call_id, "name": self._names[call_id], "response": told}
        if shown:
            response["parts"] = shown
        if not self._answers_tools:
            self._add("user", [{"functionResponse": response}])
            self._answers_tools = True
        else:
            self.turns[-1]["parts"].append({"functionResponse": response})

    def _text(self, text: msgspec.Raw) -> Object:
        return {"text": text}

    def _inline(self, kind: str, mime: str, data: str) -> Object:  # noqa: ARG002 - Interactions has the kind
        return {"inlineData": {"mimeType": mime, "data": data}}

    def _at_address(self, kind: str, url: str, path: str) -> list[Object]:  # noqa: ARG002 - Interactions has the kind
        mime = kind_at(url) if self.reads_addresses else None
        if mime is not None:
            return [{"fileData": {"mimeType": mime, "fileUri": url}}]
        self._losses.add(path, _NOT_READ if self.reads_addresses else _INLINE_ONLY)
        return []


_SAME: Mapping[str, str] = {  # Gemini's names by chat's names
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",  # servers of open models have this field in chat
    "n": "candidateCount",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "seed": "seed",
}
_PENALTIES = frozenset({"presence_penalty", "frequency_penalty"})
_READ = frozenset({
    *_SAME,
    *("max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls", "reasoning_effort"),
    *("response_format", "service_tier", "shows_thoughts", "stop", "store", "stream", "stream_options", "tool_choice"),
    "tools",
})  # fmt: skip
_MOST_STOPS = 5  # stop sequences in Gemini
_HINTS: Mapping[str, str] = {
    "metadata": "Gemini has no metadata",
    "prediction": "Gemini takes no prediction",
    "prompt_cache_key": CACHE_REASON,
    "prompt_cache_options": CACHE_REASON,
    "prompt_cache_retention": CACHE_REASON,
    "user": "Gemini takes no name of a user",
}
_REASONS: Mapping[str, str] = {
    "audio": "answers in sound are not translated",
    "function_call": "Gemini has tools in place of functions",
    "functions": "Gemini has tools in place of functions",
    "logit_bias": "Gemini has no logit bias",
    "logprobs": "this model tells no log probabilities",
    "modalities": "answers in sound are not translated",
    "safety_identifier": "Gemini takes no name of a user",
    "top_logprobs": "this model tells no log probabilities",
    "verbosity": "Gemini has no verbosity",
    "web_search_options": "Gemini has its own search",
}


def from_chat(
    fields: Mapping[str, msgspec.Raw],
    *,
    levels: bool = True,
    least: str = "low",
    penalties: bool = False,
    addresses: bool = False,
    several: bool = True,
    logprobs: bool = False,
    searches: bool = False,
) -> Wording:
    """Translate a chat completion request into a Gemini request, whose parameters are as in ``fields.py``.

    ``levels``: the model takes a level of thinking, and not a budget. Models with levels also take functions and a
    format of the answer at once. ``least``: the lowest effort at which the model can think. ``penalties``: the model
    takes some penalties. ``addresses``: the model reads files at addresses. ``several``: the model gives several
    answers. ``logprobs``: the model tells log probabilities. ``searches``: the model searches the web, if the request
    has no functions: before Gemini 3 models refuse both together.

    Raises:
        Malformed: the request is not valid in chat.

    """
    losses = Losses()
    asked, given = request_of(fields)
    conversation = _Conversation(losses, shows_results=levels, reads_addresses=addresses)
    conversation.read(given)
    if not conversation.turns:
        losses.add("messages", "Gemini needs more than a system prompt")
    said: Object = {name: asked[name] for name in ("model", "stream") if name in asked}
    said["contents"] = conversation.turns
    if conversation.system:
        said["systemInstruction"] = {"parts": conversation.system}
    if not several and decoded(asked.get("n"), int, "n") not in {None, 1}:
        losses.add("n", "this model gives one answer")
        del asked["n"]
    said.update(_same(asked, losses, penalties=penalties))
    if logprobs and decoded(asked.pop("logprobs", None), bool, "logprobs"):
        said[IN_CONFIG + "responseLogprobs"] = True
        if most := decoded(asked.pop("top_logprobs", None), int, "top_logprobs"):
            said[IN_CONFIG + "logprobs"] = most
    said.update(_limit(asked, losses))
    said.update(_stops(asked, losses))
    said.update(_tier(asked, losses))
    if "store" in asked and decoded(asked["store"], bool, "store") is not None:
        said["store"] = asked["store"]
    said.update(_tools(asked, losses))
    if searches and "tools" not in said and search_in(asked, losses, {}):
        said["tools"] = [{"googleSearch": {}}]
        del asked[SEARCH_FIELD]
    said.update(_form(asked, losses, calls="tools" in said and not levels))
    said.update(_thinking(asked, losses, levels=levels, least=least))
    lose_stream_options(asked, losses, _NO_FIELD)
    for name, value in asked.items():
        if name not in _READ and bytes(value) not in DEFAULTS.get(name, ()):
            losses.add(name, _HINTS.get(name) or _REASONS.get(name, _NO_FIELD), hint=name in _HINTS)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.met())


def _same(asked: RawObject, losses: Losses, *, penalties: bool) -> Object:
    said: Object = {}
    for name, own in _SAME.items():
        if name in _PENALTIES and not penalties and decoded(asked.get(name), float, name):
            losses.add(name, "this model takes no penalties")
        elif name in asked:
            said[IN_CONFIG + own] = asked[name]
    return said


def _thinking(asked: RawObject, losses: Losses, *, levels: bool, least: str) -> Object:
    effort, budget = decoded(asked.get("reasoning_effort"), str, "reasoning_effort"), budget_of(asked)
    if effort is None:
        return {IN_CONFIG + "thinkingConfig": {"includeThoughts": True}} if levels and "shows_thoughts" in asked else {}
    thinking = thinking_of(effort, levels=levels, least=least, budget=budget)
    if thinking is None:
        losses.add("reasoning_effort", f"Gemini has no effort {effort!r}")
        return {}
    if effort == "none" and least != "none":
        losses.add("reasoning_effort", CANNOT_STOP_THINKING, hint=True)
    elif effort in HIGHER:
        losses.add("reasoning_effort", f"Gemini has no effort above {HIGHER[effort]!r}", hint=True)
    return {IN_CONFIG + "thinkingConfig": thinking}


def _limit(asked: RawObject, losses: Losses) -> Object:
    old = decoded(asked.get("max_tokens"), int, "max_tokens")
    new = decoded(asked.get("max_completion_tokens"), int, "max_completion_tokens")
    if new is not None and old is not None and old != new:
        losses.add("max_tokens", "Gemini has one limit, and max_completion_tokens is it")
    limit = old if new is None else new
    return {} if limit is None else {IN_CONFIG + "maxOutputTokens": limit}


def _stops(asked: RawObject, losses: Losses) -> Object:
    stops = stops_of(asked)
    if len(stops) > _MOST_STOPS:
        losses.add("stop", f"Gemini takes {_MOST_STOPS} stop sequences at most")
    return {IN_CONFIG + "stopSequences": stops[:_MOST_STOPS]} if stops else {}


def _tier(asked: RawObject, losses: Losses) -> Object:
    tier = decoded(asked.get("service_tier"), str, "service_tier")
    if tier in TIERS:
        return {"serviceTier": TIERS[tier]}
    if tier not in {None, "auto", "default"}:
        losses.add("service_tier", f"Gemini has no service tier {tier!r}")
    return {}


def functions_of(asked: RawObject, losses: Losses, api: str) -> Iterator[tuple[RawObject, str]]:
    """Yield the functions that a chat completion request offers, each with its path; other tools are losses."""
    for number, tool in enumerate(objects_at(asked.get("tools"), "tools")):
        path = f"tools[{number}]"
        kind = text_at(tool, "type", path)
        if kind != "function":
            losses.add(path, f"{api} has no tool of type {kind!r}")
            continue
        at = f"{path}.function"
        function = object_at(tool.get("function"), at)
        losses.rest(tool, ("type", "function"), path, f"{api} has no such field")
        losses.rest(function, ("name", "description", "parameters", "strict"), at, f"{api} has no such field")
        yield function, at


def _tools(asked: RawObject, losses: Losses) -> Object:
    declared: list[Object] = []
    strict = False
    for function, at in functions_of(asked, losses, _API):
        one: Object = {"name": raw_text_at(function, "name", at)}
        if is_said(function.get("description")):
            one["description"] = function["description"]
        if is_said(function.get("parameters")):
            one["parametersJsonSchema"] = function["parameters"]
        strict = strict or bytes(function.get("strict", b"null")) == b"true"
        declared.append(one)
    if not declared:
        if "tool_choice" in asked and bytes(asked["tool_choice"]) not in {b'"none"', b'"auto"'}:
            losses.add("tool_choice", "Gemini chooses among tools only")
        return {}
    decoded(asked.get("parallel_tool_calls"), bool, "parallel_tool_calls")  # the answer has the first of several calls
    config = _choice(asked, losses, strict=strict)
    tools: Object = {"tools": [{"functionDeclarations": declared}]}
    return {**tools, "toolConfig": {"functionCallingConfig": config}} if config else tools


def _choice(asked: RawObject, losses: Losses, *, strict: bool) -> Object:
    chosen = chosen_tool(asked)
    if isinstance(chosen, msgspec.Raw):
        return {"mode": "ANY", "allowedFunctionNames": [chosen]}
    if chosen is None and "tool_choice" in asked:
        if names := _names_among(object_at(asked["tool_choice"], "tool_choice")):
            # Google takes names only beside these two modes (ai.google.dev/api/caching#FunctionCallingConfig).
            return {"mode": "VALIDATED" if names[0] == "auto" else "ANY", "allowedFunctionNames": names[1]}
        losses.add("tool_choice", "Gemini chooses among functions, by their names")
        return {}
    if chosen in (None, "auto"):
        return {"mode": "VALIDATED"} if strict else {}  # in mode AUTO a call need not match its schema
    return {"mode": "ANY" if chosen == "required" else "NONE"}


def _names_among(choice: RawObject) -> tuple[str, list[msgspec.Raw]] | None:
    """Return the mode and the functions of a choice among several tools; None: no such choice, or of other tools."""
    path = "tool_choice.allowed_tools"
    if text_at(choice, "type", "tool_choice") != "allowed_tools":
        return None
    allowed = object_at(choice.get("allowed_tools"), path)
    tools = objects_at(allowed.get("tools"), f"{path}.tools")
    mode = text_at(allowed, "mode", path)
    functions = [object_at(tool["function"], f"{path}.tools") for tool in tools if "function" in tool]
    names = [raw_text_at(function, "name", f"{path}.tools") for function in functions]
    return (mode, names) if names and mode in {"auto", "required"} else None


def _form(asked: RawObject, losses: Losses, *, calls: bool) -> Object:
    """Return the fields for the format; ``calls``: there are functions, beside which this model takes no format."""
    form = object_at(asked.get("response_format"), "response_format")
    kind = text_at(form, "type", "response_format") if form else "text"
    json = {IN_CONFIG + "responseMimeType": "application/json"}
    if kind == "text":
        return {}
    if calls:
        if not loses_format(asked, losses):
            losses.add("response_format", "this model calls functions or answers as JSON, not both")
        return {}
    if kind == "json_object":
        return json
    if kind != "json_schema":
        losses.add("response_format", f"Gemini does not answer as {kind!r}")
        return {}
    path = "response_format.json_schema"
    given = object_at(form.get("json_schema"), path)
    losses.rest(given, ("name", "description", "schema", "strict"), path, _NO_FIELD)
    return {**json, IN_CONFIG + "responseJsonSchema": given["schema"]} if "schema" in given else json
