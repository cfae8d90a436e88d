"""The deltas of a chat stream, in one form for all readers and translations, whichever form a server sends.

Some servers name a chunk's delta ``message``, as in whole answers. Some count parallel tool calls wrongly, or not at
all. Some still send ``function_call``, which came before tool calls.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from providers.bodies import complains, events
from providers.dialects.dialect import Offered
from providers.dialects.events import (
    DONE,
    TEXTS_OF_THOUGHTS,
    Arguments,
    EarlyObject,
    ended_with,
    few,
    is_empty_object,
    is_unread,
    replaces,
)
from providers.dialects.wording import GEMINIS, REDACTED, SIGNED, sealed_block, with_blocks
from providers.models import Usage, completed, usage_of
from providers.refusals import FAILED, SURPRISES, UNREADABLE, ErrorKind, UpstreamError, base_code, error_in

_decoder = msgspec.json.Decoder(dict[str, Any])


class ChunkTranslation(ABC):
    """Reads the chunks of one answer for a translation. Raises the provider's error if a chunk has one."""

    def __init__(
        self, asked: Mapping[str, msgspec.Raw], secrets: Sequence[str] = (), *, offered: Offered = lambda _: ()
    ) -> None:
        """``offered`` reads the tools of the request ``asked``."""
        self._errors = StreamErrors(secrets)
        self._tools, self._offered = asked.get("tools"), offered
        self._ended = False
        self._counted = UsageSoFar()

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the chunks have reported."""
        return self._counted.told

    @abstractmethod
    def _take(self, chunk: Mapping[str, Any], choices: Sequence[Mapping[str, Any]], said: list[bytes]) -> None:
        """Append the events that a chunk becomes."""

    @abstractmethod
    def _done(self, said: list[bytes]) -> None:
        """Append the end of the answer."""

    def feed(self, block: bytes) -> bytes:
        """Translate whole chunks; return the events.

        Raises:
            UpstreamError: a chunk is malformed, or is the provider's error.

        """
        said: list[bytes] = []
        for item in events(block):
            data = item.data.strip()
            if not data or self._ended:
                continue
            try:
                if data == DONE:
                    self._done(said)
                    continue
                chunk = _decoder.decode(data)
                choices: list[dict[str, Any]] = few(chunk.get("choices") or [], "choices")
                self._errors.take(chunk, choices, data)
                self._take(chunk, choices, said)
            except UpstreamError as error:
                raise error.after(said) from None
            except SURPRISES as error:
                message = f"sent an invalid chunk: {type(error).__name__}"
                raise UpstreamError(ErrorKind.INVALID_RESPONSE, message).after(said) from None
        return b"".join(said)


class TranslationIntoChunks(ABC):
    """Reads the events of one answer of another API, and writes chunks. Raises the provider's error in an event."""

    api: ClassVar[str]  # the name of the API in errors

    @abstractmethod
    def end(self) -> bytes:
        """Return the usage and [DONE], if the answer has its end and these were not sent yet."""

    @abstractmethod
    def _take(self, data: bytes, said: list[bytes]) -> None:
        """Append the chunks that an event becomes."""

    def feed(self, block: bytes) -> bytes:
        """Translate whole events; return the chunks.

        Raises:
            UpstreamError: an event is malformed, or is the provider's error.

        """
        said: list[bytes] = []
        for item in events(block):
            data = item.data.strip()
            if data == DONE:
                said.append(self.end())
            elif data:
                try:
                    self._take(data, said)
                except UpstreamError as error:
                    raise error.after(said) from None
                except SURPRISES as error:
                    message = f"sent an event that {self.api} does not have: {type(error).__name__}"
                    raise UpstreamError(ErrorKind.INVALID_RESPONSE, message).after(said) from None
        return b"".join(said)


OF_CALLS = frozenset({"role", "tool_calls"})  # fields of a delta that are about calls only
# Fields of a delta that are no thoughts.
_ANSWERS = frozenset({"audio", "content", "function_call", "images", "refusal", "tool_calls"})


