"""Translates a chat completion request into a Responses request."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.histories import SYSTEM_FIRST, CallIds, FittedIds, History, tagged
from providers.dialects.responses.fields import Fields, objects_of
from providers.dialects.responses.request_to_chat import LOGPROBS, SHARED, responses_tool_choice, responses_tools
from providers.dialects.wording import (
    BOUND_REASON,
    PLAIN,
    Loss,
    Losses,
    Malformed,
    UniqueIds,
    Wording,
    decoded,
    is_string,
    one_text,
    raw_json,
    written_object,
)
from providers.errors import UNREADABLE

# Translates the messages of a chat completion into the input items of a Responses request.

Item = dict[str, Any]

_AUTO = msgspec.Raw(b'"auto"')
_OWN_THOUGHTS = "Responses takes earlier reasoning only unchanged: only the model that wrote it can use it"
_NOT_TAKEN_BACK = "Responses does not take this back with an earlier answer"
_INSTRUCTING = frozenset({b'"system"', b'"developer"'})  # roles
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")


_TEXT = frozenset({"type", "text"})
_OF_FILE = ("file_data", "file_id", "filename", "file_url")
LONGEST_ID = CallIds(64)  # OpenAI's limit


class Transcript:
    """Input items, made from chat messages in their order."""

    def __init__(self, losses: Losses, *, instructs: bool = True) -> None:
        """``instructs``: a system message at the beginning becomes the instructions."""
        self._instructs = instructs
        self.instructions: msgspec.Raw | None = None
        self.items: list[Item] = []
        self._losses = losses
        self._ids = UniqueIds(FittedIds(LONGEST_ID).of)
        self._custom_calls: set[bytes] = set()  # their ids, raw: their results are items of another type

    def add(self, message: Fields) -> None:
        """Add one message; a system message at the beginning becomes the instructions.

        Raises:
            Malformed: it lacks a field that its role requires.

        """
        match role := message.take("role", str):
            case "system" | "developer" | "user":
                self._input(message, role)
            case "assistant":
                self._assistant(message)
            case "tool":
                self._result(message)
            case "function":
                self._losses.add(message.path, "Responses has no functions, only tools")
                return
            case _:
                path = message.named("role")
                raise Malformed(f"'{path}' must be system, developer, user, assistant or tool.", path)
        message.lose_rest(self._losses, _NO_SUCH_FIELD)

    def _input(self, message: Fields, role: str) -> None:
        content = message.need("content")
        is_first = self._instructs and self.instructions is None and not self.items
        if role == "system" and is_string(content) and is_first:
            self.instructions = content
            return
        said = content if is_string(content) else self._parts(content, message.named("content"))
        if said != []:  # else all of it is lost
            self.items.append({"type": "message", "role": role, "content": said})

    def _assistant(self, message: Fields) -> None:
        for name in _THOUGHTS:
            message.lose(name, self._losses, _OWN_THOUGHTS, hint=True)
        message.lose("annotations", self._losses, _NOT_TAKEN_BACK, b"[]", hint=True)
        content = message.raw("content")
        parts: msgspec.Raw | list[Item] = []
        if content is not None:
            parts = content if is_string(content) else self._answer_parts(content, message.named("content"))
        if (refusal := message.raw("refusal")) is not None:
            before = parts if isinstance(parts, list) else [_output_text(parts)]
            parts = [*before, {"type": "refusal", "refusal": refusal}]
        calls = objects_of(message.raw("tool_calls"), message.named("tool_calls"))
        if parts not in ([], msgspec.Raw(b'""')) or not calls:
            self.items.append({"type": "message", "role": "assistant", "content": parts})
        for call in calls:
            self._call(call)

    def _call(self, call: Fields) -> None:
        call_id = raw_json(self._ids.of_call(_id(call, "id")))
        kind = call.take("type", str) or "function"
        if kind not in {"function", "custom"}:
            self._losses.add(call.path, f"Responses has no call of type {kind!r}")
            return
        inner = call.inner(kind)
        item: Item = {"type": f"{kind}_call", "call_id": call_id, "name": inner.need("name")}
        if kind == "custom":
            self._custom_calls.add(bytes(call_id))
            item |= {"type": "custom_tool_call", "input": inner.need("input")}
        else:
            item["arguments"] = written_object(inner.need("arguments"))
        self.items.append(item)
        call.pass_over("index")  # from a stream; some clients keep it
        call.lose_rest(self._losses, _NO_SUCH_FIELD)

    def _result(self, message: Fields) -> None:
        call_id = raw_json(self._ids.of_result(_id(message, "tool_call_id")))
        content = message.need("content")
        message.pass_over("name")  # the call has it too
        output = content if is_string(content) else self._parts(content, message.named("content"))
        if isinstance(output, list) and output and all(part.keys() == _TEXT for part in output):
            output = one_text([part["text"] for part in output])  # some servers take no list
        kind = "custom_tool_call_output" if bytes(call_id) in self._custom_calls else "function_call_output"
        self.items.append({"type": kind, "call_id": call_id, "output": output})

    def _parts(self, raw: msgspec.Raw, path: str) -> list[Item]:
        said: list[Item] = []
        for part in objects_of(raw, path):
            marker = part.several("prompt_cache_breakpoint")
            match kind := part.take("type", str):
                case "text":
                    said.append({"type": "input_text", "text": part.need("text"), **marker})
                case "image_url":
                    image = part.inner("image_url")
                    detail = image.raw("detail") or _AUTO
                    said.append({"type": "input_image", "image_url": image.need("url"), "detail": detail, **marker})
                    image.lose_rest(self._losses, _NO_SUCH_FIELD)
                case "file":
                    file = part.inner("file")
                    said.append({"type": "input_file", **file.several(*_OF_FILE), **marker})
                    file.lose_rest(self._losses, _NO_SUCH_FIELD)
                case "input_audio":
                    self._losses.add(part.path, "Responses takes no audio")
                    continue
                case _:
                    self._losses.add(part.path, f"Responses has no part of type {kind!r}")
                    continue
            part.lose_rest(self._losses, _NO_SUCH_FIELD)
        return said

    def _answer_parts(self, raw: msgspec.Raw, path: str) -> list[Item]:
        said: list[Item] = []
        for part in objects_of(raw, path):
            part.lose("prompt_cache_breakpoint", self._losses, "Responses has no cache markers in answers", hint=True)
            match kind := part.take("type", str):
                case "text":
                    said.append(_output_text(part.need("text")))
                case "refusal":
                    said.append({"type": "refusal", "refusal": part.need("refusal")})
                case _:
                    self._losses.add(part.path, f"Responses has no part of type {kind!r} in an answer")
                    continue
            part.lose_rest(self._losses, _NO_SUCH_FIELD)
        return said


def without_bound_reasoning(fields: Mapping[str, msgspec.Raw]) -> Wording:
    """Return a Responses request without its encrypted reasoning, and without the ids that refer to it."""
    try:
        items = msgspec.json.decode(fields.get("input", b""), type=list[dict[str, msgspec.Raw]])
    except UNREADABLE:
        return Wording(fields)
    kept: list[Item] = []
    losses: list[Loss] = []
    for number, item in enumerate(items):
        if bytes(item.get("type", b"")) == b'"reasoning"' and bytes(item.get("encrypted_content", b"null")) != b"null":
            losses.append(Loss(f"input[{number}]", BOUND_REASON, hint=True))
        else:
            kept.append({name: value for name, value in item.items() if name != "id"})
    return Wording({**fields, "input": raw_json(kept)}, tuple(losses)) if losses else Wording(fields)


_ENCRYPTED = b'"reasoning.encrypted_content"'


def without_effort(fields: Mapping[str, msgspec.Raw]) -> Wording:
    """Return a Responses request that does not say how hard to think, and has no earlier reasoning.

    OpenAI's models that do not think refuse all three: "Unsupported parameter: 'reasoning.effort'", "Encrypted content
    is not supported with this model" and "Reasoning input items can only be provided to a reasoning or computer use
    model" (github.com/openai/openai-agents-python/issues/569, read on 2026-11-27).

    Raises:
        Malformed: ``reasoning`` is no object, or ``include`` no list.

    """
    said, losses = dict(fields), []
    reasoning = decoded(said.pop("reasoning", None), dict[str, msgspec.Raw], "reasoning") or {}
    no_effort = (b"null", b'"none"')
    losses += [f"reasoning.{name}" for name, value in reasoning.items() if bytes(value) not in no_effort]
    if _ENCRYPTED in bytes(fields.get("include", b"")):
        included = decoded(fields["include"], list[msgspec.Raw], "include")
        said["include"] = raw_json([each for each in included if bytes(each) != _ENCRYPTED])
        losses.append("include")
    if b'"reasoning"' in bytes(fields.get("input", b"")):
        said["input"], numbers = _without_reasoning(fields["input"])
        losses += [f"input[{number}]" for number in numbers]
    return Wording(said, tuple(Loss(field, PLAIN, hint=True) for field in losses))


def _without_reasoning(raw: msgspec.Raw) -> tuple[msgspec.Raw, list[int]]:
    """Return items without those of reasoning, nor the ids of items that were made with them; and their numbers."""
    try:
        items = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
    except UNREADABLE:
        return raw, []
    gone = [number for number, item in enumerate(items) if bytes(item.get("type", b"")) == b'"reasoning"']
    if not gone:
        return raw, []
    kept = [item for number, item in enumerate(items) if number not in gone]
    plain = [
        item if bytes(item.get("type", b"")) == b'"item_reference"' else {n: v for n, v in item.items() if n != "id"}
        for item in kept
    ]
    return raw_json(plain), gone


def responses_history(fields: Mapping[str, msgspec.Raw], history: History) -> Wording:
    """Return a Responses request with ids and system prompts as ``history`` says; what is no list of items stays."""
    form, raw = history.call_ids.get("responses"), bytes(fields.get("input", b""))
    has_ids = form is not None and b'"call_id"' in raw
    has_system = history.one_system and any(role in raw for role in _INSTRUCTING)
    if not (has_ids or has_system):
        return Wording(fields)
    said, losses = dict(fields), list[Loss]()
    try:
        items: list[Item] = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
        changed = has_system and any(bytes(item.get("role", b"")) in _INSTRUCTING for item in items)
        if changed:
            items, losses = _with_one_system(items, said)
    except (*UNREADABLE, KeyError):  # its provider says so
        return Wording(fields)
    if form is not None:
        ids = FittedIds(form)
        for item in items:
            if "call_id" in item and (fitted := ids.raw(item["call_id"])) is not item["call_id"]:
                item["call_id"], changed = fitted, True
    return Wording({**said, "input": raw_json(items)}, tuple(losses)) if changed else Wording(fields)


def _with_one_system(items: list[Item], said: dict[str, msgspec.Raw]) -> tuple[list[Item], list[Loss]]:
    """Return ``items`` with later system prompts as the user's; the first ones are in the instructions of ``said``.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: one is not valid.

    """
    kept, losses = list[Item](), list[Loss]()
    for number, item in enumerate(items):
        if bytes(item.get("role", b"")) not in _INSTRUCTING:
            kept.append(item)
        elif not kept and (text := _plain(item["content"])) is not None:
            before = msgspec.json.decode(said.get("instructions", b"null"), type=str | None)
            said["instructions"] = raw_json("\n\n".join(filter(None, (before, text))))
        else:
            losses.append(Loss(f"input[{number}].role", SYSTEM_FIRST, hint=True))
            kept.append({"type": "message", "role": "user", "content": tagged(item["content"])})
    return kept, losses


def _plain(content: msgspec.Raw) -> str | None:
    """Return a content as one text; None if there is more in it."""
    if is_string(content):
        return msgspec.json.decode(content, type=str)
    parts = msgspec.json.decode(content, type=list[dict[str, msgspec.Raw]])
    if any(bytes(part.get("type", b"")) != b'"input_text"' for part in parts):
        return None
    return "\n\n".join(msgspec.json.decode(part["text"], type=str) for part in parts)


def _id(given: Fields, name: str) -> str:
    call_id: str = decoded(given.need(name), str, given.named(name))
    return call_id


def _output_text(text: msgspec.Raw) -> Item:
    return {"type": "output_text", "text": text, "annotations": []}


_ANY_JSON = b'"json_object"'
_FEWEST_TOKENS = 16  # the API's minimum of max_output_tokens

_LOST: Mapping[str, tuple[str, tuple[bytes, ...]]] = {  # the reason, and the values that are defaults
    "n": ("Responses gives one answer", (b"1",)),
    "stop": ("Responses has no stop sequences", (b"[]",)),
    "seed": ("Responses takes no seed", ()),
    "frequency_penalty": ("Responses has no penalties", (b"0", b"0.0")),
    "presence_penalty": ("Responses has no penalties", (b"0", b"0.0")),
    "logit_bias": ("Responses takes no logit bias", (b"{}",)),
    "audio": ("Responses has no audio output", ()),
    "modalities": ("Responses answers in text", (b'["text"]',)),
    "web_search_options": ("Responses searches the web with a tool of other options", ()),
    "functions": ("Responses has no functions, only tools", (b"[]",)),
    "function_call": ("Responses has no functions, only tools", (b'"none"', b'"auto"')),
    "store": ("Responses stores for later reference, chat completions for evaluation", (b"false",)),
    "moderation": ("Responses gives the results of moderation in another shape", ()),
}
_NO_SUCH_FIELD = "Responses has no such field"


def from_chat(fields: Mapping[str, msgspec.Raw]) -> Wording:
    """Translate a chat completion request into a Responses request that is not stored.

    Raises:
        Malformed: it has no messages, or a field has another type than the API requires.

    """
    asked, losses = Fields(fields), Losses(once=True)
    said: dict[str, Any] = asked.several(*SHARED, "parallel_tool_calls")
    # OpenAI looks for the word JSON, if that is asked for, in the input alone.
    transcript = Transcript(losses, instructs=_ANY_JSON not in bytes(fields.get("response_format", b"")))
    for message in objects_of(asked.need("messages"), "messages"):
        transcript.add(message)
    if transcript.instructions is not None:
        said["instructions"] = transcript.instructions
    said["input"] = transcript.items
    said["store"] = False  # the default is true, and a call that is stored is not raced
    if tools := responses_tools(asked.raw("tools"), losses):
        said["tools"] = tools
    choice = responses_tool_choice(asked.raw("tool_choice"), losses)
    if choice is not None and tools:
        said["tool_choice"] = choice
    said |= _limit(asked, losses)
    if text := _text(asked, losses):
        said["text"] = text
    reasoning = {"effort": asked.raw("reasoning_effort"), "summary": "auto" if asked.raw("shows_thoughts") else None}
    if any(reasoning.values()):
        said["reasoning"] = {name: value for name, value in reasoning.items() if value is not None}
    if asked.take("logprobs", bool):
        said["include"] = [LOGPROBS]
        said |= asked.several("top_logprobs")
    asked.lose("top_logprobs", losses, "log probabilities are returned only if logprobs is true", b"0")
    options = asked.inner("stream_options")
    options.pass_over("include_usage")  # Responses always sends usage
    options.lose("include_obfuscation", losses, "translated streams are not padded", b"false", hint=True)
    options.lose_rest(losses, _NO_SUCH_FIELD)
    asked.lose("prediction", losses, "Responses takes no prediction of the answer", hint=True)
    for name, (reason, plain) in _LOST.items():
        asked.lose(name, losses, reason, *plain)
    asked.lose_rest(losses, _NO_SUCH_FIELD)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.met())


def _limit(asked: Fields, losses: Losses) -> dict[str, Any]:
    limits = {name: asked.take(name, int) for name in ("max_completion_tokens", "max_tokens")}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if not given:
        return {}
    name, limit = min(given.items(), key=lambda pair: pair[1])
    if limit < _FEWEST_TOKENS:
        losses.add(name, f"Responses generates at least {_FEWEST_TOKENS} tokens")
    return {"max_output_tokens": max(limit, _FEWEST_TOKENS)}


def _text(asked: Fields, losses: Losses) -> dict[str, Any]:
    said: dict[str, Any] = asked.several("verbosity")
    format_ = asked.inner("response_format")
    match kind := format_.take("type", str):
        case "json_schema":
            schema = format_.inner(kind)
            shape = {"name": schema.need("name"), **schema.several("description", "schema", "strict")}
            said["format"] = {"type": kind, **shape}
            schema.lose_rest(losses, _NO_SUCH_FIELD)
        case "json_object":
            said["format"] = {"type": kind}
        case "text" | None:
            pass
        case _:
            losses.add("response_format.type", f"Responses has no format {kind!r}")
    format_.lose_rest(losses, _NO_SUCH_FIELD)
    return said
