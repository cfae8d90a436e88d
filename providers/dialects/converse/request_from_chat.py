"""Translates a chat completion request into a Converse request.

The fields and their limits are those of the service's description in botocore (bedrock-runtime 2023-09-30).
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping

import msgspec

from providers.dialects.chat.allowed_tools import offering_those_alone
from providers.dialects.chat.forced_call import loses_format
from providers.dialects.dialect import Habits
from providers.dialects.histories import without_parts_of_thoughts
from providers.dialects.messages.fields import (
    DEFAULTS,
    OF_DOCUMENT,
    KeptSchema,
    budget_of,
    chosen_tool,
    form_of,
    function_of,
    limit_of,
    lose_stream_options,
    request_of,
    stops_of,
    thinking_of_effort,
)
from providers.dialects.messages.request_from_chat import Turns, is_error
from providers.dialects.messages.thoughts import CONTROLS, HAVE_SWITCH, MessagesHabits, habits_of
from providers.dialects.reading import Object, RawObject, object_at, objects_at, present, raw_text_at, said_of, text_at
from providers.dialects.wording import (
    SIGNED,
    Losses,
    Wording,
    as_error,
    check_calls,
    decoded,
    is_null,
    raw_json,
)
from providers.models import traits_of
from providers.refusals import UNREADABLE

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
_NO_FIELD = "Converse has no such field"
_CACHE_POINT: Object = {"cachePoint": {"type": "default"}}
_FORBIDDEN_IN_ID = re.compile(r"[^a-zA-Z0-9_.:-]")
_LONGEST_ID = 64
_FORBIDDEN_IN_NAME = re.compile(r"[^a-zA-Z0-9\s()\[\]-]|\s(?=\s)")
_LONGEST_NAME = 200
_LONGEST_NUMBER = 8  # characters of a number among documents of one name, with the space before the number


def allowed_id(call_id: str) -> str:
    """Return a tool call's id as Converse allows it; equal ids stay equal, different ids different."""
    allowed = _FORBIDDEN_IN_ID.sub(lambda letter: f"_{ord(letter[0]):x}_", call_id)
    return allowed if len(allowed) <= _LONGEST_ID else hashlib.sha256(call_id.encode()).hexdigest()


