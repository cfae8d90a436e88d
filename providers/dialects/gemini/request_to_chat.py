"""Translates a Gemini request into a chat completion request."""

import base64
import binascii
from collections.abc import Container, Mapping
from typing import Any

import msgspec

from providers.bodies import encoded
from providers.dialects.gemini.fields import (
    IN_CONFIG,
    TIERS,
    effort_of,
    is_said,
    listed_at,
    name_in_chat,
    plain_base64,
    read_json_schema,
    spelt_at,
)
from providers.dialects.gemini.own_tools import COMPUTER, functions_of
from providers.dialects.reading import Object, RawObject, present, raw_text_at, text_at
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
    as_strict,
    blocks_within,
    decoded,
    extra_content,
    is_null,
    is_string,
    one_text,
    raw_json,
    results_first,
    short_name,
    shown,
    shows_results,
    signer_of,
    with_properties,
)
from providers.refusals import UNREADABLE

_NO_FIELD = "chat has no such field"
_NO_PART = "chat has no such part"
_OWN_THOUGHTS = "chat has no earlier thoughts: only the model that had them can use them"
_SIGNATURE = "chat has no signatures of thoughts: only the model that signed them can use them"
_SOUNDS: Mapping[str, str] = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}
# Parts of Google's own tools in earlier answers, and the transcript of a spoken answer: another model goes on without
# these.
_OF_GOOGLE = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse", "audioTranscription"})
# Fields of any object that change no answer, or only how Google's model looks at the object: google-genai 3.6,
# types.py.
_CHANGING_NOTHING: Mapping[str, str] = {**CHANGING_NOTHING} | dict.fromkeys(
    (
        *("speechMetadata", "documentMetadata", "spreadsheetMetadata", "audioMetadata", "partMetadata"),
        *("mediaProcessing", "scheduling", "willContinue", "streamFunctionCallArguments"),
    ),
    _NO_FIELD,
)
_TRUE = msgspec.Raw(b"true")
_OUTPUTS = ("output", "result")  # the only field of a textual answer: Google's word, and that of Google's SDK


def name_of_function(name: str) -> str:
    """Return a function's name as chat has it."""
    return short_name(name_in_chat(name))


