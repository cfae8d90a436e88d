"""Judges a complete answer by the form that was requested: the winner's, or with ``win_on: valid`` each answer.

No answer is stored for this. Tool arguments and JSON must be seen as a whole, so they are kept up to a limit, and
released with their attempt. Nothing is judged in doubt, so that no provider is blamed wrongly: for example, if the
schema has an error, or if it is unknown which arguments belong to which call.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from gateway.core.attempts import AnswerKind, AttemptRecord, Flaw, Invalid, Outcome, TokensSource, WinOn
from gateway.core.calls import Call
from gateway.racing.measurement import Measurement, ToolCalls
from gateway.racing.reader import AnswerText
from gateway.racing.thoughts import after_thoughts
from providers import (
    FAST,
    SEARCH_NAMES,
    UNREADABLE,
    ErrorKind,
    UpstreamError,
    lets_search,
    searches_by_field,
    tier_asked_by,
)
from providers.dialects import DIALECTS, Dialect, Fields, JsonFormat, answers_in, arguments_object, requires_some

# What a request requires of the form of the answer: text, calls of the offered tools, or JSON by a schema.

_EMPTY = frozenset({b"", b"null", b"[]"})
_PROMPTS = re.compile(rb'\s*\[\s*["\[]')  # of texts, or of lists of tokens; one list of tokens is one prompt
_CHOICES = ("tool_choice", "function_call", "toolConfig", "tool_config")  # of a tool, in all dialects
_NO_TOOL = re.compile(rb'\s*(?:"none"|\{\s*"type"\s*:\s*"none"\s*\})\s*|.*"mode"\s*:\s*"NONE".*', re.DOTALL)
_MOST_COUNTED = 50_000  # prompts; each takes memory while the prompts are counted
_items = msgspec.json.Decoder(list[msgspec.Raw])
_NAMES = {
    dialect: frozenset((*dialect.requests.json_formats, *dialect.requests.tools.offered))
    for dialect in DIALECTS.values()
}


EXPECTED: frozenset[str] = frozenset().union(*_NAMES.values())  # the fields that state the form, in all dialects


class RequiredForm(msgspec.Struct, frozen=True):
    """The required form. ``tools`` maps the names of offered tools to the schema of their arguments, if strict."""

    tools: Mapping[str, bytes | None] = {}
    is_object: bool = False  # any JSON object
    schema: bytes | None = None  # for the JSON


def answer_kind(fields: Fields, dialect: Dialect) -> AnswerKind:
    """Return how the answer to a request of ``dialect`` with these top-level ``fields`` is judged."""
    if (with_all := dialect.requests.tools.with_all) is not None:
        fields = with_all(fields)
    if fields.keys().isdisjoint(_NAMES[dialect]):
        return AnswerKind.PLAIN
    if _asked_format(fields, dialect) is not None:
        return AnswerKind.JSON
    offered = any(
        bytes(fields[name]).strip() not in _EMPTY for name in dialect.requests.tools.offered if name in fields
    )
    return AnswerKind.TOOLS if offered else AnswerKind.PLAIN


def may_call_tools(call: Call) -> bool:
    """Whether an answer to the call may call one of the offered tools; True if that is not known."""
    fields = call.request.fields
    if call.decision.answer_kind is not AnswerKind.TOOLS:
        offered = [fields[name] for name in call.request.dialect.requests.tools.offered if name in fields]
        if all(bytes(each).strip() in _EMPTY for each in offered):
            return False
    return not any(_NO_TOOL.fullmatch(bytes(fields[name])) for name in _CHOICES if name in fields)


def answers_asked(fields: Fields, dialect: Dialect) -> int:
    """Return how many answers a request asks for, to all its prompts together; 1 if the number cannot be read."""
    requests = dialect.requests
    number = requests.answers_in(fields)
    with suppress(*UNREADABLE):
        if requests.batched and _PROMPTS.match(prompts := fields.get(requests.prompt, b"")) is not None:
            text = bytes(prompts)
            is_long = text.count(b'",') + text.count(b"],") > _MOST_COUNTED
            number *= MOST_ANSWERS if is_long else len(_items.decode(text))
    return number


def answers_made(fields: Fields, dialect: Dialect) -> int:
    """Return how many answers are generated for a request, and billed: for each prompt ``best_of``, else ``n``.

    https://developers.openai.com/api/reference/resources/completions/methods/create
    """
    number = answers_asked(fields, dialect)
    if "best_of" in fields:
        of_each = dialect.requests.answers_in(fields)
        number = number // of_each * max(of_each, answers_in(fields, "best_of"))
    return min(MOST_ANSWERS, number)


def expected(fields: Fields, dialect: Dialect, *, every_schema: bool = False) -> RequiredForm | None:
    """Return the form that the request requires of the answer; None if the request does not say.

    ``every_schema``: arguments must match the schemas of tools that are not strict, too.
    """
    if (with_all := dialect.requests.tools.with_all) is not None:
        fields = with_all(fields)
    tools: dict[str, bytes | None] = {}
    try:
        for name, read in dialect.requests.tools.offered.items():
            if name in fields:
                tools.update(
                    (tool.name, tool.schema if tool.strict or every_schema else None) for tool in read(fields[name])
                )
    except UNREADABLE:
        return None
    json_format = _asked_format(fields, dialect)
    return (
        RequiredForm(tools) if json_format is None else RequiredForm(tools, json_format.any_object, json_format.schema)
    )


def _asked_format(fields: Fields, dialect: Dialect) -> JsonFormat | None:
    """Return the requested format of JSON; None if JSON is not requested."""
    for name, read in dialect.requests.json_formats.items():
        if name in fields and (json_format := read(fields[name])) is not None:
            return json_format
    return None


# The parameters of a request that have a column in the ledger.

_float = msgspec.json.Decoder(float)
_LARGEST = 2**31 - 1  # the column's maximum
MOST_ANSWERS = 1024  # whatever a request says: more are not given


class RequestParameters(msgspec.Struct, frozen=True):
    """Parameters; None: not given, or invalid."""

    max_tokens: int | None = None
    temperature: float | None = None
    tools: int | None = None  # number of tools offered
    answers: int = 1  # number of answers that are generated; the limit holds for each
    tier: str | None = None  # of service, in the words of `Price.at`
    searches: bool = False  # the request lets the vendor search the web
    searches_untold: bool = False  # a field is set with which some vendors' usage leaves searches out
    writes: bool = True  # False: the answer is not written token by token


def requested(fields: Mapping[str, msgspec.Raw], dialect: Dialect, *, writes: bool = True) -> RequestParameters:
    """Read the parameters from the top level of a body in ``dialect``; ``writes`` as there."""
    if fields.keys().isdisjoint(REQUESTED) and not dialect.requests.batched:
        return NOTHING_ASKED if writes else NOTHING_WRITTEN
    may_be_several = dialect.requests.batched or dialect.requests.choices in fields or "best_of" in fields
    length = next((fields[name] for name in dialect.requests.parameters.answer_limits if name in fields), None)
    max_tokens = None if length is None else _number(length)
    untold = searches_by_field(fields)
    warmth = _TEMPERATURES.get(dialect, "temperature")
    temperature = _number(fields[warmth]) if warmth in fields else None  # a float, as the column is
    return RequestParameters(
        int(max_tokens) if max_tokens is not None and 0 < max_tokens <= _LARGEST else None,
        temperature,
        _count(fields["tools"]) if "tools" in fields else None,
        answers_made(fields, dialect) if may_be_several else 1,
        asked_tier(fields),
        untold or ("tools" in fields and lets_search(fields)),
        untold,
        writes,
    )


def asked_tier(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """Return the tier of service that a body asks for, in any dialect; None: the vendor decides (auto)."""
    if fields.keys().isdisjoint(_TIERS):
        return None
    words = [word for name in _TIERS if name in fields and (word := _word(fields[name])) is not None]
    return FAST if FAST in words else next((tier for tier in map(tier_asked_by, words) if tier is not None), None)


_SEARCH_FIELDS = SEARCH_NAMES


def _word(raw: msgspec.Raw) -> str | None:
    try:
        return _text.decode(raw)
    except UNREADABLE:
        return None


_TIERS = ("service_tier", "serviceTier", "speed")
_text = msgspec.json.Decoder(str)


def _number(raw: msgspec.Raw) -> float | None:
    try:
        return _float.decode(raw)
    except msgspec.DecodeError:
        return None


def _count(raw: msgspec.Raw) -> int | None:
    try:
        return len(_items.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return None


NOTHING_ASKED = RequestParameters()
NOTHING_WRITTEN = RequestParameters(writes=False)
_TEMPERATURES = {
    dialect: name for dialect in DIALECTS.values() for name in dialect.requests.parameters.of("temperature")
}
LIMITS = frozenset[str]().union(*(dialect.requests.parameters.answer_limits for dialect in DIALECTS.values()))
# The fields that are read, in all dialects.
REQUESTED = frozenset({"best_of", "tools", *_SEARCH_FIELDS, *_TIERS, *_TEMPERATURES.values()}).union(
    LIMITS,
    *({dialect.requests.choices} for dialect in DIALECTS.values() if dialect.requests.choices is not None),
)

STILL_READ = EXPECTED | REQUESTED  # needed at the call's end, by the judgement and the record


# Of all dialects: vendors use words of one dialect in another.
CUT_SHORT = frozenset(reason for dialect in DIALECTS.values() for reason in dialect.answers.cut_short)
_REFUSALS = frozenset(reason for dialect in DIALECTS.values() for reason in dialect.answers.refusals)
_NEARLY = 0.9  # of max_tokens: vendors count the last tokens, or reasoning, differently
_LONGEST_NONE = 16  # characters of arguments that may stand for none
_MOST_CHECKED = 16  # calls of tools: if there are more, no arguments are checked against a schema


_anything = msgspec.json.Decoder()


class Judgement(msgspec.Struct, frozen=True):
    """``judged_as`` is None if the answer could not be judged; then ``flaw`` is None as well."""

    judged_as: AnswerKind | None = None
    flaw: Flaw | None = None


UNJUDGED = Judgement()
_GOOD = {kind: Judgement(kind) for kind in AnswerKind}


def judge(call: Call, outcome: Outcome, measurement: Measurement, text: AnswerText | None) -> Judgement:
    """Judge a complete answer, or a winner's that broke off. ``text``: None unless JSON was requested."""
    kind = call.decision.answer_kind
    if outcome.failed:
        return Judgement(kind, Flaw.TRUNCATED)
    if outcome is not Outcome.WON:
        return UNJUDGED
    if measurement.reported.finish_reason in CUT_SHORT:
        if not _is_clients_limit(call, measurement):
            return Judgement(kind, Flaw.TRUNCATED)
        return _GOOD[kind] if kind is AnswerKind.PLAIN else UNJUDGED  # JSON cut off by the client's own limit
    flaw = _flaw_of_end(measurement)
    if flaw is None and (kind is not AnswerKind.PLAIN or measurement.reported.tool_calls is not None):
        return _judge_form(call, measurement, text)
    return _GOOD[kind] if flaw is None else Judgement(kind, flaw)