class ConverseTurns(Turns):
    """The turns so far, and the system prompt's blocks. Roles alternate: turns of one role are joined."""

    api = "Converse"
    system_comes_first = "system prompts go first"
    thoughts_are_signed = "Converse takes reasoning only with its signature"
    assistant_is_text = "Converse takes pictures, sound and documents from the user only"
    documents = "PDF, text, HTML and Office files"

    def __init__(self, losses: Losses) -> None:
        super().__init__(losses, allowed_id)
        self.called: dict[str, msgspec.Raw] = {}  # names of tools that were called
        self._has_life = False  # the loss of a mark for an hour was noted
        self._names: set[str] = set()  # names of documents, in lower case
        self._numbers: Counter[str] = Counter()  # by the beginnings of names that came again

    def _say(self, role: str, blocks: list[Object], text: msgspec.Raw | None = None) -> None:  # noqa: ARG002 - blocks only
        if not blocks:
            return
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})

    def _answer(self, call_id: str, message: RawObject, path: str) -> None:
        told = self._blocks(message.get("content"), f"{path}.content", in_result=True)
        blocks = [block for block in told if "cachePoint" not in block]
        content = blocks or [{"text": "(no output)"}]
        status = {"status": "error"} if is_error(message, path) else {}
        if status and any("text" not in block for block in content):  # a Claude refuses ``status`` beside a picture
            content, status = [{"text": as_error("")}, *content], {}
        self._say("user", [{"toolResult": {"toolUseId": self._ids.of_result(call_id), "content": content, **status}}])
        if "cache_control" in message or len(blocks) < len(told):
            self._say("user", [_CACHE_POINT])

    def _text_block(self, text: msgspec.Raw, part: RawObject) -> Object:  # noqa: ARG002 - a mark is a block of its own
        return {"text": text}

    def _call_block(self, call_id: str, name: msgspec.Raw, arguments: msgspec.Raw) -> Object:
        self.called.setdefault(msgspec.json.decode(name, type=str), name)
        return {"toolUse": {"toolUseId": self._ids.of_call(call_id), "name": name, "input": arguments}}

    def _thought_block(self, thought: Object) -> Object:
        if "data" in thought:
            return {"reasoningContent": {"redactedContent": thought["data"]}}
        said = {"text": thought["thinking"], "signature": thought["signature"]}
        return {"reasoningContent": {"reasoningText": said}}

    def _end_part(self, part: RawObject, blocks: list[Object]) -> None:
        if "cache_control" in part and not is_null(part["cache_control"]) and blocks:
            blocks.append(_CACHE_POINT)
            self._note_life(part["cache_control"])

    def _note_life(self, mark: msgspec.Raw) -> None:
        """Note once that a cache lives for five minutes: older models refuse an hour."""
        if b'"1h"' in bytes(mark) and not self._has_life:
            self._has_life = True
            self._losses.add("cache_control.ttl", "Converse is asked to keep it for five minutes", hint=True)

    def _image(self, url: str, part: RawObject, at: str) -> list[Object]:  # noqa: ARG002 - as above
        inline = _INLINE.fullmatch(url)
        if inline is None or inline[1].lower() not in _IMAGES:
            self._losses.add(f"{at}.image_url.url", "Converse takes JPEG, PNG, GIF and WebP, in base64 only")
            return []
        return [{"image": {"format": _IMAGES[inline[1].lower()], "source": {"bytes": inline[2]}}}]

    def _file(self, data: str, file: RawObject, part: RawObject, at: str) -> list[Object] | None:
        inline = _INLINE.fullmatch(data)
        if inline is None or inline[1].lower() not in _DOCUMENTS:
            return None
        name = self._own_name(decoded(file.get("filename"), str, f"{at}.file.filename") or "")
        document = {"format": _DOCUMENTS[inline[1].lower()], "name": name, "source": {"bytes": inline[2]}}
        return [{"document": document | said_of(present(part), *OF_DOCUMENT)}]

    def _own_name(self, given: str) -> str:
        """Return a document's name as Bedrock takes it: two documents of one name are refused."""
        name = _FORBIDDEN_IN_NAME.sub("", given.rpartition(".")[0] or given).strip()[:_LONGEST_NAME].rstrip()
        own = name or f"document {len(self._names) + 1}"
        begin = (name or "document")[: _LONGEST_NAME - _LONGEST_NUMBER].rstrip()
        while own.lower() in self._names:
            self._numbers[begin.lower()] += 1  # counts on: a request may have very many documents of one name
            own = f"{begin} {self._numbers[begin.lower()] + 1}"
        self._names.add(own.lower())
        return own

    def _other(self, kind: str, part: RawObject, at: str, *, in_result: bool) -> list[Object]:
        if kind != "input_audio" or in_result:
            self._losses.add(at, "Converse has no such part")
            return []
        sound = object_at(part.get("input_audio"), f"{at}.input_audio")
        form = text_at(sound, "format", f"{at}.input_audio")
        self._losses.rest(part, ("type", "input_audio", "cache_control"), at, _NO_FIELD)
        self._losses.rest(sound, ("data", "format"), f"{at}.input_audio", _NO_FIELD)
        if form not in _SOUNDS:
            self._losses.add(f"{at}.input_audio.format", f"Converse has no audio format {form!r}")
            return []
        data = raw_text_at(sound, "data", f"{at}.input_audio")
        return [{"audio": {"format": form, "source": {"bytes": data}}}]


