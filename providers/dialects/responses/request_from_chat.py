"""Translates a chat completion request into a Responses request."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from providers.dialects.chat.searches import SEARCH_FIELD, search_in
from providers.dialects.dialect import Habits
from providers.dialects.histories import SYSTEM_FIRST, offering, tagged, without_blanks
from providers.dialects.history_rules import CallIds, FittedIds, HistoryRules
from providers.dialects.messages.fields import lose_stream_options
from providers.dialects.reading import RawObject, each_at, inner_at, needed_at, object_at, objects_at, present, said_of
from providers.dialects.responses.fields import CHANGING_NOTHING, LEAST_TOKENS
from providers.dialects.responses.request_to_chat import LOGPROBS, SHARED
from providers.dialects.responses.tools import responses_tool_choice, responses_tools
from providers.dialects.responses.turns import ENCRYPTED
from providers.dialects.sealed import Seal, ThoughtPlace
from providers.dialects.wording import (
    BOUND_REASON,
    OF_ANSWER,
    OTHERS_REASON,
    PLAIN,
    THOUGHTS,
    Loss,
    Losses,
    Malformed,
    UniqueIds,
    Wording,
    bound_reasoning,
    decoded,
    is_string,
    one_text,
    raw_json,
    sealed_data,
    written_object,
)
from providers.refusals import UNREADABLE

# Translates the messages of a chat completion into the input items of a Responses request.

Item = dict[str, Any]

_AUTO = msgspec.Raw(b'"auto"')
_NOT_OPENED = "it was sealed by another gateway, or for another account, which alone can read it"
_IN_WORDS = frozenset({"reasoning", "reasoning_content"})
_ANY = Habits()
_OWN_THOUGHTS = "Responses takes earlier reasoning only unchanged: only the model that wrote it can use it"
_NOT_TAKEN_BACK = "Responses does not take this back with an earlier answer"
_INSTRUCTING = frozenset({b'"system"', b'"developer"'})  # roles


_TEXT = frozenset({"type", "text"})
_MARKER = "prompt_cache_breakpoint"
_OF_FILE = ("file_data", "file_id", "filename", "file_url")
LONGEST_ID = CallIds(64)  # OpenAI's limit


class Transcript:
    """Input items, made of chat messages in their order."""

    def __init__(self, losses: Losses, *, instructs: bool = True, seal: Seal | None = None) -> None:
        """``instructs``: a first system message becomes the instructions. ``seal``: opens what it has closed."""
        self._instructs, self._seal = instructs, seal
        self.instructions: msgspec.Raw | None = None
        self.items: list[Item] = []
        self._losses = losses
        self._ids = UniqueIds(FittedIds(LONGEST_ID).of)
        self._custom_calls: set[bytes] = set()  # the raw ids of calls whose results are items of another type

    def add(self, message: RawObject, path: str) -> None:
        """Add the message at ``path``; a system message at the beginning becomes the instructions.

        Raises:
            Malformed: the message lacks a field that its role requires.

        """
        known: tuple[str, ...] = ("role", "content")
        match role := decoded(message.get("role"), str, f"{path}.role"):
            case "system" | "developer" | "user":
                self._input(message, role, path)
            case "assistant":
                known = (*known, "refusal", "tool_calls", "annotations", *THOUGHTS)
                self._assistant(message, path)
            case "tool":
                known = (*known, "tool_call_id", "name")  # the call has the name too
                self._result(message, path)
            case "function":
                self._losses.add(path, "Responses has no functions, only tools")
                return
            case _:
                path = f"{path}.role"
                raise Malformed(f"'{path}' must be system, developer, user, assistant or tool.", path)
        self._losses.rest(message, known, path, _NO_SUCH_FIELD)

    def _input(self, message: RawObject, role: str, path: str) -> None:
        content = needed_at(message, "content", path)
        is_first = self._instructs and self.instructions is None and not self.items
        if role == "system" and is_string(content) and is_first:
            self.instructions = content
            return
        said = content if is_string(content) else self._parts(content, f"{path}.content")
        if said != []:  # an empty list: everything in the message is lost
            self.items.append({"type": "message", "role": role, "content": said})

    def _assistant(self, message: RawObject, path: str) -> None:
        thoughts = self._thoughts(message, path)
        self._losses.lose(message, "annotations", path, _NOT_TAKEN_BACK, b"[]", hint=True)
        content = message.get("content")
        parts: msgspec.Raw | list[Item] = []
        if content is not None:
            parts = content if is_string(content) else self._answer_parts(content, f"{path}.content")
        if (refusal := message.get("refusal")) is not None:
            before = parts if isinstance(parts, list) else [_output_text(parts)]
            parts = [*before, {"type": "refusal", "refusal": refusal}]
        calls = each_at(message.get("tool_calls"), f"{path}.tool_calls")
        if parts not in ([], msgspec.Raw(b'""')) or not calls:
            # Thoughts after the last call have no call to stand before: something must follow them.
            self._think(thoughts, lambda place: not calls or not (place.calls or place.behind_text))
            self.items.append({"type": "message", "role": "assistant", "content": parts})
        for number, (at, call) in enumerate(calls, 1):
            self._think(thoughts, lambda place: place.calls < number or number == len(calls))  # noqa: B023 - asked now
            self._call(call, at)

    def _thoughts(self, message: RawObject, path: str) -> list[tuple[str, ThoughtPlace]]:
        """Return the reasoning of a message that was sealed for this account; other reasoning is lost.

        The words beside sealed reasoning are no loss: the model has the reasoning.
        """
        sealed = _sealed_in(message)
        known = [] if self._seal is None else [self._seal.opened(data) for data in sealed]
        opened = [each for each in known if each is not None]
        is_all = len(opened) == len(sealed)
        for name in THOUGHTS:
            if not (opened and (name in _IN_WORDS or is_all)):
                self._losses.lose(message, name, path, _NOT_OPENED if any(sealed) else _OWN_THOUGHTS, hint=True)
        return opened

    def _think(self, thoughts: list[tuple[str, ThoughtPlace]], is_here: Callable[[ThoughtPlace], bool]) -> None:
        """Add the ``thoughts`` whose place is here, and remove them from the list."""
        for each in [each for each in thoughts if is_here(each[1])]:
            thoughts.remove(each)
            self.items.append({"type": "reasoning", "summary": [], "encrypted_content": each[0]})

    def _call(self, call: RawObject, path: str) -> None:
        call_id = raw_json(self._ids.of_call(_id(call, "id", path)))
        kind = decoded(call.get("type"), str, f"{path}.type") or "function"
        if kind not in {"function", "custom"}:
            self._losses.add(path, f"Responses has no call of type {kind!r}")
            return
        inner, at = inner_at(call, kind, path), f"{path}.{kind}"
        item: Item = {"type": f"{kind}_call", "call_id": call_id, "name": needed_at(inner, "name", at)}
        if kind == "custom":
            self._custom_calls.add(bytes(call_id))
            item |= {"type": "custom_tool_call", "input": needed_at(inner, "input", at)}
        else:
            item["arguments"] = written_object(needed_at(inner, "arguments", at))
        self.items.append(item)
        # A stream's calls have an index, which some clients keep.
        self._losses.rest(call, ("id", "type", "index", kind), path, _NO_SUCH_FIELD)

    def _result(self, message: RawObject, path: str) -> None:
        call_id = raw_json(self._ids.of_result(_id(message, "tool_call_id", path)))
        content = needed_at(message, "content", path)
        output = content if is_string(content) else self._parts(content, f"{path}.content")
        if isinstance(output, list) and output and all(part.keys() == _TEXT for part in output):
            output = one_text([part["text"] for part in output])  # some servers take no list
        kind = "custom_tool_call_output" if bytes(call_id) in self._custom_calls else "function_call_output"
        self.items.append({"type": kind, "call_id": call_id, "output": output})

    def _parts(self, raw: msgspec.Raw, path: str) -> list[Item]:
        said: list[Item] = []
        for at, part in each_at(raw, path):
            marker = said_of(part, _MARKER)
            match kind := decoded(part.get("type"), str, f"{at}.type"):
                case "text":
                    said.append({"type": "input_text", "text": needed_at(part, "text", at), **marker})
                case "image_url":
                    image, inside = inner_at(part, kind, at), f"{at}.{kind}"
                    detail, url = image.get("detail") or _AUTO, needed_at(image, "url", inside)
                    said.append({"type": "input_image", "image_url": url, "detail": detail, **marker})
                    self._losses.rest(image, ("url", "detail"), inside, _NO_SUCH_FIELD)
                case "file":
                    file = inner_at(part, kind, at)
                    said.append({"type": "input_file", **said_of(file, *_OF_FILE), **marker})
                    self._losses.rest(file, _OF_FILE, f"{at}.{kind}", _NO_SUCH_FIELD)
                case "input_audio":
                    self._losses.add(at, "Responses takes no audio")
                    continue
                case _:
                    self._losses.add(at, f"Responses has no part of type {kind!r}")
                    continue
            self._losses.rest(part, ("type", kind, _MARKER), at, _NO_SUCH_FIELD)
        return said

    def _answer_parts(self, raw: msgspec.Raw, path: str) -> list[Item]:
        said: list[Item] = []
        for at, part in each_at(raw, path):
            self._losses.lose(part, _MARKER, at, "Responses has no cache markers in answers", hint=True)
            match kind := decoded(part.get("type"), str, f"{at}.type"):
                case "text":
                    said.append(_output_text(needed_at(part, "text", at)))
                case "refusal":
                    said.append({"type": "refusal", "refusal": needed_at(part, "refusal", at)})
                case _:
                    self._losses.add(at, f"Responses has no part of type {kind!r} in an answer")
                    continue
            self._losses.rest(part, ("type", kind, _MARKER), at, _NO_SUCH_FIELD, repeated=OF_ANSWER)
        return said


def without_bound_reasoning(fields: Mapping[str, msgspec.Raw], of: frozenset[bytes] | None = None) -> Wording:
    """Return a Responses request without its encrypted reasoning, and without ids that refer to the reasoning.

    ``of``: only pieces with one of these hashes.
    """
    reason = BOUND_REASON if of is None else OTHERS_REASON
    try:
        items = msgspec.json.decode(fields.get("input", b""), type=list[dict[str, msgspec.Raw]])
    except UNREADABLE:
        return Wording(fields)
    kept: list[Item] = []
    losses: list[Loss] = []
    for number, item in enumerate(items):
        is_bound = (
            bytes(item.get("type", b"")) == b'"reasoning"' and bytes(item.get("encrypted_content", b"null")) != b"null"
        )
        if is_bound and (of is None or not of.isdisjoint(bound_reasoning(bytes(raw_json(item))))):
            losses.append(Loss(f"input[{number}]", reason, hint=True))
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
    """Return items without reasoning, and without the ids of items made with it; and the reasoning's numbers."""
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