def _flaw_of_end(measurement: Measurement) -> Flaw | None:
    """Return the flaw that the finish reason shows, or None."""
    reason = measurement.reported.finish_reason
    if measurement.reported.refused or reason in _REFUSALS:
        return Flaw.REFUSAL
    if reason is None:
        return Flaw.TRUNCATED
    return Flaw.EMPTY if measurement.answer_at is None else None


def _is_clients_limit(call: Call, measurement: Measurement) -> bool:
    """Whether the client's own limit cut the answer off; in doubt True."""
    limit, tokens = requested(call.request.fields, call.request.dialect).max_tokens, measurement.tokens()
    if limit is None:
        return call.request.dialect.requests.parameters.has_default_limit
    if tokens is None or tokens.completion_tokens is None or tokens.source is not TokensSource.REPORTED:
        return True
    return tokens.completion_tokens >= _NEARLY * limit


def _judge_form(call: Call, measurement: Measurement, text: AnswerText | None) -> Judgement:
    """Judge tool calls and JSON."""
    kind, every_schema = call.decision.answer_kind, call.decision.win_on is WinOn.VALID
    form = expected(call.request.fields, call.request.dialect, every_schema=every_schema)
    if form is None:
        return UNJUDGED
    flaw: Flaw | bool | None = False
    if measurement.reported.tool_calls is not None:
        flaw = _flaw_of_calls(call, measurement, form)
    elif kind is AnswerKind.JSON:
        flaw = _flaw_of_json(text, form)
    if flaw is None:
        return UNJUDGED
    return Judgement(kind, flaw) if isinstance(flaw, Flaw) else _GOOD[kind]


