"""A conversation over several turns: the items so far, which the gateway adds to the next turn's new input."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.bodies import as_utf8, encoded, events
from providers.dialects.dialect import Habits
from providers.dialects.reading import RawObject
from providers.dialects.recalling import MOST_ABOUT_BYTES, MOST_HEARD_BYTES
from providers.dialects.responses.compacting import MARK, TRIGGER, opened
from providers.dialects.responses.echo import Echo
from providers.dialects.responses.events import ENDS, read_event
from providers.dialects.responses.fields import EventWriter, responses_usage, thinking_of
from providers.dialects.responses.open_items import TRANSLATED
from providers.dialects.unshown import UnshownEntry
from providers.dialects.wording import Loss, Wording, decoded, googles, raw_json
from providers.models import Usage
from providers.refusals import UNREADABLE, UpstreamError

_TELLING = re.compile(rb'"type"\s*:\s*"response\.(?:created|completed|incomplete|output_item\.done)"')
# Items whose ids are only names: another provider may refuse an id that is not its own.
_ID_IS_NAME = frozenset({"message", "function_call", "custom_tool_call", "reasoning", "shell_call", "apply_patch_call"})
_EMPTY = (b"", b"null", b"[]", b'""')
_REASONING, _ASSISTANT = b'"reasoning"', b'"assistant"'
_TRIGGER = msgspec.Raw(TRIGGER)
_MESSAGE, _USER = msgspec.Raw(b'"message"'), msgspec.Raw(b'"user"')

_item = msgspec.json.Decoder(RawObject)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_text = msgspec.json.Decoder(str)
_asked = msgspec.json.Decoder(list[str] | None)


def items_of(prompt: msgspec.Raw | None) -> bytes | None:
    """Return the items of an ``input``, as JSON without the brackets; None: the input is no text and no array."""
    if prompt is None:
        return b""
    raw = bytes(prompt).strip()
    if raw.startswith(b'"'):
        return b'{"role":"user","content":%b}' % raw
    return raw[1:-1].strip() if raw.startswith(b"[") else None


def joined(*items: bytes) -> bytes:
    """Return several lists of items as one; each is JSON without the brackets."""
    return b",".join(each for each in items if each)


def single_items(items: bytes) -> list[bytes]:
    """Return each of a list of items (JSON without the brackets).

    Raises:
        msgspec.DecodeError: ``items`` are no such list.

    """
    return [bytes(raw) for raw in _items.decode(b"[%b]" % items)]


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    status: str | None = None
    output: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    response: msgspec.Raw = msgspec.Raw()
    item: msgspec.Raw = msgspec.Raw()


_event = msgspec.json.Decoder(_Event)
_response = msgspec.json.Decoder(_Response)
_OVER = frozenset({"completed", "incomplete"})

_NOT_ABOUT = frozenset({"output", "instructions", "tools"})  # items, and fields that the client sends with each request


class Heard:
    """The parts of an answer's events that the next turn needs."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.is_over = False  # whether the answer is complete, or was cut short by its own limit
        self.is_lost = False  # whether the output was longer than ``MOST_HEARD_BYTES``, and so is not kept
        self.about = b""  # the ended answer without items, instructions and tools; empty: too long
        self._done: list[bytes] = []
        self._done_bytes = 0
        self._output: list[bytes] | None = None

    def hear(self, data: bytes) -> None:
        """Read the data of one event."""
        if _TELLING.search(data) is None:
            return
        data = as_utf8(data)  # the next provider is sent these data
        try:
            event = _event.decode(data)
            response = _response.decode(event.response) if memoryview(event.response) else None
        except UNREADABLE:  # left to the attempt itself: the client gets the data unchanged
            return
        if response is not None:
            self.id = response.id or self.id
        if event.type == "response.output_item.done":
            self._done_bytes += len(bytes(event.item))
            if self._done_bytes > MOST_HEARD_BYTES:
                self.is_lost = True
                self._done.clear()
            if not self.is_lost:
                self._done.append(bytes(event.item))
        elif event.type in ENDS:
            self.is_over = True
            if not self.is_lost and len(data) <= 2 * MOST_HEARD_BYTES:
                self._output = [bytes(raw) for raw in (response and response.output) or ()]
                self.about = _about(event.response)
            else:
                self.is_lost = True

    def take(self, block: bytes) -> None:
        """Read whole events."""
        if _TELLING.search(block) is not None:
            for event in events(block):
                self.hear(event.data)

    def read(self, body: bytes) -> None:
        """Read an answer that came whole."""
        body = as_utf8(body)
        try:
            whole = _response.decode(body)
        except UNREADABLE:
            return
        self.id, self.is_over, self.is_lost = whole.id, whole.status in _OVER, len(body) > 2 * MOST_HEARD_BYTES
        self._output = [] if self.is_lost else [bytes(raw) for raw in whole.output or ()]
        self.about = b"" if self.is_lost else _about(body)

    @property
    def output(self) -> bytes:
        """The items of the answer as input of the next turn, as JSON without the brackets."""
        return joined(*(item for raw in self._items if (item := _as_input(raw)) is not None))

    @property
    def said(self) -> Sequence[tuple[str | None, bytes]]:
        """The id of each item of the answer, and the item as input of the next turn.

        Reasoning without content is included: the sender of the next turn knows whether the id is still valid.
        """
        return [(id_of(raw), _as_input(raw) or raw) for raw in self._items]

    @property
    def _items(self) -> Sequence[bytes]:
        return self._output or self._done  # some servers leave the items out of the last event