def responses_history(fields: Mapping[str, msgspec.Raw], history: HistoryRules) -> Wording:
    """Return a Responses request with its conversation as ``history`` wants; anything but a list of items stays."""
    wording = _with_ids_and_system(fields, history)
    has_called = history.offers_called and "tools" in fields and b'"function_call"' in bytes(fields.get("input", b""))
    return _with_called(wording) if has_called else wording


def _with_ids_and_system(fields: Mapping[str, msgspec.Raw], history: HistoryRules) -> Wording:
    form, raw = history.call_ids.get("responses"), bytes(fields.get("input", b""))
    has_ids = form is not None and b'"call_id"' in raw
    has_system = history.one_system and any(role in raw for role in _INSTRUCTING)
    has_turns = not history.blank_turns and (b'"assistant"' in raw or b'""' in raw)
    if not (has_ids or has_system or has_turns):
        return Wording(fields)
    said, losses = dict(fields), list[Loss]()
    try:
        items: list[Item] = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
        changed = has_system and any(bytes(item.get("role", b"")) in _INSTRUCTING for item in items)
        if changed:
            items, losses = _with_one_system(items, said)
        if has_turns:
            kept, blank = without_blanks(list(enumerate(items)), "input")
            items, losses, changed = [item for _, item in kept], [*losses, *blank], changed or bool(blank)
    except (*UNREADABLE, KeyError):  # the provider reports the error
        return Wording(fields)
    if form is not None:
        ids = FittedIds(form)
        for item in items:
            if "call_id" in item and (fitted := ids.raw(item["call_id"])) is not item["call_id"]:
                item["call_id"], changed = fitted, True
    return Wording({**said, "input": raw_json(items)}, tuple(losses)) if changed else Wording(fields)