class StreamErrors:
    """Finds the errors of a stream: in choices, beside choices, and errors that are not called errors."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._complaint: bytes | None = None  # the last event without choices, if it has the text of an error
        self._said = self._called = False  # whether any part of an answer, or of a call, has come

    def take(self, chunk: Mapping[str, Any], choices: Sequence[Any], data: bytes) -> None:
        """Raise the error in a chunk. ``data``: the chunk as it came."""
        is_error = chunk.get("error") or chunk.get("object") == "error"
        is_error = is_error or ("base_resp" in chunk and base_code(chunk["base_resp"]))
        is_end = False
        for each in choices:
            if reason := each.get("finish_reason"):
                is_end, is_error = True, is_error or string(reason) in FAILED
            is_error = is_error or each.get("error")
            delta = each.get("delta") or each.get("message")
            if isinstance(delta, dict):
                if not self._said:
                    self._said = not _ANSWERS.isdisjoint(filter(delta.get, delta))
                if "tool_calls" in delta or "function_call" in delta:
                    self._called = self._called or bool(delta.get("tool_calls") or delta.get("function_call"))
        if is_error:
            raise error_in(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
        if is_end and not self._called:
            self._check_ends(choices)
        if not (choices or chunk.get("usage")) and complains(data):
            self._complaint = data
        elif self._complaint is not None and any(map(_says_some, choices)):
            self._complaint = None

    def _check_ends(self, choices: Sequence[Any]) -> None:
        """Raise an error if a choice without calls ended with a call that its vendor could not read."""
        for each in choices:
            reason, native = each.get("finish_reason"), each.get("native_finish_reason")
            if reason and is_unread(reason, native, after_text=self._said):
                raise ended_with(string(native or reason))

    def check(self) -> None:
        """Raise the error with which the stream ended in place of a finish reason, if there was one."""
        if self._complaint is not None:
            raise error_in(self._complaint, self._secrets, otherwise=ErrorKind.SERVER_ERROR)


def complaint(data: bytes) -> bytes:
    """Return a chunk for an event of another API that has the text of an error; b"" for other events."""
    return b"data: %s\n\n" % msgspec.json.encode({**_decoder.decode(data), "choices": []}) if complains(data) else b""


def _says_some(choice: Mapping[str, Any]) -> bool:
    delta = delta_of(choice)
    return isinstance(delta, dict) and any(said for name, said in delta.items() if name != "role")


# Vendors' names for a delta's thinking; some vendors send the same text under two of these names. The third is GitHub
# Copilot's, the fourth Ollama's.
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")


THINKS = frozenset({*_THOUGHTS, "reasoning_details", "thinking_blocks"})  # a delta without these fields has only a text


def said_in(delta: Mapping[str, Any]) -> tuple[str, str]:
    """Return the thinking and the text of a delta, each once, whichever forms a server sends."""
    content = delta.get("content")
    thought, text = ("", content) if isinstance(content, str) else texts_in(content)
    thought = next((told for name in _THOUGHTS if (told := string(delta.get(name)))), thought)
    return thought or unsigned_in(delta.get("reasoning_details"), delta.get("thinking_blocks")), text


def texts_in(content: Any) -> tuple[str, str]:
    """Return the thinking and the text of typed parts: Mistral's, Databricks', or those of a server of texts alone."""
    thoughts: list[str] = []
    texts: list[str] = []
    for part in few(content, "parts") if isinstance(content, list) else (content,):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            if string(part.get("type")) in _THINKING or part.get("thinking"):
                told = (part.get(name) for name in _FIELDS_OF_THOUGHTS)
                thoughts.append(next((said for each in told if (said := _joined_texts(each))), ""))
            else:
                texts.append(string(part.get("text")))
    return "".join(thoughts), "".join(texts)


_THINKING = frozenset({"thinking", "reasoning"})
_FIELDS_OF_THOUGHTS = ("thinking", "summary", "reasoning", "text")  # names of the text in a part of thoughts


def _joined_texts(told: Any) -> str:
    if isinstance(told, list):
        return "".join(string(each.get("text")) if isinstance(each, dict) else string(each) for each in told)
    return string(told)


def unsigned_in(details: Any, blocks: Any) -> str:
    """Return the unsigned thinking in OpenRouter's ``details``, or else in LiteLLM's ``blocks``."""
    thought = ""
    for told in (details, blocks) if details or blocks else ():
        pieces = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
        fields = [each.get(name) for each in pieces if not each.get("signature") for name in TEXTS_OF_THOUGHTS]
        thought = thought or "".join(map(string, fields))
    return thought


def calls_in(delta: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the pieces of tool calls in a delta; some servers send one piece without a list around it."""
    calls = delta.get("tool_calls")
    if not calls:
        return ()
    calls = few(calls, "tool calls") if isinstance(calls, list) else (calls,)
    return [call for call in calls if isinstance(call, dict)]


