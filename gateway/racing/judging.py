"""Judges a complete answer, a winner's or, with ``win_on: valid``, any: the form it was asked for, and its defects.

No answer is stored for this. What must be seen as a whole (tool arguments, text that must be JSON) has a size limit
and is released with its attempt. If something cannot be known, it is not judged, so that no provider is blamed for it.
"""

from typing import Any

import msgspec

from gateway.attempt_records import AnswerKind, Flaw, Outcome, TokensSource, WinOn
from gateway.calls import Call
from gateway.racing.answer_text import AnswerText
from gateway.racing.expected import Expected, expected
from gateway.racing.measurement import Measurement
from gateway.racing.requested import requested
from gateway.racing.tool_calls import ToolCalls
from providers.dialects.index import DIALECTS

# Of all dialects: vendors use other dialects' words in their own.
CUT_SHORT = frozenset(reason for dialect in DIALECTS.values() for reason in dialect.answers.cut_short)
_REFUSALS = frozenset(reason for dialect in DIALECTS.values() for reason in dialect.answers.refusals)
_BROKE_OFF = frozenset({Outcome.FAILED, Outcome.STALLED, Outcome.TIMEOUT})
_NEARLY = 0.9  # of max_tokens: vendors count the last tokens, or reasoning, differently
_MOST_CHECKED = 16  # with more tool calls, none is checked against its schema


class _Requirements(msgspec.Struct):
    required: list[str] | None = None


_requirements = msgspec.json.Decoder(_Requirements)
_anything = msgspec.json.Decoder()


class Judgement(msgspec.Struct, frozen=True):
    """``judged_as`` is None if the answer could not be judged; then ``flaw`` is None as well."""

    judged_as: AnswerKind | None = None
    flaw: Flaw | None = None


UNJUDGED = Judgement()
_GOOD = {kind: Judgement(kind) for kind in AnswerKind}


def judge(call: Call, outcome: Outcome, measurement: Measurement, text: AnswerText | None) -> Judgement:
    """Judge a complete answer, or that of a winner that broke off. ``text`` is None unless JSON was requested."""
    kind = call.answer_kind
    if outcome in _BROKE_OFF:
        return Judgement(kind, Flaw.TRUNCATED)
    if outcome is not Outcome.WON:
        return UNJUDGED
    if measurement.reported.finish_reason in CUT_SHORT:
        if not _is_clients_limit(call, measurement):
            return Judgement(kind, Flaw.TRUNCATED)
        return _GOOD[kind] if kind is AnswerKind.PLAIN else UNJUDGED  # JSON that the client's own limit cut off
    flaw = _flaw_of_end(measurement)
    if flaw is None and (kind is not AnswerKind.PLAIN or measurement.reported.tool_calls is not None):
        return _judge_form(call, measurement, text)
    return _GOOD[kind] if flaw is None else Judgement(kind, flaw)


def _flaw_of_end(measurement: Measurement) -> Flaw | None:
    """Return the flaw that the answer's finish reason shows; None for none."""
    reason = measurement.reported.finish_reason
    if measurement.reported.refused or reason in _REFUSALS:
        return Flaw.REFUSAL
    if reason is None:
        return Flaw.TRUNCATED
    return Flaw.EMPTY if measurement.answer_at is None else None


def _is_clients_limit(call: Call, measurement: Measurement) -> bool:
    """Whether the client's own limit cut the answer off; in doubt True."""
    limit, tokens = requested(call.fields, call.dialect).max_tokens, measurement.tokens()
    if limit is None:
        return call.dialect.requests.parameters.has_default_limit
    if tokens is None or tokens.completion is None or tokens.source is not TokensSource.REPORTED:
        return True
    return tokens.completion >= _NEARLY * limit


def _judge_form(call: Call, measurement: Measurement, text: AnswerText | None) -> Judgement:
    """Judge tool calls and JSON."""
    kind, asked = call.answer_kind, expected(call.fields, call.dialect, every_schema=call.win_on is WinOn.VALID)
    if asked is None:
        return UNJUDGED
    flaw: Flaw | bool | None = False
    if measurement.reported.tool_calls is not None:
        flaw = _flaw_of_calls(call, measurement, asked)
    elif kind is AnswerKind.JSON:
        flaw = _flaw_of_json(text, asked)
    if flaw is None:
        return UNJUDGED
    return Judgement(kind, flaw) if isinstance(flaw, Flaw) else _GOOD[kind]


def _flaw_of_calls(call: Call, measurement: Measurement, asked: Expected) -> Flaw | bool | None:
    """Return the flaw of the tool calls; False for none, None if unknown."""
    calls = measurement.reported.tool_calls
    assert calls is not None
    if any(name not in asked.tools for name in calls.names):
        return Flaw.UNKNOWN_TOOL
    if (valid := valid_calls(call, calls)) is not True:
        return None if valid is None else Flaw.BAD_TOOL_CALL
    arguments = calls.arguments() or []
    if len(arguments) != len(calls.names) or not any(asked.tools.values()):
        return False  # custom tools take no JSON, and which call is whose is unknown
    if len(arguments) > _MOST_CHECKED:
        return None
    for name, piece in zip(calls.names, arguments, strict=True):
        schema = asked.tools[name]
        flaw = False if schema is None else _flaw_of_arguments(schema, piece or "{}", of=len(arguments))
        if flaw is not False:
            return flaw
    return False


def valid_calls(call: Call, calls: ToolCalls) -> bool | None:
    """Whether the arguments of all tool calls are JSON; None if unknown.

    Empty ones are ``{}`` where the tool, strict or not, requires none; else they are not valid.
    """
    valid, arguments = calls.valid(), calls.arguments()
    if not valid or not arguments or "" not in arguments or len(calls.names) != len(arguments):
        return valid
    asked = expected(call.fields, call.dialect, every_schema=True)
    if asked is None:
        return valid
    empty = (asked.tools.get(name) for name, piece in zip(calls.names, arguments, strict=True) if not piece)
    return not any(map(_requires_some, empty))


def _requires_some(schema: bytes | None) -> bool:
    try:
        return bool(schema) and bool(_requirements.decode(schema or b"{}").required)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _flaw_of_arguments(schema: bytes, arguments: str, *, of: int) -> Flaw | bool | None:
    try:
        value = _anything.decode(arguments)
    except RecursionError:  # they were not nested too deep a few frames further up
        return Flaw.BAD_TOOL_CALL
    return _schema_flaw(schema, value, of=of)


def _flaw_of_json(text: AnswerText | None, asked: Expected) -> Flaw | bool | None:
    """Return the flaw of an answer that must be JSON; False for none, None if unknown."""
    whole = None if text is None else text.whole()
    if whole is None:
        return None
    try:
        value = _anything.decode(whole)
    except (msgspec.DecodeError, RecursionError):
        return Flaw.BAD_JSON
    if asked.is_object and not isinstance(value, dict):
        return Flaw.BAD_JSON
    return False if asked.schema is None else _schema_flaw(asked.schema, value)


def _schema_flaw(schema: bytes, value: Any, *, of: int = 1) -> Flaw | bool | None:
    """Return the flaw if the schema does not allow ``value``; False if it does, None if unknown."""
    from gateway.racing.schema_check import allows  # noqa: PLC0415 - takes 0.1 s, and only JSON requests need it

    allowed = allows(schema, value, of=of)
    return None if allowed is None else False if allowed else Flaw.SCHEMA_MISS
