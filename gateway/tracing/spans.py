"""Makes OpenTelemetry's spans of records. Imported only while traces are on, as OpenTelemetry is."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.span import TraceState
from opentelemetry.trace.status import Status, StatusCode

from gateway.attempt_records import AttemptRecord, Outcome
from gateway.trace_context import TraceContext, span_id
from gateway.tracing.attributes import Attributes, of_attempt, of_call
from gateway.tracing.ended import Ended, EndedCall, LateAttempt
from gateway.tracing.naming import Peer, operation

_CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED})
_FAILED = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED, Outcome.INTERRUPTED})
_SERVER_ERROR = 500
_UNSET = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)


class Spans:
    """Makes the spans of one resource. ``peers`` are the providers by name; a reload replaces them."""

    def __init__(self, resource: Resource, version: str, peers: Mapping[str, Peer]) -> None:
        self.peers = peers
        self._resource = resource
        self._scope = InstrumentationScope("holeshot", version)

    def of(self, ended: Ended) -> Iterator[ReadableSpan]:
        """Yield the spans of a call and its attempts, or of an attempt that ended after its call."""
        call = ended.call if isinstance(ended, LateAttempt) else ended
        family = _Family(call)
        if isinstance(ended, LateAttempt):
            yield self._attempt(family, ended.record, ended.ended_ms, is_late=True)
            return
        yield self._call(family)
        for attempt, ended_ms in zip(call.record.attempts, call.ended_ms, strict=True):
            yield self._attempt(family, attempt, ended_ms, is_late=False)

    def _call(self, family: "_Family") -> ReadableSpan:
        call, record = family.call, family.call.record
        is_error = record.status_code >= _SERVER_ERROR or (
            record.error_kind is not None and record.status_code < 400  # noqa: PLR2004 - it broke off
        )
        attributes = of_call(record)
        if is_error:
            attributes["error.type"] = record.error_kind or str(record.status_code)
        return ReadableSpan(
            name=f"{operation(record.endpoint)} {record.model}",
            context=family.own,
            parent=family.parent,
            resource=self._resource,
            attributes=attributes,
            events=_events(family, call),
            kind=SpanKind.SERVER,
            status=_ERROR if is_error else _UNSET,
            start_time=family.at(0.0),
            end_time=family.at(record.total_ms),
            instrumentation_scope=self._scope,
        )

    def _attempt(self, family: "_Family", attempt: AttemptRecord, ended_ms: float, *, is_late: bool) -> ReadableSpan:
        record, offset_ms = family.call.record, attempt.launch_offset_ms
        attributes = of_attempt(attempt, record, self.peers.get(attempt.provider))
        if is_error := attempt.outcome in _FAILED:
            attributes["error.type"] = str(attempt.error_kind or attempt.outcome)
        links: tuple[Link, ...] = ()
        if is_late and record.winner_attempt_id is not None:
            links = (Link(family.context(record.winner_attempt_id), {"holeshot.outcome": "won"}),)
        return ReadableSpan(
            name=f"{operation(record.endpoint)} {attempt.deployment.partition('/')[2]}",
            context=family.context(attempt.id),
            parent=family.own,
            resource=self._resource,
            attributes=attributes,
            events=()
            if attempt.token_ms is None
            else (Event("holeshot.first_token", {}, family.at(offset_ms + attempt.token_ms)),),
            links=links,
            kind=SpanKind.CLIENT,
            status=_ERROR if is_error else _UNSET,
            start_time=family.at(offset_ms),
            end_time=family.at(offset_ms + _age_ms(attempt, ended_ms)),
            instrumentation_scope=self._scope,
        )


class _Family:
    """The ids and the clock of one call's spans."""

    def __init__(self, call: EndedCall) -> None:
        record, trace = call.record, call.trace
        self.call = call
        self._trace_id = int(trace.trace_id, 16)
        self._flags = TraceFlags(trace.flags)
        self._state = TraceState.from_header([trace.state]) if trace.state else TraceState()
        self.own = self.context(record.id)
        self.parent = None if trace.parent_id is None else self._remote(trace)
        # Attempts' instants and offsets are of one clock each, so the call's receipt is known on both.
        first = record.attempts[0] if record.attempts else None
        self._received_ns = (
            _unix_ns(record.started_at)
            if first is None
            else _unix_ns(first.started_at) - round(first.launch_offset_ms * 1e6)
        )

    def at(self, ms: float) -> int:
        """Return an instant in nanoseconds since 1970 of milliseconds since the call was received."""
        return self._received_ns + round(ms * 1e6)

    def context(self, record_id: str) -> SpanContext:
        """Return the context of the span of a call or attempt."""
        return SpanContext(self._trace_id, int(span_id(record_id), 16), False, self._flags, self._state)  # noqa: FBT003 - its own argument

    def _remote(self, trace: TraceContext) -> SpanContext:
        return SpanContext(self._trace_id, int(trace.parent_id or "0", 16), True, self._flags, self._state)  # noqa: FBT003 - likewise


def _events(family: _Family, call: EndedCall) -> Sequence[Event]:
    """Return a call's launches, its claim and its cuts, in the order of time."""
    record = call.record
    found: list[tuple[float, str, Attributes]] = []
    for attempt, ended_ms in zip(record.attempts, call.ended_ms, strict=True):
        about: Attributes = {"holeshot.deployment": attempt.deployment}
        found.append((attempt.launch_offset_ms, "holeshot.launch", {**about, "holeshot.role": str(attempt.role)}))
        if attempt.id == record.winner_attempt_id:
            token_ms = None if attempt.token_ms is None else attempt.launch_offset_ms + attempt.token_ms
            claimed_ms = token_ms if record.ttft_ms is None else record.ttft_ms
            if claimed_ms is not None:
                found.append((claimed_ms, "holeshot.claim", about))
        elif attempt.outcome in _CUT:
            age_ms = _age_ms(attempt, ended_ms)
            cut_ms = attempt.launch_offset_ms + age_ms
            found.append((cut_ms, "holeshot.cut", {**about, "holeshot.age_ms": round(age_ms, 3)}))
    found.sort(key=lambda each: each[0])
    return [Event(name, attributes, family.at(ms)) for ms, name, attributes in found]


def _age_ms(attempt: AttemptRecord, ended_ms: float) -> float:
    """Return the age at which an attempt ended: the ledger's where it has one, else when its end was heard of."""
    if attempt.censored_at_ms is not None:
        return attempt.censored_at_ms
    return max(ended_ms - attempt.launch_offset_ms, attempt.last_token_ms or 0.0, attempt.token_ms or 0.0)


def _unix_ns(instant: datetime) -> int:
    return round(instant.timestamp() * 1e6) * 1000