class _Conversation:
    """The messages so far. A function's answer without an id belongs to the first open call of that function."""

    def __init__(self, losses: Losses, *, thoughts: bool, signed: str, elsewhere: bool) -> None:
        """``thoughts``: keep earlier thoughts. ``signed``: keep the thoughts that this vendor has signed.

        ``elsewhere``: turns before these are in Google's cache.
        """
        self._ids = HistoryCalls(elsewhere=elsewhere)
        self._given: set[str] = set()  # ids that the client has set
        self.said: list[Object] = []
        self._losses = losses
        self._thoughts = thoughts
        self._signed = signed
        self._waiting: Object = {}  # thoughts of a turn that has nothing else, for the model's next turn
        self._blocks_are_kept = False  # the blocks of Anthropic's models have all thoughts
        self._open: list[tuple[str, str]] = []  # names and ids of calls without an answer
        self._calls = 0

    def read(self, contents: list[RawObject], *, has_blocks: bool) -> None:
        """Translate all turns; ``has_blocks``: a turn has thoughts that Anthropic's models have signed.

        Raises:
            Malformed: a turn is not valid in Gemini.

        """
        self._blocks_are_kept = has_blocks and self._signed not in {"", GOOGLE}
        role = ""
        for number, turn in enumerate(contents):
            path = f"contents[{number}]"
            role = decoded(turn.get("role"), str, f"{path}.role") or "user"
            self._losses.rest(turn, ("role", "parts"), path, _NO_FIELD)
            parts = listed_at(turn.get("parts"), f"{path}.parts")
            if role == "model":
                self._model(parts, f"{path}.parts")
            elif role in {"user", "function"}:
                self._user(parts, f"{path}.parts")
            else:
                raise Malformed(f"'{path}.role' must be 'user' or 'model'", f"{path}.role")
        for message in self.said:
            if message["role"] == "assistant":
                _join(message)
        if role == "model":
            last = f"contents[{len(contents) - 1}]"
            self._losses.add(last, "chat answers a model's last turn, and does not continue it")

    def _user(self, parts: list[RawObject], path: str) -> None:
        self._waiting = {}
        shown_by_tools: list[Object] = []
        content: list[Object] = []
        places: list[str] = []
        for number, part in enumerate(parts):
            at = f"{path}[{number}]"
            if is_said(part.get("functionResponse")):
                self.said.append(self._losses.places.put(self._result(part, at, shown_by_tools), at))
            else:
                content += parts_of(part, at, self._losses)
                places += [at] * (len(content) - len(places))
        if content := shown_by_tools + content:
            places = [path] * len(shown_by_tools) + places
            message: Object = {"role": "user", "content": _content(content)}
            self.said.append(self._losses.places.put(message, places[0] if len(places) == 1 else path, places))

    def _model(self, parts: list[RawObject], path: str) -> None:
        texts: list[str] = []
        calls: list[Object] = []
        kept, self._waiting = self._waiting, {}  # thoughts that only their maker can read
        # Google's SDKs keep a stream as one turn for each piece, and the last turn is often empty. All these turns are
        # one message of chat: nothing may stand between calls and their results.
        goes_on = bool(self.said) and self.said[-1]["role"] == "assistant"
        if not goes_on:
            self._ids.begin_turn()
        for number, part in enumerate(parts):
            at = f"{path}[{number}]"
            signature = self._signature(part, at, kept)
            if is_said(part.get("functionCall")):
                calls.append(self._call(part, at) | signature)
                continue
            kept |= signature
            texts += self._text(part, at, kept)
        if texts or calls or (kept and goes_on):
            if not goes_on:
                self.said.append({"role": "assistant", "content": []})
            self._add(self._losses.places.put(self.said[-1], path), texts, calls, kept)
        else:
            self._waiting = kept

    def _text(self, part: RawObject, at: str, kept: Object) -> list[str]:
        """Return the text of a part of the model's turn; add thoughts to ``kept``."""
        if not is_said(part.get("text")):
            if not part.keys() <= {"thoughtSignature", "thought"}:
                self._losses.add(at, _NO_PART, hint=not _OF_GOOGLE.isdisjoint(part))
        elif not decoded(part.get("thought"), bool, f"{at}.thought"):
            self._losses.rest(part, ("text", "thought", "thoughtSignature"), at, _NO_FIELD)
            return [text_at(part, "text", at)]
        elif self._thoughts:
            kept.setdefault("reasoning_content", []).append(text_at(part, "text", at))
        elif not self._blocks_are_kept:
            self._losses.add(at, _OWN_THOUGHTS, hint=True)
        return []

    def _signature(self, part: RawObject, at: str, kept: Object) -> Object:
        """Return chat's field for a part's signature, if that is Google's; add Anthropic's blocks to ``kept``."""
        raw = part.get("thoughtSignature")
        if not is_said(raw):
            return {}
        signature = text_at(part, "thoughtSignature", at) if is_string(raw) else ""
        if blocks := blocks_within(signature):
            if own := [block for block in blocks if signer_of(block) == self._signed]:
                kept.setdefault("thinking_blocks", []).extend(own)
                return {}
        elif signature and self._signed == GOOGLE:
            return extra_content(signature)
        self._losses.add(f"{at}.thoughtSignature", _SIGNATURE, hint=True)
        return {}

    @staticmethod
    def _add(message: Object, texts: list[str], calls: list[Object], kept: Object) -> None:
        """Add the model's text to its message; texts are joined once all turns are read."""
        message["content"] += texts
        for name, told in kept.items():
            if isinstance(told, list):
                message.setdefault(name, []).extend(told)
            else:
                message[name] = told
        if calls:
            message.setdefault("tool_calls", []).extend(calls)

    def _call(self, part: RawObject, at: str) -> Object:
        path = f"{at}.functionCall"
        call = spelt_at(part["functionCall"], path)
        name = text_at(call, "name", path)
        call_id = decoded(call.get("id"), str, f"{path}.id")
        if call_id:
            self._given.add(call_id)
        call_id = call_id or self._made_id()
        self._calls += 1
        self._ids.add(call_id, f"{path}.id")
        self._open.append((name, call_id))
        arguments = call.get("args")
        written = "{}" if arguments is None or is_null(arguments) else bytes(arguments).decode()
        if not written.startswith("{"):
            raise Malformed(f"'{path}.args' must be an object", f"{path}.args")
        self._losses.lose(call, "partialArgs", path, "chat has arguments as a whole", b"[]", hint=arguments is not None)
        self._losses.rest(call, ("id", "name", "args", "partialArgs"), path, _NO_FIELD)
        self._losses.rest(part, ("functionCall", "thoughtSignature", "thought"), at, _NO_FIELD)
        return {"id": call_id, "type": "function", "function": {"name": name_of_function(name), "arguments": written}}

    def _made_id(self) -> str:
        """Return an id for the next call, which came without an id."""
        while (made := f"call_{self._calls}") in self._given:
            self._calls += 1
        return made

    def _result(self, part: RawObject, at: str, shown_by_tools: list[Object]) -> Object:
        path = f"{at}.functionResponse"
        response = spelt_at(part["functionResponse"], path)
        name = text_at(response, "name", path)
        call_id = decoded(response.get("id"), str, f"{path}.id")
        if call_id in self._given:
            found = next((each for each in self._open if each[1] == call_id), None)
        else:  # if no call has the id, the client has left out the id of the call
            without = [each for each in self._open if each[0] == name and not (call_id and each[1] in self._given)]
            found = without[0] if without else None
        if found is not None:
            self._open.remove(found)
            call_id = found[1]
        if call_id:
            self._ids.answer(call_id, f"{path}.id")
        elif self._ids.elsewhere:
            call_id = self._made_id()
        else:
            raise Malformed(f"'{path}' answers {name!r}, which was not called before, or has an answer", path)
        told = spelt_at(response.get("response"), f"{path}.response")
        keeps = "results" in self._losses.beyond
        failed = {"is_error": True} if keeps and len(told) == 1 and is_string(told.get("error")) else {}
        content = _text_of({"output": told["error"]} if failed else told, f"{path}.response")
        own: list[Object] = []
        for number, item in enumerate(listed_at(response.get("parts"), f"{path}.parts")):
            inner = f"{path}.parts[{number}]"
            more = parts_of(item, inner, self._losses)
            if shows_results(self._losses):
                own += more
            elif more:
                self._losses.add(inner, SHOWN_LATER, hint=True)
                shown_by_tools += [{"type": "text", "text": shown(call_id)}, *more]
                content = f"{content}\n{SEE_BELOW}"
        self._losses.rest(response, ("id", "name", "response", "parts"), path, _NO_FIELD)
        self._losses.rest(part, ("functionResponse",), at, _NO_FIELD)
        whole = [{"type": "text", "text": content}, *own] if own else content
        return {"role": "tool", "tool_call_id": call_id, "content": whole, **failed}