def _flaw_of_calls(call: Call, measurement: Measurement, form: RequiredForm) -> Flaw | bool | None:
    """Return the flaw of the tool calls; False for none, None if unknown."""
    calls = measurement.reported.tool_calls
    assert calls is not None
    if any(name not in form.tools for name in calls.names):
        return Flaw.UNKNOWN_TOOL
    if (valid := valid_calls(call, calls)) is not True:
        return None if valid is None else Flaw.BAD_TOOL_CALL
    arguments = calls.arguments() or []
    if len(arguments) != len(calls.names) or not any(form.tools.values()):
        return False  # no schema, or calls that cannot be told apart
    if len(arguments) > _MOST_CHECKED:
        return None
    for name, piece in zip(calls.names, arguments, strict=True):
        schema = form.tools[name]
        flaw = False if schema is None else _flaw_of_arguments(schema, piece, of=len(arguments))
        if flaw is not False:
            return flaw
    return False


def valid_calls(call: Call, calls: ToolCalls) -> bool | None:
    """Whether the arguments of all tool calls are JSON; None if unknown.

    Empty arguments (blank, or ``null``) stand for ``{}``. They are valid where the tool, strict or not, requires no
    argument.
    """
    valid, arguments = calls.valid(), calls.arguments()
    if not valid or not arguments or len(calls.names) != len(arguments) or not any(map(_is_none, arguments)):
        return valid
    form = expected(call.request.fields, call.request.dialect, every_schema=True)
    if form is None:
        return valid
    empty = (form.tools.get(name) for name, piece in zip(calls.names, arguments, strict=True) if _is_none(piece))
    return not any(map(requires_some, empty))