def _about(response: bytes | msgspec.Raw) -> bytes:
    """Return the fields of a response besides its items, as JSON; b"" if they are longer than ``MOST_ABOUT_BYTES``."""
    try:
        fields = _item.decode(response)
    except UNREADABLE:
        return b""
    about = encoded({name: value for name, value in fields.items() if name not in _NOT_ABOUT})
    return about if len(about) <= MOST_ABOUT_BYTES else b""


def answered_again(about: bytes, items: Sequence[tuple[str | None, bytes]]) -> bytes:
    """Return a response as it was answered, from the parts of a ``Heard``; without instructions and tools."""
    output = [raw if name is None else encoded({"id": name, **_item.decode(raw)}) for name, raw in items]
    return encoded({**_item.decode(about), "output": msgspec.Raw(b"[%b]" % b",".join(output))})


# Of a stored response.

_ID_OF_RESPONSE = re.compile(rb'"id"\s*:\s*"(resp[^"\\]{1,200})"')
_ENDING = re.compile(rb'"response\.(?:completed|incomplete|done|failed|cancelled)"')
_ENDS = ENDS | {"response.failed", "response.cancelled"}


def id_of_response(answer: bytes) -> str | None:
    """Return the id of the response whose JSON or events begin with ``answer``; None: no id."""
    found = _ID_OF_RESPONSE.search(answer)
    return None if found is None else found[1].decode(errors="replace")


def ended(data: bytes) -> bytes | None:
    """Return the response in the data of a last event; None: another event."""
    if _ENDING.search(data) is None:
        return None
    try:
        said = _event.decode(data)
    except UNREADABLE:
        return None
    return bytes(said.response) if said.type in _ENDS else None


def state_of(answer: bytes) -> tuple[str | None, Usage | None]:
    """Return the status and the usage of a stored response, as far as the response states them."""
    try:
        status = _response.decode(answer).status
    except UNREADABLE:
        return None, None
    try:
        return status, read_event(b'{"type":"response.completed","response":%b}' % answer, ()).usage
    except UpstreamError:
        return status, None


class _Named(msgspec.Struct, gc=False):
    id: str | None = None


_named = msgspec.json.Decoder(_Named)


def id_of(raw: bytes | msgspec.Raw) -> str | None:
    """Return the id of an item; None: no id."""
    try:
        return _named.decode(raw).id
    except UNREADABLE:
        return None


def _as_input(raw: bytes) -> bytes | None:
    """Return an item of an output as an item of an input; None if only one provider knows what the item stands for.

    Reasoning that is neither text nor encrypted means something only to the provider that stored it.
    """
    try:
        item = _item.decode(raw)
        kind = _text.decode(item.get("type", b'""'))
    except UNREADABLE:
        return raw
    if kind == "reasoning":
        if bytes(item.get("id", b"")).startswith(b'"%b' % TRANSLATED.encode()):
            return raw  # such reasoning is removed, or translated back, when the request is sent
        if is_bare(item):
            return None
    if kind in _ID_IS_NAME and "id" in item:
        del item["id"]
        return encoded(item)
    return raw


def is_bare(item: Mapping[str, msgspec.Raw]) -> bool:
    """Whether reasoning is neither text nor encrypted: a bare id, for the provider that stored the reasoning."""
    return all(bytes(item.get(name, b"")) in _EMPTY for name in ("encrypted_content", "content"))


# Reasoning that a provider of Responses would not find. A client gets the reasoning of a chat model as an item with an
# id of the gateway's, and sends the item back with its next request. And where nothing is stored, an id alone means
# nothing. OpenAI answers "Item with id 'rs_…' not found. Items are not persisted when `store` is set to false."
# (https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items)

_MARK = f'"{TRANSLATED}'.encode()
_THINKING = re.compile(rb'"encrypted_content"\s*:\s*"(?:(?:redacted_)?thinking:|google-)')
_IN_WORDS = b'"reasoning_text"'
_OF_OTHERS = "Responses refuses reasoning that was translated from another provider's model"
_OF_BROKEN = "nothing that the model said follows it: its answer broke off"
_WITHOUT_CONTENT = "it is reasoning without its content, and nothing is stored that its id could name"
ENCRYPTED = "reasoning.encrypted_content"


# From GPT-6.2 on, a reasoning item is dropped if the text before it, its reader, account or end user differs, and the
# answer names the id. developers.openai.com/api/docs/guides/keep-prefix-unchanged.md, read on 2026-11-29.
_ID = re.compile(r"[\w-]{1,80}", re.ASCII)


def place_of(entry: UnshownEntry) -> str:
    """Return the place of a reasoning item that the model was not shown: its id, as the answer states no place."""
    return f"input[{entry.id}]" if _ID.fullmatch(entry.id) else "input"


