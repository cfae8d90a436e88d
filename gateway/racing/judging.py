"""The judgement of a winner's whole answer: what it was asked to be, and what is wrong with it.

Answers are never kept for it: what has to be seen whole (arguments of tool calls, text that is to be JSON) is bounded,
belongs to the attempt and is gone with it. What cannot be known is not judged, so that nobody is blamed for it.
"""

from typing import Any

import msgspec

from gateway.attempt_records import AnswerKind, Flaw, Outcome, TokensSource
from gateway.calls import Call
from gateway.racing.answer_text import AnswerText
from gateway.racing.expected import Expected, expected
from gateway.racing.measurement import Measurement
from gateway.racing.requested import requested
from providers.dialects.index import DIALECTS

# Of every dialect: vendors use the words of others in their own.
CUT_SHORT = frozenset(reason for dialect in DIALECTS.values() for reason in dialect.answers.cut_short)
_REFUSALS = frozenset(reason for dialect in DIALECTS.values() for reason in dialect.answers.refusals)
_BROKE_OFF = frozenset({Outcome.FAILED, Outcome.STALLED, Outcome.TIMEOUT})
_NEARLY = 0.9  # of max_tokens: vendors do not count the last tokens, or thoughts, alike
_MOST_CHECKED = 16  # tool calls of an answer that are held against their schemas, or none
_anything = msgspec.json.Decoder()


class Judgement(msgspec.Struct, frozen=True):
    """``judged_as`` is None where the answer could not be judged; then there is no flaw either."""

    judged_as: AnswerKind | None = None
    flaw: Flaw | None = None


UNJUDGED = Judgement()
_GOOD = {kind: Judgement(kind) for kind in AnswerKind}


def judge(call: Call, outcome: Outcome, measurement: Measurement, text: AnswerText | None) -> Judgement:
    """Judge the answer of an attempt that had the win, as it ended. ``text`` is None unless JSON was asked for."""
    kind = call.answer_kind
    if outcome in _BROKE_OFF:
        return Judgement(kind, Flaw.TRUNCATED)
    if outcome is not Outcome.WON:
        return UNJUDGED
    if measurement.finish_reason in CUT_SHORT:
        if not _is_clients_limit(call, measurement):
            return Judgement(kind, Flaw.TRUNCATED)
        return _GOOD[kind] if kind is AnswerKind.PLAIN else UNJUDGED  # half a JSON by the client's own limit
    flaw = _flaw_of_end(measurement)
    if flaw is None and (kind is not AnswerKind.PLAIN or measurement.tool_calls is not None):
        return _judge_form(call, measurement, text)
    return _GOOD[kind] if flaw is None else Judgement(kind, flaw)


def _flaw_of_end(measurement: Measurement) -> Flaw | None:
    """Return what the way in which an answer ended says against it."""
    reason = measurement.finish_reason
    if measurement.refused or reason in _REFUSALS:
        return Flaw.REFUSAL
    if reason is None:
        return Flaw.TRUNCATED
    return Flaw.EMPTY if measurement.answer_at is None else None


def _is_clients_limit(call: Call, measurement: Measurement) -> bool:
    """Tell whether the answer was cut off where the client wanted it; in doubt it was."""
    limit, tokens = requested(call.fields, call.dialect).max_tokens, measurement.tokens()
    if limit is None:
        return call.dialect.requests.parameters.has_default_limit
    if tokens is None or tokens.completion is None or tokens.source is not TokensSource.REPORTED:
        return True
    return tokens.completion >= _NEARLY * limit


def _judge_form(call: Call, measurement: Measurement, text: AnswerText | None) -> Judgement:
    """Judge tool calls and JSON."""
    kind, asked = call.answer_kind, expected(call.fields, call.dialect)
    if asked is None:
        return UNJUDGED
    flaw: Flaw | bool | None = False
    if measurement.tool_calls is not None:
        flaw = _flaw_of_calls(measurement, asked)
    elif kind is AnswerKind.JSON:
        flaw = _flaw_of_json(text, asked)
    if flaw is None:
        return UNJUDGED
    return Judgement(kind, flaw) if isinstance(flaw, Flaw) else _GOOD[kind]


def _flaw_of_calls(measurement: Measurement, asked: Expected) -> Flaw | bool | None:
    """Return what is wrong with the tool calls, False if nothing is, None if that is not known."""
    calls = measurement.tool_calls
    assert calls is not None
    if any(name not in asked.tools for name in calls.names):
        return Flaw.UNKNOWN_TOOL
    valid = calls.valid()
    if valid is not True:
        return None if valid is None else Flaw.BAD_TOOL_CALL
    arguments = calls.arguments() or []
    if len(arguments) != len(calls.names) or not any(asked.tools.values()):
        return False  # custom tools, which take no JSON, have no arguments: whose these are is not known
    if len(arguments) > _MOST_CHECKED:
        return None
    for name, piece in zip(calls.names, arguments, strict=True):
        schema = asked.tools[name]
        flaw = False if schema is None else _schema_flaw(schema, _anything.decode(piece or "{}"), of=len(arguments))
        if flaw is not False:
            return flaw
    return False


def _flaw_of_json(text: AnswerText | None, asked: Expected) -> Flaw | bool | None:
    """Return what is wrong with an answer that is to be JSON, False if nothing is, None if that is not known."""
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
    """Return the flaw if ``value`` is not what the schema allows, None where that cannot be told."""
    from gateway.racing.schema_check import allows  # noqa: PLC0415 - 0.1 s that only who is asked for JSON pays

    allowed = allows(schema, value, of=of)
    return None if allowed is None else False if allowed else Flaw.SCHEMA_MISS