def _is_none(arguments: str) -> bool:
    return len(arguments) <= _LONGEST_NONE and arguments.strip(' "') in {"", "null"}


def _flaw_of_arguments(schema: bytes, arguments: str, *, of: int) -> Flaw | bool | None:
    try:
        value = _anything.decode(arguments_object(arguments) or arguments)
    except RecursionError:  # not nested too deep: with fewer frames on the stack the same text was parsed
        return Flaw.BAD_TOOL_CALL
    return _schema_flaw(schema, value, of=of)


def _flaw_of_json(text: AnswerText | None, form: RequiredForm) -> Flaw | bool | None:
    """Return the flaw of an answer that must be JSON; False for none, None if unknown."""
    whole = None if text is None else text.whole()
    if whole is None:
        return None
    try:
        value = _anything.decode(whole)
    except (msgspec.DecodeError, RecursionError):
        # The server may not have separated thoughts from the text, and a lone closing mark shows them too late.
        text_after = after_thoughts(whole)
        try:
            value = _anything.decode(text_after or "")
        except (msgspec.DecodeError, RecursionError):
            return Flaw.BAD_JSON
    if form.is_object and not isinstance(value, dict):
        return Flaw.BAD_JSON
    return False if form.schema is None else _schema_flaw(form.schema, value)


def _schema_flaw(schema: bytes, value: Any, *, of: int = 1) -> Flaw | bool | None:
    """Return a flaw if the schema does not allow ``value``; False if the schema allows it, None if unknown."""
    from gateway.racing.json_schema import allows  # noqa: PLC0415 - takes 0.1 s, and only JSON requests need it

    allowed = allows(schema, value, of=of)
    return None if allowed is None else False if allowed else Flaw.SCHEMA_MISS


# With ``win_on: valid``: when an answer may bid, and whether the first answer could have been used. An answer that
# begins with text bids with its first text. An answer that begins with a tool call, or must be JSON, bids when it is
# complete and has no flaw. An answer that cannot be judged, or is too long to be kept, does not count as invalid.