def may_have_others(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a conversation may have items that a model of another vendor has made."""
    raw = bytes(fields.get("input", b""))
    return _MARK in raw or _IN_WORDS in raw or _THINKING.search(raw) is not None


def without_lost_thoughts(fields: Mapping[str, msgspec.Raw], habits: Habits) -> Wording:
    """Return a request without reasoning that its provider would not find, and with the gateway's summaries as text.

    A model that gives no thoughts in words also gets no thoughts in words of other models, and no reasoning that Codex
    keeps of an answer that broke off. In this turn and each later turn such reasoning is a 400: "Item 'rs_…' of type
    'reasoning' was provided without its required following item" (github.com/continuedev/continue/issues/8933, read on
    2026-11-29).

    Raises:
        Malformed: the input is not an array of items; only checked where such items seem to exist.

    """
    raw = bytes(fields.get("input", b""))
    may_lack = _REASONING in raw and bytes(fields.get("store", b"")) == b"false"
    is_in_words = habits.signs and _IN_WORDS in raw  # "Invalid 'input[1].content': array too long. Expected … 0"
    has_summary = MARK in raw or TRIGGER in raw
    if _MARK not in raw and not has_summary and not may_lack and not is_in_words and _THINKING.search(raw) is None:
        return Wording(fields)
    items = decoded(fields["input"], list[RawObject], "input")
    broken = _of_broken(items) if may_lack and habits.signs else ()
    kept: list[RawObject] = []
    losses: list[Loss] = []
    has_lost = False  # since the client's last input: what follows may be named only together with the lost reasoning
    for number, item in enumerate(items):
        kind = bytes(item.get("type", b'"message"')).strip(b'"').decode()
        is_reasoning = kind == "reasoning"
        if kind not in _ID_IS_NAME or (kind == "message" and bytes(item.get("role", b"")) != _ASSISTANT):
            has_lost = False
        encrypted = item.get("encrypted_content") if is_reasoning else None
        is_signed = thinking_of(encrypted, "") is not None or bool(googles(encrypted)[1])
        if has_summary and (told := opened(item)) is not None:
            kept.append({"type": _MESSAGE, "role": _USER, "content": told})
        elif is_signed or bytes(memoryview(item.get("id", b""))[: len(_MARK)]) == _MARK:
            losses.append(Loss(f"input[{number}]", _OF_OTHERS, hint=True))
        elif is_in_words and is_reasoning and bytes(item.get("content", b"")) not in _EMPTY:
            losses.append(Loss(f"input[{number}]", _OF_OTHERS, hint=True))
            has_lost = True
        elif may_lack and is_reasoning and is_bare(item):
            losses.append(Loss(f"input[{number}]", _WITHOUT_CONTENT, hint=True))
            has_lost = True
        elif number in broken:
            losses.append(Loss(f"input[{number}]", _OF_BROKEN, hint=True))
        elif has_lost and kind in _ID_IS_NAME:
            kept.append({name: value for name, value in item.items() if name != "id"})
        else:
            kept.append(item)
    kept = _without_earlier_triggers(kept)
    return Wording({**fields, "input": raw_json(kept)}, tuple(losses)) if kept != items else Wording(fields)


def _without_earlier_triggers(items: Sequence[RawObject]) -> list[RawObject]:
    """Return items without earlier turns' requests for a summary: OpenAI takes such a request last."""
    return [*(item for item in items[:-1] if item.get("type") != _TRIGGER), *items[-1:]]


def _of_broken(items: Sequence[RawObject]) -> frozenset[int]:
    """Return the places of reasoning with an id after which nothing of the same answer follows."""
    found, is_followed = set[int](), False
    for number in range(len(items) - 1, -1, -1):
        item = items[number]
        kind = bytes(item.get("type", b'"message"')).strip(b'"').decode()
        if kind != "reasoning":
            is_users = kind == "message" and bytes(item.get("role", b"")) != _ASSISTANT
            is_followed = not is_users and not kind.endswith("_output")
        elif not is_followed and "id" in item:
            found.add(number)
    return frozenset(found)


def with_thoughts(fields: Mapping[str, msgspec.Raw]) -> Mapping[str, msgspec.Raw]:
    """Return a Responses request that asks for encrypted reasoning, which later requests can send back."""
    try:
        asked = _asked.decode(fields.get("include", b"null")) or []
    except UNREADABLE:
        return fields
    return fields if ENCRYPTED in asked else {**fields, "include": raw_json([*asked, ENCRYPTED])}


def warmed_up(fields: Mapping[str, msgspec.Raw], *, response_id: str, created_at: int, model: str) -> bytes:
    """Return the events of a response without an output, for a turn that only prepares the next one.

    Raises:
        Malformed: a field that is repeated has another type than the API requires.

    """
    echo, writer = Echo(fields, response_id=response_id, created_at=created_at, model=model), EventWriter()
    nothing: dict[str, Any] = responses_usage({})
    writer.say("response.created", response=echo.state("in_progress"))
    writer.say("response.in_progress", response=echo.state("in_progress"))
    writer.say("response.completed", response=echo.state("completed", usage=nothing))
    return writer.take()