def _join(message: Object) -> None:
    """Join the texts of a message of the model."""
    message["content"] = "".join(message["content"]) or (None if "tool_calls" in message else "")
    if "reasoning_content" in message:
        message["reasoning_content"] = "".join(message["reasoning_content"])


def _text_of(response: RawObject, path: str) -> str:
    """Return a function's answer as text: only the text if the answer has nothing else; an error as an error."""
    if len(response) == 1:
        for name in _OUTPUTS:
            if is_string(response.get(name)):
                return text_at(response, name, path)
        if is_string(response.get("error")):
            return f"Error: {text_at(response, 'error', path)}"
    return encoded(response).decode()


def parts_of(part: RawObject, at: str, losses: Losses) -> list[Object]:
    """Return chat's parts for a part of a user's turn."""
    if is_said(part.get("text")):
        losses.rest(part, ("text",), at, _NO_FIELD)
        return [{"type": "text", "text": raw_text_at(part, "text", at)}]
    for name, read in (("inlineData", _inline), ("fileData", _file)):
        if is_said(part.get(name)):
            losses.rest(part, (name,), at, _NO_FIELD)
            return read(spelt_at(part[name], f"{at}.{name}"), f"{at}.{name}", losses)
    losses.add(at, _NO_PART)
    return []


def _inline(data: RawObject, at: str, losses: Losses) -> list[Object]:
    kind = text_at(data, "mimeType", at).lower()
    encoded = plain_base64(text_at(data, "data", at))
    url = f"data:{kind};base64,{encoded}"
    losses.rest(data, ("mimeType", "data", "displayName"), at, _NO_FIELD)
    if kind != "application/pdf":
        _lose_name(data, at, losses)
    if kind.startswith("image/"):
        return [{"type": "image_url", "image_url": {"url": url}}]
    if kind in _SOUNDS:
        return [{"type": "input_audio", "input_audio": {"data": encoded, "format": _SOUNDS[kind]}}]
    if kind == "application/pdf":
        name = decoded(data.get("displayName"), str, f"{at}.displayName") or "document.pdf"
        return [{"type": "file", "file": {"filename": name, "file_data": url}}]
    if kind.startswith("text/"):
        try:
            return [{"type": "text", "text": base64.b64decode(encoded, validate=True).decode()}]
        except (binascii.Error, UnicodeDecodeError):
            raise Malformed(f"'{at}.data' is not base64 text", f"{at}.data") from None
    losses.add(at, f"chat takes no {kind}")
    return []