KEPT_BYTES = 4 * 2**20  # of events: 256 KB of text or arguments, a few characters in each
_SAID: Mapping[Flaw, str] = {
    Flaw.EMPTY: "the answer is empty",
    Flaw.TRUNCATED: "the answer is incomplete",
    Flaw.BAD_TOOL_CALL: "the arguments of a tool call are not JSON",
    Flaw.UNKNOWN_TOOL: "it calls a tool that was not offered",
    Flaw.BAD_JSON: "the answer is not the JSON that was asked for",
    Flaw.SCHEMA_MISS: "it does not match the schema",
    Flaw.REFUSAL: "the model refused",
}
# The least first, by what a program can still do with the answer.
_FLAWS = (
    Flaw.SCHEMA_MISS,
    Flaw.UNKNOWN_TOOL,
    Flaw.BAD_JSON,
    Flaw.BAD_TOOL_CALL,
    Flaw.TRUNCATED,
    Flaw.REFUSAL,
    Flaw.EMPTY,
)


class Validity:
    """Decides whether one answer may bid. ``judgement`` is set once the answer is complete."""

    __slots__ = ("_call", "_measurement", "_named", "_text", "judgement")

    def __init__(self, call: Call, measurement: Measurement, text: AnswerText | None) -> None:
        """``text`` is None unless the answer must be JSON."""
        self.judgement: Judgement = UNJUDGED
        self._call = call
        self._measurement = measurement
        self._text = text
        self._named = 0  # calls of offered tools

    def look(self, now: float, *, finished: bool, over: bool, kept_bytes: int) -> None:
        """Check the answer at ``now``. ``finished``: it has a finish reason. ``over``: no more data follow.

        Raises:
            UpstreamError: the answer calls a tool that was not offered, and the client wants no such answer.

        """
        measurement = self._measurement
        if measurement.valid_at is not None or self.judgement.judged_as is not None:
            return
        # The usage, which may follow, shows whose limit cut the answer short: the client's or the vendor's.
        if not over and not (finished and measurement.reported.finish_reason not in CUT_SHORT):
            if self._is_text() or self._is_too_long(kept_bytes):
                measurement.valid_at = now
            elif self._calls_unknown_tool():
                self.judgement = Judgement(self._call.decision.answer_kind, Flaw.UNKNOWN_TOOL)
                self.check()  # later data cannot remove the flaw
        else:
            self.judgement = judge(self._call, Outcome.WON, measurement, self._text)
            if self.judgement.flaw is None:
                measurement.valid_at = now

    def check(self) -> None:
        """Check an answer that has ended.

        Raises:
            UpstreamError: the answer has a flaw, and the client wants no such answer.

        """
        if (flaw := self.judgement.flaw) is not None and self._call.decision.invalid is Invalid.ERROR:
            raise UpstreamError(ErrorKind.INVALID_ANSWER, f"{flaw}: {_SAID[flaw]}")

    def _is_text(self) -> bool:
        measurement = self._measurement
        is_any = self._call.decision.answer_kind is not AnswerKind.JSON
        is_other = measurement.reported.tool_calls is not None or measurement.reported.refused
        return is_any and measurement.answer_at is not None and not is_other

    def _calls_unknown_tool(self) -> bool:
        calls = self._measurement.reported.tool_calls
        if calls is None or len(calls.names) == self._named:
            return False
        new, self._named = calls.names[self._named :], len(calls.names)
        form = expected(self._call.request.fields, self._call.request.dialect)
        return form is not None and any(name not in form.tools for name in new)

    def _is_too_long(self, kept_bytes: int) -> bool:
        tools = self._measurement.reported.tool_calls
        is_unknown = tools is not None and tools.is_too_long
        return is_unknown or kept_bytes > KEPT_BYTES or (self._text is not None and self._text.is_too_long)


def flaw_rank(flaw: Flaw | None) -> int:
    """Return the rank of ``flaw``: 0 for none, the highest for the worst."""
    return 0 if flaw is None else 1 + _FLAWS.index(flaw)


def first_was_invalid(attempts: Sequence[AttemptRecord]) -> bool | None:
    """Whether the answer that began first has a flaw. With ``win_on: any`` it would have won.

    None if no answer began, or if the first one was cut before it could be judged.
    """
    began = [(each.launch_offset_ms + each.ttft_ms, each) for each in attempts if each.ttft_ms is not None]
    if not began:
        return None
    first = min(began, key=lambda one: one[0])[1]
    return None if first.judged_as is None else first.flaw is not None