# Bedrock's name of the switch differs from Anthropic's, and its beta stands in the body:
# docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-thinking-block-binding.html, read on 2026-11-29; asked
# live for github.com/vercel/ai/pull/20728. Bedrock does not have the switch everywhere (BerriAI/litellm/pull/41203). So
# the request in chat has the switch under Bedrock's name, and its refusal is learnt like that of any other field.
SWITCH = "additionalModelRequestFields.thinking.block_binding"
_ON = msgspec.Raw(b"true")
_DROPS: Object = {"mismatch_behavior": "drop_block"}
_TRANSLATED = frozenset(
    {
        *("max_completion_tokens", "max_tokens", "messages", "model", "reasoning_effort", "response_format"),
        *("service_tier", "shows_thoughts", "stop", "stream", "stream_options"),
        *("temperature", "tool_choice", "tools", "top_k", "top_p", SWITCH),
    }
)
# If the model makes several calls all the same, the answer has the first.
_DEFAULTS: Mapping[str, tuple[bytes, ...]] = {**DEFAULTS, "parallel_tool_calls": (b"true", b"false")}
_HINTS = frozenset(
    {
        *("metadata", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        "user",
    }
)
_REASONS: Mapping[str, str] = {
    "n": "Converse gives one answer",
}
_TIERS = frozenset({"default", "flex", "priority"})
_CLAUDE = "claude"
_KNOWN = Habits()
_MOST_TEMPERATURE = 1


def with_switch(fields: Mapping[str, msgspec.Raw], model: str) -> Mapping[str, msgspec.Raw]:
    """Return a chat request that has thoughts dropped which no longer fit the text before them."""
    return {**fields, SWITCH: _ON} if "prefix" in traits_of(model).bound else fields


def converse_from_chat(fields: Mapping[str, msgspec.Raw], model: str) -> Wording:
    """Translate a chat completion request into a Converse request to ``model``, without the model's name.

    A Claude thinks as in its own API: Bedrock passes the fields for thinking through to the model. Other models get an
    effort. A temperature or top_p of 1, the default, is not sent: newer Claudes refuse any value.

    Raises:
        Malformed: the request is not valid in chat.

    """
    losses = Losses()
    offering = offering_those_alone(without_parts_of_thoughts(fields))
    losses.note(offering.losses)
    asked, given = request_of(offering.fields)
    check_calls(asked)
    conversation = ConverseTurns(losses)
    conversation.takes_signed = _CLAUDE in model
    conversation.read(given)
    if not conversation.turns:
        losses.add("messages", "Converse needs more than a system prompt")
    said: Object = {"messages": conversation.turns}
    if conversation.system:
        said["system"] = conversation.system
    said |= _tools(asked, losses, conversation)
    inference, output, extra = _inference(asked, losses, model), _form(asked, losses), {}
    effort, budget = decoded(asked.get("reasoning_effort"), str, "reasoning_effort"), budget_of(asked)
    if _CLAUDE in model:
        extra = _claude(model, (effort, budget), inference, losses, said)
        extra = _dropping_unfit(extra, said) if SWITCH in asked else extra
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
    if "metadata" in asked:
        said |= _metadata(asked)
    lose_stream_options(asked, losses, _NO_FIELD)
    for name, value in asked.items():
        if name not in _TRANSLATED and bytes(value) not in _DEFAULTS.get(name, ()):
            losses.add(name, _REASONS.get(name, _NO_FIELD), hint=name in _HINTS)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.met())


# Bedrock's pattern for metadata, from botocore: other values are refused.
_METADATA = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}", re.ASCII)
_MOST_METADATA = 16


def _metadata(asked: RawObject) -> Object:
    """Return the metadata for searches in Bedrock's logs, and remove it from ``asked`` if Bedrock takes all of it."""
    try:
        told = msgspec.json.decode(asked.get("metadata", b"{}"), type=dict[str, str])
    except UNREADABLE:
        return {}
    fits = all(key and _METADATA.fullmatch(key) and _METADATA.fullmatch(value) for key, value in told.items())
    if not told or not fits or len(told) > _MOST_METADATA:
        return {}
    del asked["metadata"]
    return {"requestMetadata": told}


def _tier(asked: RawObject, losses: Losses) -> Object:
    tier = decoded(asked.get("service_tier"), str, "service_tier")
    if tier in _TIERS:
        return {"serviceTier": {"type": tier}}
    if tier not in {None, "auto"}:
        losses.add("service_tier", f"Converse has no service tier {tier!r}")
    return {}


def _inference(asked: RawObject, losses: Losses, model: str) -> Object:
    said: Object = {}
    if (limit := limit_of(asked, losses, "Converse")) is not None:
        said["maxTokens"] = limit
    for name, own in (("temperature", "temperature"), ("top_p", "topP")):
        value = decoded(asked.get(name), float, name)
        if value is None or value == 1:
            continue
        if name == "temperature" and value > _MOST_TEMPERATURE:
            losses.add(name, "Converse has no temperature over 1")
        else:
            said[own] = asked[name]
    stops = [stop for stop in stops_of(asked) if stop]
    if any(not stop.strip() for stop in stops) and _CLAUDE in model:
        losses.add("stop", "a Claude takes no blank stop sequences")
        stops = [stop for stop in stops if stop.strip()]
    if stops:
        said["stopSequences"] = stops
    return said


def _claude(model: str, hard: tuple[str | None, int | None], inference: Object, losses: Losses, said: Object) -> Object:
    """Return the fields of Messages for a Claude; sampling that the Claude refuses is removed from ``inference``.

    ``hard``: the effort and the budget of thinking.
    """
    habits, (effort, budget) = _habits(model), hard
    limit = inference.get("maxTokens")
    within = {"max_tokens": limit or habits.max_tokens, "messages": _as_messages(said["messages"])}
    if _forces(said):
        within["tool_choice"] = {"type": "any"}
    adaptive, least = habits.adaptive_thinking, habits.least_thinking
    thinking = thinking_of_effort(
        effort, within, losses, adaptive=adaptive, limited=limit is not None, least=least, budget=budget
    )
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


def _forces(said: Object) -> bool:
    return bool(said.get("toolConfig", {}).get("toolChoice", {}).keys() & {"any", "tool"})


