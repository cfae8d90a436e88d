"""Dialects: the APIs in which answers are requested and streamed, each with everything about its wire format.

A dialect has a folder beside this file and is one ``Dialect``; ``index.py`` lists them. In each struct the fields that
a new dialect needs come first. Each field after them has a default: an API without that feature.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from providers.dialects.cache_marks import LastingPart
from providers.dialects.continuing import Continuing
from providers.dialects.events import CUT_SHORT, FILTERED, Chunk, Gathering, Pattern, Run
from providers.dialects.history_rules import HistoryRules
from providers.dialects.meanings import OPENAI, Details
from providers.dialects.recalling import Recalling
from providers.dialects.sealed import Seal
from providers.dialects.unshown import UnshownThought
from providers.dialects.wording import Fields, Wording, answers_in
from providers.models import Traits, Usage
from providers.refusals import UNREADABLE, ErrorKind, UpstreamError

# How one model must be asked. Models that speak the same dialect differ.


class Habits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The differences that exist in every dialect. A dialect with more differences has a subclass.

    A vendor's row of the catalog says what holds for all its models (``quirks.habits``).
    """

    thinks: bool = True  # False: the model refuses a reasoning effort (400 "Unsupported parameter: 'reasoning_effort'")
    takes_thoughts: bool = False  # in chat, reasoning_content must be sent back with the tool calls that followed it
    takes_unsigned: bool = False  # in Messages, unsigned thoughts may be sent back to the model
    takes_marks: bool = False  # in chat, marks of what to cache (``cache_control``) may stand where Messages has them
    takes_signed: str = ""  # chat: the vendor whose signed thoughts may be sent back; "": none
    # What the model takes though chat has no place for it. ``results``: of tools, with pictures and with ``is_error``.
    # ``thinking_budget``: of tokens. ``thoughts``: to be shown. ``top_k``. ``addresses`` and ``citations``: of files.
    # For all of these the pivot has fields of its own. Chat itself has ``choices``, among several tools, and
    # ``custom_tools``; few servers of chat take them. ``outputs``: in Responses, results of tools with pictures.
    beyond: frozenset[str] = frozenset()
    signs: bool = False  # the model signs thoughts, and refuses thoughts that others signed
    takes_forced: bool = True  # a request may force a call of a tool
    forbids_calls: bool = True  # a request may offer tools, and forbid to call one
    takes_none: bool = False  # at an effort of none the model does not think, or as little as possible
    may_think: bool = False  # an unknown model: perhaps it thinks though the request does not ask for thinking
    instructions_last: bool = (
        False  # in Responses, ``instructions`` stand after the input: a prompt's beginning is in the input
    )
    encrypts: bool = False  # in Responses, the model gives encrypted reasoning if asked to
    seal: Seal | None = None  # the account's: opens sealed reasoning; None: nothing is sealed
    searches: bool = False  # the vendor's API has a tool that searches the web
    reads_bills: bool = True  # False: Claude Code's note for billing, which changes with each call, is left out


_Own = TypeVar("_Own", bound=Habits)


def with_own(known: Habits, kind: type[_Own], **own: Any) -> _Own:
    """Return habits of a ``kind``: what is ``known`` of a model, with the fields ``own`` in place of known ones."""
    return kind(**{**msgspec.structs.asdict(known), **own})


AS_CALL = "this model takes no forced tool: it is asked for JSON, which is given back as the call"


class ForcedCall(msgspec.Struct, frozen=True):
    """The tools, by name, of which a request forces a call; empty: any offered tool (``tool_choice: any``)."""

    names: tuple[str, ...] = ()
    as_json: bool = True  # True: a model that takes no forced call is asked for JSON; False: the model chooses


# A dialect's names for the parameters of requests. The configuration uses chat's names.


class SystemPrompt(msgspec.Struct, frozen=True):
    """Where the system prompt is in a request."""

    field: str
    item: Callable[[str], Mapping[str, str]]  # makes the item with this text, where the field is an array
    within: str | None = None  # the field of the array, where the system prompt is an object