class _Function(msgspec.Struct):
    type: str = ""
    name: str = ""


_functions_decoder = msgspec.json.Decoder(list[_Function])


def _with_called(wording: Wording) -> Wording:
    """Return a request that offers its own functions, and those that its conversation has called."""
    fields = wording.fields
    try:
        offered = [each.name for each in _functions_decoder.decode(fields["tools"]) if each.type == "function"]
        called = [each.name for each in _functions_decoder.decode(fields["input"]) if each.type == "function_call"]
    except UNREADABLE:
        return wording
    return offering(wording, offered, called, lambda function: {"type": "function", **function})


def _with_one_system(items: list[Item], said: dict[str, msgspec.Raw]) -> tuple[list[Item], list[Loss]]:
    """Return ``items`` with later system prompts as the user's; the instructions of ``said`` have the first ones.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: an item is not valid.

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
    """Return a content as one text; None if the content has anything else."""
    if is_string(content):
        return msgspec.json.decode(content, type=str)
    parts = msgspec.json.decode(content, type=list[dict[str, msgspec.Raw]])
    if any(bytes(part.get("type", b"")) != b'"input_text"' for part in parts):
        return None
    return "\n\n".join(msgspec.json.decode(part["text"], type=str) for part in parts)


def _sealed_in(message: RawObject) -> list[str]:
    """Return the texts in a message that the gateway has sealed; an empty text for each other entry beside them."""
    try:
        blocks = objects_at(message.get("thinking_blocks"), "thinking_blocks")
        details = [] if blocks else objects_at(message.get("reasoning_details"), "reasoning_details")
    except Malformed:
        return []
    return [sealed_data(each) for each in (*blocks, *details)]


def _id(given: RawObject, name: str, path: str) -> str:
    call_id: str = decoded(needed_at(given, name, path), str, f"{path}.{name}")
    return call_id


def _output_text(text: msgspec.Raw) -> Item:
    return {"type": "output_text", "text": text, "annotations": []}


_ANY_JSON = b'"json_object"'

_LOST: Mapping[str, tuple[str, tuple[bytes, ...]]] = {  # by field: the reason, and the default values
    "n": ("Responses gives one answer", (b"1",)),
    "best_of": ("Responses gives one answer", (b"1",)),
    "echo": ("Responses repeats no prompt", (b"false",)),
    "include": ("Responses includes other things", (b"[]",)),
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
_READ = frozenset({
    *SHARED,
    *_LOST,
    *("logprobs", "max_completion_tokens", "max_tokens", "messages", "parallel_tool_calls", "prediction"),
    *("reasoning_effort", "response_format", "shows_thoughts", "stream_options", "tool_choice", "tools"),
    *("top_logprobs", "verbosity"),
})  # fmt: skip


def from_chat(fields: Mapping[str, msgspec.Raw], habits: Habits = _ANY) -> Wording:
    """Translate a chat completion request into a Responses request that is not stored.

    If the model of these ``habits`` reads the instructions after the input, the instructions become a part of the
    input: otherwise no cache would have them. If the model encrypts reasoning, the request asks for the encrypted
    reasoning.

    Raises:
        Malformed: there are no messages, or a field has another type than the API requires.

    """
    asked, losses = present(fields), Losses(once=True, changing_nothing=CHANGING_NOTHING)
    said: dict[str, Any] = said_of(asked, *SHARED, "parallel_tool_calls")
    # If JSON is asked for, OpenAI looks for the word JSON in the input alone.
    is_any_json = _ANY_JSON in bytes(fields.get("response_format", b""))
    transcript = Transcript(losses, instructs=not (is_any_json or habits.instructions_last), seal=habits.seal)
    for path, message in each_at(needed_at(asked, "messages", ""), "messages"):
        transcript.add(message, path)
    if transcript.instructions is not None:
        said["instructions"] = transcript.instructions
    said["input"] = transcript.items
    said["store"] = False  # the default is true, and a call that is stored is not raced
    if tools := _tools(asked, losses, searches=habits.searches):
        said["tools"] = tools
    choice = responses_tool_choice(asked.get("tool_choice"), losses)
    if choice is not None and tools:
        said["tool_choice"] = choice
    said |= _limit(asked, losses)
    if text := _text(asked, losses):
        said["text"] = text
    reasoning = {"effort": asked.get("reasoning_effort"), "summary": "auto" if "shows_thoughts" in asked else None}
    if any(reasoning.values()):
        said["reasoning"] = {name: value for name, value in reasoning.items() if value is not None}
    included = [ENCRYPTED] if habits.encrypts else []
    if decoded(asked.get("logprobs"), bool, "logprobs"):
        included.append(LOGPROBS)
        said |= said_of(asked, "top_logprobs")
    else:
        reason = "log probabilities are returned only if logprobs is true"
        losses.lose(asked, "top_logprobs", "", reason, b"0")
    if included:
        said["include"] = included
    lose_stream_options(asked, losses, _NO_SUCH_FIELD)
    losses.lose(asked, "prediction", "", "Responses takes no prediction of the answer", hint=True)
    for name, (reason, plain) in _LOST.items():
        losses.lose(asked, name, "", reason, *plain)
    losses.rest(asked, _READ, "", _NO_SUCH_FIELD)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.met())


def _tools(asked: RawObject, losses: Losses, *, searches: bool) -> list[Any]:
    tools = responses_tools(asked.get("tools"), losses)
    if searches and (found := search_in(asked, losses, {"type": "web_search"}, sizes=True)):
        del asked[SEARCH_FIELD]
        return [*tools, *found]
    return tools


def _limit(asked: RawObject, losses: Losses) -> dict[str, Any]:
    limits = {name: decoded(asked.get(name), int, name) for name in ("max_completion_tokens", "max_tokens")}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if not given:
        return {}
    name, limit = min(given.items(), key=lambda pair: pair[1])
    if 0 < limit < LEAST_TOKENS:  # lower limits are refused everywhere
        reason = f"Responses generates at least {LEAST_TOKENS} tokens: what is beyond is left out"
        losses.note([Loss(name, reason, nearly=True)])
        limit = LEAST_TOKENS
    return {"max_output_tokens": limit}


def _text(asked: RawObject, losses: Losses) -> dict[str, Any]:
    said: dict[str, Any] = said_of(asked, "verbosity")
    path = "response_format"
    known: tuple[str, ...] = ("type",)
    form = present(object_at(asked.get(path), path))
    match kind := decoded(form.get("type"), str, f"{path}.type"):
        case "json_schema":
            schema, at, known = inner_at(form, kind, path), f"{path}.{kind}", ("type", kind)
            shape = {"name": needed_at(schema, "name", at), **said_of(schema, "description", "schema", "strict")}
            said["format"] = {"type": kind, **shape}
            losses.rest(schema, ("name", "description", "schema", "strict"), at, _NO_SUCH_FIELD)
        case "json_object":
            said["format"] = {"type": kind}
        case "text" | None:
            pass
        case _:
            losses.add(f"{path}.type", f"Responses has no format {kind!r}")
    losses.rest(form, known, path, _NO_SUCH_FIELD)
    return said