def _lose_name(data: RawObject, at: str, losses: Losses) -> None:
    if is_said(data.get("displayName")):
        losses.add(f"{at}.displayName", "chat has names of documents only", hint=True)


def _file(data: RawObject, at: str, losses: Losses) -> list[Object]:
    kind = decoded(data.get("mimeType"), str, f"{at}.mimeType") or ""
    url = text_at(data, "fileUri", at)
    is_public = url.startswith("https://") and "generativelanguage.googleapis.com" not in url
    losses.rest(data, ("mimeType", "fileUri", "displayName"), at, _NO_FIELD)
    if is_public and kind == "application/pdf" and "addresses" in losses.beyond:
        named = {"filename": data["displayName"]} if is_said(data.get("displayName")) else {}
        return [{"type": "file", "file": {"file_url": url, **named}}]
    if is_public and kind.startswith("image/"):
        _lose_name(data, at, losses)
        return [{"type": "image_url", "image_url": {"url": url}}]
    losses.add(at, "chat takes pictures by their address, and no files of Google's")
    return []


def _content(parts: list[Object]) -> object:
    """Return parts as a message's content; a single text as a string, which every server accepts."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


_SAME: Mapping[str, str] = {  # chat's names of the parameters that both APIs have
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_completion_tokens",
    "candidateCount": "n",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "seed": "seed",
}
_MOST_STOPS = 4  # stop sequences in chat
_READ = frozenset({
    *("contents", "model", "safetySettings", "serviceTier", "stream", "systemInstruction", "toolConfig", "tools"),
    *(IN_CONFIG + name for name in _SAME),
    *(IN_CONFIG + name for name in ("responseJsonSchema", "responseMimeType", "responseSchema", "stopSequences")),
    IN_CONFIG + "thinkingConfig",
})  # fmt: skip
_DEFAULTS: Mapping[str, tuple[bytes, ...]] = {  # values that are the default
    IN_CONFIG + "responseModalities": (b'["TEXT"]', b'[ "TEXT" ]', b"[]"),
    "labels": (b"{}",),
    "store": (b"false",),  # chat's default
}
_HINTS: Mapping[str, str] = {
    IN_CONFIG + "mediaResolution": "chat has another scale for the details of pictures",
    "labels": "chat has no labels",
}
_REASONS: Mapping[str, str] = {
    IN_CONFIG + "topK": "chat has no top_k",
    IN_CONFIG + "logprobs": "likely tokens are returned only if responseLogprobs is true",
    IN_CONFIG + "responseModalities": "chat answers in text",
    IN_CONFIG + "speechConfig": "chat answers in text",
    "cachedContent": "only Google has what it keeps in its cache",
}
_LETS_ALL_PASS = frozenset({"BLOCK_NONE", "OFF"})
_CHOICES: Mapping[str, str] = {
    "AUTO": "auto",
    "MODE_UNSPECIFIED": "auto",
    "VALIDATED": "auto",  # calls must match the schemas; in chat each tool demands that
    "ANY": "required",
    "NONE": "none",
}


def to_chat(
    fields: Mapping[str, msgspec.Raw], *, thoughts: bool = False, signed: str = "", beyond: Container[str] = ()
) -> Wording:
    """Translate a Gemini request into a chat completion request.

    With ``thoughts``, earlier thoughts are sent as ``reasoning_content``. The vendor ``signed`` gets back the thoughts
    that it has signed. Parts ``beyond`` chat are kept in the pivot's own fields. A budget of thoughts becomes an
    effort.

    Raises:
        Malformed: the request is not valid in Gemini.

    """
    losses = Losses(beyond=beyond, changing_nothing=_CHANGING_NOTHING)
    asked = present(fields)
    conversation = _Conversation(losses, thoughts=thoughts, signed=signed, elsewhere="cachedContent" in asked)
    if system := _system(asked, losses):
        message: Object = {"role": "system", "content": _content(system)}
        conversation.said.append(losses.places.put(message, "systemInstruction"))
    contents = listed_at(asked.get("contents"), "contents")
    if not contents:
        raise Malformed("'contents' must have at least one turn", "contents")
    conversation.read(contents, has_blocks=OURS in bytes(asked["contents"]))
    chat: Object = {name: asked[name] for name in ("model", "stream") if name in asked}
    chat["messages"] = [message for _, message in results_first(conversation.said)]
    for name, chats in _SAME.items():
        if IN_CONFIG + name in asked:
            chat[chats] = asked[IN_CONFIG + name]
    chat.update(_stops(asked, losses))
    mode, names = _calling(asked, losses) if "toolConfig" in asked else ("AUTO", [])
    if tools := _tools(asked, losses, strict=mode == "VALIDATED"):
        chat.update(tools | _choice(mode, names))
    chat.update(_form(asked, losses))
    if chat.get("response_format") == _ANY_JSON and chat["messages"]:
        _say_json(chat["messages"], losses)
    chat.update(_effort(asked, losses))
    chat.update(_tier(asked, losses))
    chat.update(_logprobs(asked) if IN_CONFIG + "responseLogprobs" in asked else {})
    if "top_k" in beyond and IN_CONFIG + "topK" in asked:
        chat["top_k"] = asked.pop(IN_CONFIG + "topK")
    chat.update({"store": asked.pop("store")} if asked.get("store") == _TRUE else {})
    _safety(asked, losses)
    for name, value in asked.items():
        if name not in _READ and bytes(value) not in _DEFAULTS.get(name, ()):
            losses.add(name, _HINTS.get(name) or _REASONS.get(name, _NO_FIELD), hint=name in _HINTS)
    return losses.with_chat(chat)


def _system(asked: RawObject, losses: Losses) -> list[Object]:
    path = "systemInstruction"
    if is_string(asked.get(path)):  # Google's SDKs make an object of the text
        raise Malformed(f"{path!r} must be an object with 'parts'", path)
    parts: list[Object] = []
    instruction = spelt_at(asked.get(path), path)
    for number, part in enumerate(listed_at(instruction.get("parts"), f"{path}.parts")):
        at = f"{path}.parts[{number}]"
        for each in parts_of(part, at, losses):
            if each["type"] == "text":
                parts.append(each)
            else:
                losses.add(at, "a system prompt of chat is text")
    return parts


def _stops(asked: RawObject, losses: Losses) -> Object:
    path = IN_CONFIG + "stopSequences"
    stops = decoded(asked.get(path), list[str], path)
    if not stops:
        return {}
    if len(stops) > _MOST_STOPS:
        losses.add(path, f"chat takes {_MOST_STOPS} stop sequences at most")
    return {"stop": stops[:_MOST_STOPS]}


def _tools(asked: RawObject, losses: Losses, *, strict: bool) -> Object:
    said: list[Object] = []
    for number, tool in enumerate(listed_at(asked.get("tools"), "tools")):
        path = f"tools[{number}]"
        for name, value in tool.items():
            if name == COMPUTER and not is_null(value):
                said += _computer(tool, f"{path}.{name}", losses)
            elif name != "functionDeclarations" and not is_null(value):
                losses.add(f"{path}.{name}", f"chat has no tool {name!r}")
        for place, declared in enumerate(listed_at(tool.get("functionDeclarations"), f"{path}.functionDeclarations")):
            said.append(_function(declared, f"{path}.functionDeclarations[{place}]", losses, strict=strict))
    return {"tools": said} if said else {}


def _computer(tool: RawObject, path: str, losses: Losses) -> list[Object]:
    computer = spelt_at(tool[COMPUTER], path)
    environment = decoded(computer.get("environment"), str, f"{path}.environment") or ""
    named = "excludedPredefinedFunctions"
    excluded = decoded(computer.get(named), list[str], f"{path}.{named}") or []
    if not (functions := functions_of(environment, excluded)):
        losses.add(path, f"chat has no computer of {environment or 'no functions'}")
    losses.rest(computer, ("environment", named), path, _NO_FIELD)
    return [losses.places.put(each, path) for each in functions]


def _function(declared: RawObject, at: str, losses: Losses, *, strict: bool) -> Object:
    function: Object = {"name": name_of_function(text_at(declared, "name", at))}
    if is_said(declared.get("description")):
        function["description"] = declared["description"]
    if is_said(declared.get("parametersJsonSchema")):
        function["parameters"] = with_properties(declared["parametersJsonSchema"])
    elif is_said(declared.get("parameters")):
        schema = read_json_schema(declared["parameters"], f"{at}.parameters")
        function["parameters"] = with_properties(raw_json(schema))
    if strict and "parameters" in function:
        function["parameters"], function["strict"], lost = as_strict(function["parameters"], at)
        losses.note(lost)
    for name in ("response", "responseJsonSchema"):
        if is_said(declared.get(name)):
            losses.add(f"{at}.{name}", "chat has no schema of what a function returns", hint=True)
    known = ("name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema")
    losses.rest(declared, known, at, "chat's functions have no such field")
    return losses.places.put({"type": "function", "function": function}, at)


def _calling(asked: RawObject, losses: Losses) -> tuple[str, list[str]]:
    """Return the mode in which functions are called, and the names of those that may be called; none: all functions."""
    config = spelt_at(asked.get("toolConfig"), "toolConfig")
    losses.rest(config, ("functionCallingConfig",), "toolConfig", _NO_FIELD)
    path = "toolConfig.functionCallingConfig"
    calling = spelt_at(config.get("functionCallingConfig"), path)
    losses.rest(calling, ("mode", "allowedFunctionNames"), path, _NO_FIELD)
    mode = (decoded(calling.get("mode"), str, f"{path}.mode") or "AUTO").upper()
    names = decoded(calling.get("allowedFunctionNames"), list[str], f"{path}.allowedFunctionNames") or []
    if mode not in _CHOICES:
        raise Malformed(f"'{path}.mode' must be AUTO, ANY, NONE or VALIDATED", f"{path}.mode")
    return mode, [name_of_function(name) for name in names]


def _choice(mode: str, names: list[str]) -> Object:
    choice = _CHOICES[mode]
    functions = [{"type": "function", "function": {"name": name}} for name in names]
    if choice == "required" and len(functions) == 1:
        return {"tool_choice": functions[0]}
    if functions and choice != "none":
        return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": choice, "tools": functions}}}
    return {} if choice == "auto" else {"tool_choice": choice}


_ANY_JSON: Object = {"type": "json_object"}
_IN_JSON = "Answer in JSON."


def _say_json(messages: list[Object], losses: Losses) -> None:
    """Ask for JSON in words, if no message has the word: without it OpenAI and others refuse ``json_object``.

    OpenAI: "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."

    The words stand behind the user's last text, so that nothing before them changes: caches are found by the beginning
    of a prompt. While the answers are JSON, earlier requests asked for JSON as well. So the words stay where they were
    said first.
    """
    place, is_json, role = 0, False, ""
    for number, message in enumerate(messages):
        before, role = role, message["role"]
        if role == "user" and before != "tool":  # pictures of a result are no new turn
            place, is_json = place if is_json else number, False
        elif role == "assistant":
            is_json = _is_json(message)
    told = [text for message in messages[: place + 1] for text in _texts(message)]
    if any(b"json" in bytes(raw_json(text)).lower() for text in told):
        return
    path = IN_CONFIG + "responseMimeType"
    losses.add(path, "chat wants to hear the word JSON: it is told to answer in it", hint=True)
    asking = messages[place]
    if asking["role"] not in {"system", "user"}:
        messages.insert(0, losses.places.put({"role": "system", "content": _IN_JSON}, path))
    elif isinstance(asking["content"], list):
        asking["content"].append({"type": "text", "text": _IN_JSON})
    else:
        asking["content"] = one_text([asking["content"], _IN_JSON])


def _texts(message: Object) -> list[Any]:
    content = message.get("content") or ""
    return [part["text"] for part in content if "text" in part] if isinstance(content, list) else [content]


def _is_json(message: Object) -> bool:
    """Whether an answer is a JSON object or array, and nothing else."""
    said = "".join(decoded(raw_json(text), str, "contents") or "" for text in _texts(message)).lstrip()
    if "tool_calls" in message or said[:1] not in {"{", "["}:
        return False
    try:
        msgspec.json.decode(said)
    except UNREADABLE:
        return False
    return True


def _form(asked: RawObject, losses: Losses) -> Object:
    path = IN_CONFIG + "responseMimeType"
    kind = decoded(asked.get(path), str, path) or "text/plain"
    schema: Any = asked.get(IN_CONFIG + "responseJsonSchema")
    if schema is None and (old := asked.get(IN_CONFIG + "responseSchema")) is not None:
        schema = read_json_schema(old, IN_CONFIG + "responseSchema")
    if kind == "application/json":
        if schema is None:
            return {"response_format": _ANY_JSON}
        named = {"name": "answer", "schema": schema}  # chat requires a name
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if kind != "text/plain" or schema is not None:
        losses.add(path, f"chat answers as text or JSON, not as {kind!r}")
    return {}


def _effort(asked: RawObject, losses: Losses) -> Object:
    path = IN_CONFIG + "thinkingConfig"
    config = spelt_at(asked.get(path), path)
    losses.rest(config, ("includeThoughts", "thinkingBudget", "thinkingLevel"), path, _NO_FIELD)
    effort = effort_of(config, path)
    budget = decoded(config.get("thinkingBudget"), int, f"{path}.thinkingBudget") or 0
    said: Object = {} if effort is None else {"reasoning_effort": effort}
    if decoded(config.get("includeThoughts"), bool, f"{path}.includeThoughts") and "thoughts" in losses.beyond:
        said["shows_thoughts"] = True
    keeps = effort is not None and budget > 0 and "thinking_budget" in losses.beyond
    return said | {"thinking_budget": budget} if keeps else said


def _tier(asked: RawObject, losses: Losses) -> Object:
    tier = (decoded(asked.get("serviceTier"), str, "serviceTier") or "standard").lower()
    if tier in TIERS:
        return {"service_tier": tier}
    if tier not in {"standard", "unspecified"}:
        losses.add("serviceTier", f"chat has no service tier {tier!r}")
    return {}


def _logprobs(asked: RawObject) -> Object:
    """Return the fields that ask for log probabilities, and remove them from ``asked``."""
    path = IN_CONFIG + "responseLogprobs"
    if not decoded(asked.pop(path), bool, path):
        return {}
    said: Object = {"logprobs": True}
    if (most := asked.pop(IN_CONFIG + "logprobs", None)) is not None:
        said["top_logprobs"] = most
    return said


def _safety(asked: RawObject, losses: Losses) -> None:
    """Note thresholds that chat does not have. A threshold that lets everything pass is what other vendors do."""
    for number, setting in enumerate(listed_at(asked.get("safetySettings"), "safetySettings")):
        path = f"safetySettings[{number}]"
        if decoded(setting.get("threshold"), str, f"{path}.threshold") not in _LETS_ALL_PASS:
            losses.add(path, "chat has no thresholds of safety")