class ParameterNames(msgspec.Struct, frozen=True):
    """The names of chat's parameters in this dialect."""

    answer_limits: tuple[str, ...]  # all names of max_tokens, the newest first
    least_limit: int = 0  # tokens of the answer below which a request is refused: 16 in Responses
    has_default_limit: bool = False  # without a limit in the request, a short one applies
    known: frozenset[str] | None = None  # all other parameters that exist; None: any, also a vendor's own
    unknown: frozenset[str] = frozenset()  # parameters of chat that do not exist
    renamed: Mapping[str, str] = {}  # from chat's name
    lists: frozenset[str] = frozenset()  # must be a list, where chat accepts a single value too

    def of(self, name: str) -> tuple[str, ...]:
        """Return the names of chat's parameter ``name``, which is no answer limit; none if the API lacks it."""
        if name in self.renamed:
            return (self.renamed[name],)
        is_known = name not in self.unknown if self.known is None else name in self.known
        return (name,) if is_known else ()

    def limit_in(self, fields: Fields) -> int | None:
        """Return how many tokens the answer to a request of these ``fields`` may have; None: the fields do not say."""
        found = []
        for name in self.answer_limits:
            with suppress(*UNREADABLE):
                found.append(msgspec.json.decode(fields.get(name, b"null"), type=int | None))
        return min((each for each in found if each is not None), default=None)


# A request's expectations of its answer: calls of the offered tools, JSON by a schema. OpenAI's and Anthropic's APIs
# are so similar here that one reader serves them all.

_ABSENT = msgspec.Raw()
JSON_FORMATS = frozenset({"json_object", "json_schema"})
_NONE = frozenset({b"", b"null"})


class JsonFormat(msgspec.Struct, frozen=True):
    """The answer must be JSON."""

    any_object: bool = False  # any JSON object is right
    schema: bytes | None = None  # the JSON Schema that the answer must match


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool that the model may call."""

    name: str
    schema: bytes | None = None  # the JSON Schema of the arguments; None: there is none
    strict: bool = False  # the arguments must match the schema


class _Inner(msgspec.Struct):
    schema: msgspec.Raw = _ABSENT


class _Format(msgspec.Struct):
    type: str | None = None
    schema: msgspec.Raw = _ABSENT
    json_schema: _Inner | None = None


class _Around(msgspec.Struct):
    format: _Format | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    parameters: msgspec.Raw = _ABSENT
    strict: bool | None = None


class _Tool(_Function):
    function: _Function | None = None
    custom: _Function | None = None
    tools: list[_Function] | None = None  # of a namespace, in Responses: each is called by its own name


_formats = msgspec.json.Decoder(_Format | None)
_around = msgspec.json.Decoder(_Around | None)
_tools = msgspec.json.Decoder(list[_Tool] | None)


def json_format(raw: msgspec.Raw) -> JsonFormat | None:
    """Read a field that is a format, such as ``response_format``; None if the format is not JSON."""
    try:
        return _json_format(_formats.decode(raw))
    except UNREADABLE:
        return None


def json_format_within(raw: msgspec.Raw) -> JsonFormat | None:
    """Read a field that contains a ``format``, such as ``text``; None if the format is not JSON."""
    try:
        around = _around.decode(raw)
    except UNREADABLE:
        return None
    return None if around is None else _json_format(around.format)


def openai_tools(raw: msgspec.Raw) -> list[OfferedTool]:
    """Read OpenAI's tools, nested as in chat, flat or in namespaces. Tools without a name run at the provider.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the field has another format.

    """
    said = _tools.decode(raw) or ()
    functions = [each for tool in said for each in tool.tools or (tool.function or tool.custom or tool,)]
    found: dict[str, OfferedTool] = {}
    for each in functions:
        if each.name is not None:
            offered = OfferedTool(each.name, schema_in(each.parameters), bool(each.strict))
            # Two tools in different namespaces may share a name: a call of that name is ambiguous.
            found[each.name] = offered if found.get(each.name, offered) == offered else OfferedTool(each.name)
    return list(found.values())


class _Requirements(msgspec.Struct):
    required: list[str] | None = None


_requirements = msgspec.json.Decoder(_Requirements)


def requires_some(schema: bytes | None) -> bool:
    """Whether a tool with this JSON Schema must be called with arguments."""
    try:
        return bool(schema) and bool(_requirements.decode(schema or b"{}").required)
    except UNREADABLE:
        return False


Offered = Callable[[msgspec.Raw], Iterable[OfferedTool]]


def check_none(name: str, tools: msgspec.Raw | None, offered: Offered) -> None:
    """Check a call of the tool ``name`` without arguments: the client gets ``{}`` as arguments.

    Raises:
        UpstreamError: one of the request's ``tools`` has this name, and requires arguments.

    """
    try:
        required = tools is not None and any(
            each.name == name and requires_some(each.schema) for each in offered(tools)
        )
    except UNREADABLE:
        return
    if required:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "called a tool without the arguments that it requires")


def schema_in(raw: msgspec.Raw) -> bytes | None:
    """Return the JSON Schema in a field; None if there is none."""
    schema = bytes(raw)
    return None if schema in _NONE else schema


def _json_format(asked: _Format | None) -> JsonFormat | None:
    if asked is None or asked.type not in JSON_FORMATS:
        return None
    schema = asked.json_schema.schema if asked.json_schema is not None else asked.schema
    return JsonFormat(asked.type == "json_object", bytes(schema) or None)


ReadEvent = Callable[[bytes, Sequence[str]], Chunk]


class Translation(Protocol):
    """Translates the event stream of one answer into another dialect."""

    @property
    def finishing(self) -> bool:
        """Whether the source has sent the answer's end, and the target's end is still to be returned by ``end``."""

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the source has reported, in the words of the source's API; None: no usage yet."""

    def feed(self, block: bytes) -> bytes:
        """Translate whole events; return events of the target, ``b""`` if none can be sent yet.

        Raises:
            UpstreamError: an event is malformed, or is the provider's error. The translation of the events before it is
                the error's ``before``, or is returned by the next call.

        """

    def end(self) -> bytes:
        """Return the events that remain to be sent when the source has ended, complete or not.

        An answer that broke off gets no end, so that its reader notices.

        Raises:
            UpstreamError: the source has said why it broke off.

        """