def signed_in(delta: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return Anthropic's blocks of thinking in a delta that end with a signature, or are encrypted.

    LiteLLM sends such blocks as ``thinking_blocks``, OpenRouter as ``reasoning_details``. If there are none, return the
    reasoning that other vendors' models have encrypted, as OpenRouter sends it.
    """
    blocks, details = delta.get("thinking_blocks"), delta.get("reasoning_details")
    if blocks is None and details is None:
        return []
    if not isinstance(blocks, list) or not blocks:
        blocks = [_of_detail(each) for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    found: list[Mapping[str, Any]] = [each for each in blocks if isinstance(each, dict)]
    bound = {SIGNED: "signature", REDACTED: "data"}
    signed = [each for each in found if string(each.get(bound.get(str(each.get("type")), "")))]
    return few(signed or _sealed_in(details), "signed blocks")


class ThoughtsSoFar(msgspec.Struct):
    """The thoughts of an answer whose client has no place for signed blocks: they become one signature.

    Anthropic's models show a thought in pieces, and then its signature; the two together are a block.
    """

    pieces: list[str] = []  # the text of the next block
    blocks: list[Mapping[str, Any]] = []  # those whose signature is still to be sent

    def add(self, thought: str, blocks: Sequence[Mapping[str, Any]]) -> str:
        """Add a piece of thoughts, and blocks; return the text of both that was not shown yet."""
        if blocks and not (thought or self.pieces):
            thought = "".join(string(block.get("thinking")) for block in blocks)
        elif thought:
            self.pieces.append(thought)
        for block in blocks:
            is_bare = block["type"] == SIGNED and not block.get("thinking")
            self.blocks.append({**block, "thinking": "".join(self.pieces)} if is_bare else block)
            self.pieces.clear()
        return thought

    def take_signature(self) -> str:
        """Return the signature for the ``blocks``, of which there are some; they count as sent."""
        signature = with_blocks(self.blocks)
        self.blocks.clear()
        return signature


def _sealed_in(details: Any) -> list[Mapping[str, Any]]:
    given = [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    return [block for block in map(sealed_block, given) if block is not None]


def googles_in(holder: Mapping[str, Any]) -> str:
    """Return Google's signature in a delta or in a call within it: in Google's field, or as OpenRouter's detail."""
    extra, details = holder.get("extra_content"), holder.get("reasoning_details")
    google = extra.get("google") if isinstance(extra, dict) else None
    if isinstance(google, dict):
        return string(google.get("thought_signature"))
    for detail in details if isinstance(details, list) else ():
        match detail:
            case {"type": "reasoning.encrypted", "data": str(signature), "format": str(form)} if form == GEMINIS:
                return signature
    return ""


def _of_detail(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    match detail:
        case {"format": str(vendor)} if vendor and not vendor.startswith("anthropic"):
            return {}
        case {"type": "reasoning.text", "signature": signature}:
            return {"type": SIGNED, "thinking": string(detail.get("text")), "signature": signature}
        case {"type": "reasoning.encrypted", "data": data}:
            return {"type": REDACTED, "data": data}
    return {}


def delta_of(choice: Mapping[str, Any]) -> Any:
    """Return the delta of a decoded choice: an object, unless the server sent something else. None: no delta.

    A ``function_call`` in the delta becomes a tool call without an id.
    """
    delta: Any = choice.get("delta")
    if delta is None:
        delta = choice.get("message")
    function = delta.get("function_call") if isinstance(delta, dict) else None
    if isinstance(function, dict) and function and not delta.get("tool_calls"):
        return {**delta, "tool_calls": [{"index": 0, "type": "function", "function": function}]}
    return delta


def usage_in(chunk: Mapping[str, Any]) -> Any:
    """Return the usage that a decoded chunk reports; Groq and Moonshot report it in other places."""
    if (usage := chunk.get("usage")) is not None:
        return usage
    choices = chunk.get("choices")
    places = [chunk.get("x_groq"), *(choices if isinstance(choices, list) else ())]
    return next((place["usage"] for place in places if isinstance(place, dict) and place.get("usage")), None)


def usage_after(earlier: Mapping[str, Any] | None, later: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ``later`` usage of a stream, with facts that only an ``earlier`` usage has, as ``completed`` says."""
    if earlier is None:
        return later
    told, before = usage_of(later), usage_of(earlier)
    known = completed(told, before)
    if known == told:
        return later
    lost = () if known.stated_usd == before.stated_usd else _COSTS  # the costs of a part of the answer
    kept = {name: value for name, value in earlier.items() if name not in lost}
    told_again = {name: value for name, value in later.items() if value or name in _COSTS or not kept.get(name)}
    return kept | {name: _joined(kept.get(name), value) for name, value in told_again.items() if value is not None}


def _joined(before: Any, value: Any) -> Any:
    if not (isinstance(before, dict) and isinstance(value, dict)):
        return value
    return before | {name: count for name, count in value.items() if count is not None}


class UsageSoFar:
    """The usage that the chunks of a stream have reported."""

    def __init__(self) -> None:
        self.told: Usage | None = None
        self.reported: Mapping[str, Any] = {}  # the same usage, as the chunks have it

    def take(self, usage: Any, chunk: Mapping[str, Any]) -> bool:
        """Add the usage that a decoded chunk reports (``usage_in``); return whether there was any."""
        if not isinstance(usage, dict) or not usage:
            return False
        self.reported = usage_after(self.reported or None, usage)
        self.told = completed(usage_of(usage, chunk.get("service_tier")), self.told)
        return True


_COSTS = frozenset({"cost", "cost_in_usd_ticks", "cost_details", "is_byok"})


def pictures_in(delta: Mapping[str, Any]) -> list[str]:
    """Return the addresses of the pictures in a delta; most addresses contain the picture (``data:``)."""
    content = delta.get("content")
    given = [*(delta.get("images") or ()), *(content if isinstance(content, list) else ())]
    found = [each.get("image_url") for each in given if isinstance(each, dict)]
    urls = [each.get("url") if isinstance(each, dict) else each for each in found]
    return [url for url in urls if isinstance(url, str) and url]


def sound_in(delta: Mapping[str, Any]) -> tuple[str, str]:
    """Return a delta's sound in Base64, and its transcript."""
    audio = delta.get("audio")
    return (string(audio.get("data")), string(audio.get("transcript"))) if isinstance(audio, dict) else ("", "")


def split_data(url: str) -> tuple[str, str] | None:
    """Return the type and the Base64 of a ``data:`` address; None: another address."""
    head, comma, data = url.partition(",")
    return (head[5:-7], data) if comma and head.startswith("data:") and head.endswith(";base64") else None


def no_place(what: str, api: str) -> UpstreamError:
    """Return the error, to be raised, of an answer with something for which the client's API has no place."""
    return UpstreamError(ErrorKind.NO_PLACE, f"answered with {what}, for which {api} has no place")


class _Call:
    """What is known of one tool call."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self._arguments = Arguments()
        self._chars = 0  # characters of the arguments
        self._is_custom = False
        self._repeats = False

    def add(self, call_id: str, name: str, arguments: str, *, is_custom: bool) -> str:
        """Add a piece; return the new part of its ``arguments``."""
        self.id = self.id or call_id
        self.name = self.name or name
        self._is_custom = is_custom
        if not is_custom and replaces(self._arguments.pieces, arguments) and arguments.strip() != "{}":
            self._arguments, self._chars = Arguments(), 0
        new = arguments if is_custom or not self._chars else self._new(arguments)
        if new and (self._chars or new.strip()):  # blanks count after the first other character
            self._arguments.pieces.append(new)
            self._chars += len(new)
        return new

    def _new(self, arguments: str) -> str:
        """Return the new part of a piece: some servers repeat all arguments so far with each piece, or once at the end.

        A piece that begins with the whole object so far is a repetition, as two objects in a row are no JSON. But where
        an object may be the next value, the piece continues the arguments: ``{"a":`` and ``{"a":1}}``. The exception is
        a call that is known to repeat.
        """
        if arguments[:1] != "{" or not self._arguments.pieces[0].startswith("{"):
            return arguments
        if not self._repeats and self._arguments.may_take_object():
            return arguments
        if len(arguments) >= self._chars and arguments.startswith("".join(self._arguments.pieces)):
            self._repeats = True
            return arguments[self._chars :]
        is_again = self._arguments.is_whole() and _is_same("".join(self._arguments.pieces), arguments)
        return "" if is_again else arguments

    def is_whole(self) -> bool:
        """Whether the arguments are complete JSON; a custom tool's text may be complete at any time.

        A call without any arguments may still get some.
        """
        return self._is_custom or self._arguments.is_whole()

    def is_followed(self, name: str, arguments: str) -> bool:
        """Whether a piece with this call's id begins another call: some servers give all parallel calls one id.

        The piece begins another call if the arguments are whole, and the piece has another name, or another whole
        object: no second object continues the first one.
        """
        if not name or self._is_custom or not self._arguments.is_whole():
            return False
        if name != self.name:
            return True
        told, new = "".join(self._arguments.pieces), Arguments([arguments])
        is_another = arguments[:1] == "{" and told[:1] == "{" and new.is_whole() and not is_empty_object(told)
        return is_another and not arguments.startswith(told) and not _is_same(told, arguments)

    def came_at_once(self) -> bool:
        """Whether all arguments came in one piece, as far as is known."""
        return len(self._arguments.pieces) == 1 and self._arguments.is_whole()


class CallNumbers:
    """Finds the tool call of a choice to which each piece belongs. Calls are numbered from 0, as they begin.

    A piece belongs to the call with its index, else to the call with its id, else to the last call.
    Some servers give all parallel calls one index: there a piece with another id and a name begins a call. If the name
    is the same, the piece begins a call only after the arguments are complete: some servers give every piece another
    id, and the name again.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_id: dict[tuple[int | None, str], int] = {}  # the first call with this id, at this index or at any
        self._by_index: dict[int, int] = {}  # the last call with this index
        self._early: dict[int, EarlyObject] = {}  # empty objects of calls with arguments
        self._kept: set[int] = set()  # numbers of the calls whose empty object is kept back

    def take(self, piece: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Return the number of the call to which a piece belongs, and the piece without arguments that came before."""
        index, custom = piece.get("index"), piece.get("custom")
        function = custom or piece.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name = string(piece.get("id")), string(function.get("name"))
        arguments = "" if custom else written_arguments(function.get("arguments"))
        index = index if isinstance(index, int) else None
        number = self._found(call_id, index, name, arguments)
        if number is None:
            number = len(self._calls)
            self._calls.append(_Call())
            self._by_index[number if index is None else index] = number
        new = self._calls[number].add(call_id, name, arguments, is_custom=bool(custom))
        for place in (index, None) if call_id else ():
            self._by_id.setdefault((place, call_id), number)
        return number, piece if new == arguments else {**piece, "function": {**function, "arguments": new}}

    def say(self, piece: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Return what may be sent after one more piece: the same as ``take``, except for objects that may be too early.

        An empty object is kept back until the call's arguments replace the object, or all calls have ended (``rest``).
        """
        number, piece = self.take(piece)
        function = piece.get("function")
        if not isinstance(function, dict) or not (arguments := written_arguments(function.get("arguments"))):
            return number, piece
        early = self._early.setdefault(number, EarlyObject())
        said = early.add(arguments)
        (self._kept.add if early.is_kept else self._kept.discard)(number)
        return number, piece if said == arguments else {**piece, "function": {**function, "arguments": said}}

    def is_behind(self, number: int) -> bool:
        """Whether a call that did not begin with ``{}`` has gone on, while calls that began so are kept back."""
        if not self._kept or number in self._kept or number not in self._early:
            return False
        return not (self._early[number].came or self._calls[number].came_at_once())

    def rest(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the objects that were kept back: the calls have ended."""
        if not self._kept:
            return []
        kept, self._kept = sorted(self._kept), set()
        return [(number, {"function": {"arguments": self._early[number].end()}}) for number in kept]

    def _found(self, call_id: str, index: int | None, name: str, arguments: str) -> int | None:
        same = self._by_id.get((index, call_id)) if call_id else None
        if same is not None and not self._calls[same].is_followed(name, arguments):
            return same
        if same is not None:  # later pieces with this id belong to the call that begins
            for place in (index, None):
                self._by_id.pop((place, call_id), None)
            return None
        if index is not None:
            last = self._by_index.get(index)
        else:
            last = len(self._calls) - 1 if self._calls and not call_id else None
        return None if last is None or self._is_another(self._calls[last], call_id, name, arguments) else last

    @staticmethod
    def _is_another(last: _Call, call_id: str, name: str, arguments: str) -> bool:
        """Whether a piece belongs to another call than the ``last`` call with its index."""
        if not (name and last.name) or (call_id and call_id == last.id):
            return False
        if call_id and last.id:
            return name != last.name or last.is_whole()
        return (name != last.name or bool(arguments.strip())) and last.is_whole()


def _is_same(arguments: str, others: str) -> bool:
    with suppress(*UNREADABLE):
        return bool(msgspec.json.decode(arguments) == msgspec.json.decode(others))
    return False


def string(value: Any) -> str:
    """Return ``value`` if it is text, otherwise ""."""
    return value if isinstance(value, str) else ""


def written_arguments(arguments: Any) -> str:
    """Return a call's arguments, or a piece of them, as text; some servers send the object and not a string."""
    if isinstance(arguments, str):
        return arguments
    return msgspec.json.encode(arguments).decode() if arguments else ""


def with_deltas(data: bytes) -> bytes:
    """Return a chunk with each choice's ``message`` as its ``delta``, and numbered tool calls.

    Anything but a chunk is unchanged.
    """
    with suppress(*UNREADABLE, TypeError, AttributeError):
        chunk = _decoder.decode(data)
        for choice in chunk["choices"]:
            if choice.get("delta") is None and isinstance(message := choice.pop("message", None), dict):
                calls = message.get("tool_calls")
                for number, call in enumerate(calls if isinstance(calls, list) else ()):
                    call.setdefault("index", number)
                choice["delta"] = message
        if chunk.get("object") == "chat.completion":
            chunk["object"] = "chat.completion.chunk"
        return msgspec.json.encode(chunk)
    return data