def _dropping_unfit(extra: Object, said: Object) -> Object:
    """Return the fields of Messages with the switch, if a turn of the conversation in ``said`` has thoughts.

    A request that forces a call and says nothing of thinking is not told to think: the API would refuse both together.
    """
    if "thinking" not in extra and _forces(said):
        return extra
    turns = said["messages"]
    if not any("reasoningContent" in block for turn in turns for block in turn["content"]):
        return extra
    thinking = {"type": "adaptive", **extra.get("thinking", {})}  # what these models do if nothing is said
    if thinking["type"] not in HAVE_SWITCH:
        return extra
    return {**extra, "thinking": {**thinking, "block_binding": _DROPS}, "anthropic_beta": [CONTROLS]}


def _habits(model: str) -> MessagesHabits:
    return habits_of(traits_of(model), None, _KNOWN)


def _as_messages(turns: list[Object]) -> list[Object]:
    """Return the last turns as ``thinking_of_effort`` reads them: whether the last answers calls, after thinking."""
    answers = bool(turns) and any("toolResult" in block for block in turns[-1]["content"])
    thought = len(turns) > 1 and "reasoningContent" in turns[-2]["content"][0]
    called = [{"type": SIGNED}] if thought else []
    return [{"content": called}, {"content": [{"type": "tool_result"}] if answers else []}]


def _tools(asked: RawObject, losses: Losses, conversation: ConverseTurns) -> Object:
    tools: list[Object] = []
    for number, tool in enumerate(objects_at(asked.get("tools"), "tools")):
        tools += _tool(tool, f"tools[{number}]", losses)
    choice = _tool_choice(asked, losses)
    if not tools:
        if choice not in (None, _AUTO):
            losses.add("tool_choice", "Converse chooses among tools only")
        if not conversation.called:
            return {}
        losses.add("tools", "Converse needs the tools that were called before, so they are offered again", hint=True)
        schema: Object = {"type": "object", "properties": {}}
        specs = [{"name": name, "inputSchema": {"json": schema}} for name in conversation.called.values()]
        return {"toolConfig": {"tools": [{"toolSpec": spec} for spec in specs]}}
    if choice is None and "tool_choice" in asked:  # ``none``
        if not conversation.called:
            return {}
        losses.add("tool_choice", "Converse cannot forbid tools that were called before", hint=True)
    return {"toolConfig": {"tools": tools, **({"toolChoice": choice} if choice not in (None, _AUTO) else {})}}


def _tool(tool: RawObject, path: str, losses: Losses) -> list[Object]:
    found = function_of(tool, path, losses, "Converse")
    if found is None:
        return []
    at, function, schema = found
    spec: Object = {"name": raw_text_at(function, "name", at)}
    if bytes(function.get("description", b"null")) not in {b"null", b'""'}:
        spec["description"] = function["description"]
    spec["inputSchema"] = {"json": schema}
    if bytes(function.get("strict", b"null")) == b"true":
        kept = KeptSchema(raw_json(schema), f"{at}.parameters")  # the rules of such a schema are those of Messages
        if kept.lost:
            losses.add(f"{at}.strict", f"Converse cannot keep a call to {kept.lost[0]}: best effort instead", hint=True)
        else:
            spec |= {"inputSchema": {"json": kept.kept}, "strict": True}
    is_marked = "cache_control" in tool and not is_null(tool["cache_control"])
    return [{"toolSpec": spec}, *([_CACHE_POINT] if is_marked else [])]


_AUTO: Object = {"auto": {}}


def _tool_choice(asked: RawObject, losses: Losses) -> Object | None:
    """Return the choice in Converse; None if the request has no choice, or no tool may be called."""
    chosen = chosen_tool(asked)
    if isinstance(chosen, str):
        return {"any": {}} if chosen == "required" else _AUTO if chosen == "auto" else None
    if chosen is not None:
        return {"tool": {"name": chosen}}
    if "tool_choice" not in asked:
        return None
    losses.add("tool_choice", "Converse can choose one tool, any or all")
    return _AUTO


def _form(asked: RawObject, losses: Losses) -> Object:
    if loses_format(asked, losses):
        return {}
    given = form_of(asked, losses, "Converse")
    if given is None:
        return {}
    # Closed objects and the keywords of Messages (docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html).
    kept = KeptSchema(given["schema"], "response_format.json_schema.schema")
    for keyword in kept.lost:
        losses.add(keyword, "Converse does not support this keyword of a schema")
    schema: Object = {"schema": bytes(raw_json(kept.kept)).decode()}  # a string that contains JSON
    schema |= {name: given[name] for name in ("name", "description") if name in given and not is_null(given[name])}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