@runtime_checkable
class NotingTranslation(Protocol):
    """A translation that must know all of the answer's text, also texts that passed by it."""

    def spliced(self, run: Run) -> None:
        """Note plain texts that went to the client in events like the one that was translated last."""


class ToChat(Protocol):
    """Translates a request into a chat completion."""

    def __call__(self, fields: Fields, *, thoughts: bool = False) -> Wording:
        """Return the request. ``thoughts``: earlier reasoning is sent again as ``reasoning_content``.

        Raises:
            Malformed: the request is not valid in its own dialect.

        """


class ToolFields(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How a request offers tools, and says whether to call them. By default: there are no tools."""

    offered: Mapping[str, Offered] = {}  # by the field with tools
    choice: str = "tool_choice"  # the field that says which tools may or must be called
    # Which call of a tool a request forces. None: no request can force a call.
    forced: Callable[[Fields], ForcedCall | None] | None = None
    # Asks for JSON in place of a forced call, for a model that takes no such choice. None: there is no way to ask.
    unforced: Callable[[Wording, ForcedCall], Wording] | None = None
    # Whether a request wants no more than one tool call at a time. None: no request can say so.
    one_call: Callable[[Fields], bool] | None = None
    # Puts all tools among the tools, where some may stand elsewhere (Responses: in items of the input).
    with_all: Callable[[Fields], Fields] | None = None
    # Offers only the tools among which the request lets the model choose, for a vendor without such a choice. None:
    # vendors are not known to differ in this.
    offering: Callable[[Wording], Wording] | None = None
    # The names in chat of tools that take a text, OpenAI's custom tools. None: a request can offer none.
    custom_names: Callable[[Fields], frozenset[str]] | None = None
    # Whether a request offers tools that take a text, or has called some. Skipped for a plain prompt (``Media.odd``).
    has_texts: Callable[[Fields], bool] | None = None
    # Rewrites tools that take a text as functions, for a server without such tools. None: all servers have them.
    as_functions: Callable[[Wording], Wording] | None = None
    # Whether a request has tools that are no functions of its client, or calls of such tools. None: no request can.
    has_others: Callable[[Fields], bool] | None = None


class ThinkingFields(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How a request says how hard to think. By default: no request can say so."""

    effort: str | None = None  # the field with the reasoning effort
    fields: frozenset[str] = frozenset()  # all fields that may say how hard to think
    paths: frozenset[str] = frozenset()  # the paths within these fields that may be left out (see ``OmissibleFields``)
    kind: str | None = None  # the path of the field with the way to think, where models differ in their ways
    as_kind: Callable[[Fields, str], Fields] | None = None  # sets another way to think: adaptive, with a budget
    # Removes ``fields`` that ask for any thinking, for a model that does not think.
    without_effort: Callable[[Fields], Wording] | None = None
    # Rewrites ``fields`` in the form that a model takes. None: all models take the same form.
    with_effort: Callable[[Fields, Habits], Wording] | None = None
    # Whether a request forbids to think, otherwise than by an effort of none. None: there is no other way.
    forbids: Callable[[Fields], bool] | None = None
    # Forbids thinking by the vendor's own fields: Qwen's ``enable_thinking: false``. None: vendors have no such fields.
    forbidding: Callable[[Fields, Mapping[str, Any]], Wording] | None = None


class EarlierThoughts(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What happens to reasoning within a conversation. By default: any provider takes any reasoning."""

    # Removes reasoning that other providers' models made. None: providers accept such reasoning.
    without_foreign: Callable[[Fields, Habits], Wording] | None = None
    # Removes what the gateway has sealed, where ``without_foreign`` does not.
    without_sealed: Callable[[Fields], Wording] | None = None
    # Removes reasoning that only its maker can read: encrypted, or signed. None: there is no such reasoning.
    without_bound: Callable[[Fields], Wording] | None = None
    # Removes pieces of such reasoning by their hashes. None: vendors ignore reasoning that others made.
    without_those: Callable[[Fields, frozenset[bytes]], Wording] | None = None
    # Removes such reasoning from one turn on; a refusal tells the turn: ``messages.5.content.0``. None: none does.
    without_since: Callable[[Fields, int], Wording] | None = None
    # Asks for reasoning that can be sent back though nothing is stored. None: reasoning can always be sent back.
    asking: Callable[[Fields], Fields] | None = None
    # Asks a vendor that binds thoughts to the text before them to drop the thoughts that no longer fit. Otherwise the
    # vendor refuses the request, unless the client says what is to happen. None: vendors drop such thoughts unasked.
    dropping_unfit: Callable[[Fields], Fields] | None = None


class OmissibleFields(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What a request can lack and still ask the same question. By default: nothing."""

    fields: frozenset[str] = frozenset()  # paths of fields that may be left out if a provider refuses them
    items: Mapping[str, frozenset[str]] = {}  # preferences within lists: by field, the items
    # Removes a preference within tools, by path: ``tools.defer_loading``.
    in_tools: Mapping[str, Callable[[Fields], Fields]] = {}
    # Ways of sampling, by chat's names, that programs send though their users chose nothing: any value may be left out.
    unchosen: frozenset[str] = frozenset()


class CacheMarking(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Marks what a vendor is to cache, if the client marks nothing. By default: the API has no marks."""

    # Each sets marks behind beginnings of so many tokens or more: Anthropic's marks, and OpenAI's own.
    with_marks: Callable[[Fields, int, LastingPart], Fields] | None = None
    with_breakpoints: Callable[[Fields, int, LastingPart], Fields] | None = None


class VendorsDiffer(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How the vendors of one API differ. By default: vendors do not differ, so a request is right for all of them."""

    takes_quirks: bool = False  # the parameters are OpenAI's, so quirks of vendors apply
    takes_rules: bool = False  # rules of vendors' models apply, as the parameters are OpenAI's
    # Adapts a conversation to what a provider accepts in a history. None: all providers accept the same.
    with_history: Callable[[Fields, HistoryRules], Wording] | None = None
    # Has the user say the system prompt, for models that take none. None: the system prompt stays where it is.
    without_system: Callable[[Fields], Wording] | None = None
    # Puts the schemas of tools and formats into words that every server takes. None: there are no schemas.
    with_plain_schemas: Callable[[Fields], Wording] | None = None
    # Adapts a conversation to the API's newest version, if the operator asks for that. None: the API has no versions.
    for_newest_version: Callable[[Fields], Wording] | None = None
    # The header, and a word in it, that vendors require beside one of these fields. None: vendors require none.
    header_for: Callable[[Fields], tuple[str, str] | None] | None = None


class RequestFormat(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What is known of a request's fields at the top level of the body.

    A new API needs three of these. Each of the structs at the end has a default: an API without that part.
    """

    prompt: str  # the field with the prompt
    reading_order: tuple[str, ...]  # the prompt's fields in the order in which models read and cache them
    parameters: ParameterNames

    system: SystemPrompt | None = None  # None: the API has no system prompt
    json_formats: Mapping[str, Callable[[msgspec.Raw], JsonFormat | None]] = {}  # by field; None: no JSON is wanted
    choices: str | None = None  # the field with the number of answers; None: an answer has one choice
    batched: bool = False  # the prompt may be several, with an answer to each
    storing: str | None = None  # the field that says whether the vendor stores request and answer
    stores_unasked: bool = False  # the API's default is to store both: only ``store: false`` says not to
    decoded: frozenset[str] = frozenset()  # fields that are decoded into objects, so their length is limited
    essential: frozenset[str] = frozenset()  # fields that are never dropped: they are part of the prompt
    inline: frozenset[str] = frozenset()  # that name nothing stored, besides OpenAI's and Anthropic's fields
    # Makes the body of the fields: some APIs nest parameters, or have the model in the address.
    body: Callable[[Fields], Fields] | None = None
    # Lowers the limit of the answer; also returns the names of the fields that were lowered. None: clients need not set
    # a limit, so a client that sets one means it.
    with_limit: Callable[[Fields, int], tuple[Fields, tuple[str, ...]]] | None = None
    # Whether a request asks for nothing but a summary of its conversation. None: no request can.
    asks_for_summary: Callable[[Fields], bool] | None = None

    tools: ToolFields = ToolFields()
    thinking: ThinkingFields = ThinkingFields()
    thoughts: EarlierThoughts = EarlierThoughts()
    omissible: OmissibleFields = OmissibleFields()
    marks: CacheMarking = CacheMarking()
    vendors: VendorsDiffer = VendorsDiffer()

    def answers_in(self, fields: Fields) -> int:
        """Return how many answers a request asks for, to each of its prompts."""
        return answers_in(fields, self.choices)


class EventNumbers(msgspec.Struct, frozen=True, eq=False):
    """How an API numbers its events."""

    counter: re.Pattern[bytes]  # finds the number of an event, its first group
    numbered: Callable[[bytes, bytes], bytes]  # from a failure and the events before it


class AnswerFormat(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How answers are streamed, and how a stream and a whole answer become each other. A new API needs six."""

    read_event: ReadEvent
    texts: Callable[[bytes], Iterable[tuple[int, str]]]  # of one event's data, with the choice or item of each
    events_of_answer: Callable[[bytes, Sequence[str]], bytes]  # from a whole JSON answer and the secrets to mask
    gathering: Callable[[], Gathering]
    ending: bytes  # the last event, sent where a provider stops after the finish reason
    # Makes an event of an error's kind, message and details, and of the request's id where that is known.
    failure: Callable[[str, str, Details, str | None], bytes]

    keep_alive: bytes = b": keep-alive\n\n"  # sent while a client waits for the first event
    cut_short: frozenset[str] = CUT_SHORT  # finish reasons: a limit was reached
    refusals: frozenset[str] = FILTERED  # finish reasons: the model or a filter refused
    # Yields each choice in one event's data, and whether the choice has its finish reason. None: there is one choice.
    choices: Callable[[bytes], Iterable[tuple[int, bool]]] | None = None
    # Learns from an event the pattern by which similar events are recognised without parsing; None: all are parsed.
    learned: Callable[[bytes, Chunk], Pattern | None] | None = None
    read_begun: ReadEvent | None = None  # reads an answer that runs in the background; None: the API has none
    # Returns a last event that repeats the whole answer with all of the answer counted, for streams where nothing came
    # before this event. None: the last event does not repeat the answer.
    with_answer: Callable[[Chunk], Chunk] | None = None
    numbers: EventNumbers | None = None  # None: the API's events have no numbers
    binds: bool = False  # answers may have reasoning that only their maker can read
    # Reads which thoughts of the request the model was not shown (``input_transformations``) from an answer's events;
    # returns None if the events do not say. None: no answer says.
    unshown: Callable[[bytes], Sequence[UnshownThought] | None] | None = None
    repairs: Callable[[frozenset[str]], Sequence[Translation]] | None = None  # by their names in vendors' quirks
    # Returns the whole answer for which the words of a model's refusal stand; None: a real refusal. None: all are real.
    of_refusal: Callable[[str, str], bytes | None] | None = None


class Pivoting(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The translations to and from chat, by which any dialect is translated into any other. Four are needed."""

    to_chat: Callable[..., Wording]  # ``ToChat``, with an argument more for each of ``keeps``
    from_chat: Callable[[Fields, Habits], Wording]
    # Takes the secrets to mask in errors, and how many answers the client asked for.
    stream_to_chat: Callable[[Sequence[str], int], Translation]
    stream_from_chat: Callable[[Fields, Sequence[str]], Translation]  # takes the client's request as well

    names: Mapping[str, str] = {}  # chat's fields by their names here, if not those of ``ParameterNames``
    # What ``to_chat`` keeps on demand. ``marks``: of what to cache. ``signed``: thoughts that the named vendor has
    # signed: Anthropic's as ``thinking_blocks``, Google's as ``extra_content``. ``beyond``: what chat has no place for.
    keeps: frozenset[str] = frozenset()
    takes_signed: str = ""  # the vendor whose signed thoughts a request may send back
    beyond: frozenset[str] = frozenset()  # as in ``Habits``, for all models
    takes_one_call: bool = True  # a request can allow no more than one tool call at a time
    # ``stream_to_chat``, which seals what only the maker can read. None: only chat takes such texts, so none is sealed.
    stream_sealed: Callable[[Seal], Translation] | None = None
    # Makes habits in this dialect of a model's traits, its longest answer in tokens (None: unknown) and its habits in
    # chat.
    habits_of: Callable[[Traits, int | None, Habits], Habits] | None = None


class TokenCounting(msgspec.Struct, frozen=True):
    """How a provider counts the tokens of a prompt."""

    path: str  # below a provider's base URL, and below the gateway's
    field: str  # of the answer, with the number
    whole: str | None = None  # the field that may have a whole request in place of the prompt
    also: tuple[tuple[str, str], ...] = ()  # other fields of the answer


VENDORS_HEADERS = ("anthropic-", "openai-", "x-goog-")  # beginnings of headers that one vendor's API defines


class Dialect(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One dialect. Each has one instance; instances are compared by identity. A new API needs six of the fields."""

    name: str  # in the configuration
    path: str  # below a provider's base URL, may contain {model}; below /v1 of the gateway, unless its endpoint differs
    endpoint: str  # the API's name in the ledger. Never change one: rows have it
    requests: RequestFormat
    answers: AnswerFormat
    pivoting: Pivoting | None = None  # None: chat itself, or a dialect without translation

    untranslated: str | None = None  # why the dialect cannot be translated
    query: Mapping[str, str] = {}  # sent with every request
    headers: str = "openai-"  # how the names of the vendor's headers begin
    # Makes a body of an error's HTTP status, type ("": by the status), message, request id and details. None: a body in
    # OpenAI's shape.
    error_body: Callable[[int, str, str, str | None, Details], bytes] | None = None
    told_as: str = OPENAI  # whose column of ``meanings.py`` has the refusals of this API
    counting: TokenCounting | None = None  # None: the API counts no tokens
    continuing: Continuing | None = None  # None: no other provider can continue an answer that broke off
    continues_by_itself: bool = False  # every server with this API continues the text that it was sent
    recalling: Recalling | None = None  # None: no request continues from an earlier answer

    def __repr__(self) -> str:
        return f"Dialect({self.name!r})"

    def headers_of(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the client's ``headers``, in lower case, without those that other vendors' APIs define."""
        for name in headers:
            if name.startswith(VENDORS_HEADERS) and not name.startswith(self.headers):
                own = self.headers
                return {
                    name: value
                    for name, value in headers.items()
                    if name.startswith(own) or not name.startswith(VENDORS_HEADERS)
                }
        return headers
