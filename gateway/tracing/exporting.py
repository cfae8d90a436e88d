"""OpenTelemetry's own OTLP/HTTP exporter, set up from the settings. Imported only while traces are on."""

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, overload
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import requests
import structlog
import urllib3
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # it has no annotations
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.span import TraceState
from opentelemetry.trace.status import Status, StatusCode

from gateway import __version__
from gateway.core.attempts import AttemptRecord, TokensSource
from gateway.core.calls import CallRecord
from gateway.core.columns import names_of
from gateway.core.ids import TraceContext, span_id
from gateway.core.rules import RACED
from gateway.settings import TRACES_PATH, TracingSettings
from gateway.tracing.naming import Ended, EndedCall, LateAttempt, Peer, operation
from providers.http import is_direct

# The attributes of spans: the conventions' where they have one, else ``holeshot.`` with the ledger's column. None has
# text of a prompt or an answer, nor of a provider's error message, which may quote one.

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]

# A choice of columns, as an attribute costs 2 µs: the others are in the ledger, by the call's id.
_CALL, _ATTEMPT = names_of(CallRecord, "traced"), names_of(AttemptRecord, "traced")

_COUNTED = frozenset({"input_tokens", "output_tokens"})  # others only if there are any


def of_call(record: CallRecord) -> Attributes:
    """Return the attributes of a call's span.

    Tokens are ``holeshot.*`` here: as ``gen_ai.usage.*`` they would be counted twice, with those of the attempts.
    """
    winner = next((each for each in record.attempts if each.id == record.winner_attempt_id), None)
    attributes = _requested(record, record.model)
    attributes |= {
        "http.response.status_code": record.status_code,
        "holeshot.call_id": record.id,
    }
    if record.streamed:
        attributes["gen_ai.request.stream"] = True
        if record.ttft_ms is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = record.ttft_ms / 1000
    if winner is not None:
        attributes["holeshot.winner"] = winner.deployment
        _add_response(attributes, winner)
    _add(attributes, record, _CALL)
    return attributes


def of_attempt(attempt: AttemptRecord, call: CallRecord, peer: Peer | None) -> Attributes:
    """Return the attributes of an attempt's span; ``peer`` is its provider, None if a reload has removed it."""
    attributes = _requested(call, attempt.deployment.partition("/")[2])
    attributes |= {
        "gen_ai.provider.name": attempt.provider if peer is None else peer.name,
        "holeshot.attempt_id": attempt.id,
        "holeshot.attempt": attempt.number,
        "holeshot.is_censored": attempt.censored_at_ms is not None,
    }
    if attempt.audited:
        attributes["holeshot.audited"] = True
    if attempt.sends is not None and attempt.sends > 1:
        attributes["holeshot.sends"] = attempt.sends
    if peer is not None and peer.address is not None and peer.port is not None:
        attributes["server.address"], attributes["server.port"] = peer.address, peer.port
    if call.streamed or call.endpoint in RACED:
        attributes["gen_ai.request.stream"] = True
        if attempt.ttft_ms is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = attempt.ttft_ms / 1000
    if attempt.status_code is not None:
        attributes["http.response.status_code"] = attempt.status_code
    for name, tokens in (
        ("input_tokens", attempt.prompt_tokens),
        ("output_tokens", attempt.completion_tokens),
        ("reasoning.output_tokens", attempt.reasoning_tokens),
        ("cache_read.input_tokens", attempt.cached_tokens),
        ("cache_write.input_tokens", attempt.cache_write_tokens),
    ):
        if tokens or (tokens is not None and name in _COUNTED):
            attributes[f"gen_ai.usage.{name}"] = tokens
    if attempt.tokens_source not in {None, TokensSource.REPORTED}:
        attributes["holeshot.tokens_source"] = str(attempt.tokens_source)
    _add_response(attributes, attempt)
    _add(attributes, attempt, _ATTEMPT)
    return attributes


def _requested(record: CallRecord, model: str) -> Attributes:
    attributes: Attributes = {"gen_ai.operation.name": operation(record.endpoint), "gen_ai.request.model": model}
    if record.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = record.max_tokens
    if record.temperature is not None:
        attributes["gen_ai.request.temperature"] = float(record.temperature)
    return attributes


def _add_response(attributes: Attributes, attempt: AttemptRecord) -> None:
    if attempt.model_version is not None:
        attributes["gen_ai.response.model"] = attempt.model_version
    if attempt.finish_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (attempt.finish_reason,)


def _add(attributes: Attributes, record: CallRecord | AttemptRecord, columns: tuple[str, ...]) -> None:
    for column in columns:
        value = getattr(record, column)
        if value is not None:
            attributes[f"holeshot.{column}"] = str(value) if isinstance(value, str) else value


# Makes OpenTelemetry's spans from records.

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
        ids = _CallIds(call)
        if isinstance(ended, LateAttempt):
            yield self._attempt(ids, ended.record, ended.ended_ms, is_late=True)
            return
        yield self._call(ids)
        for attempt, ended_ms in zip(call.record.attempts, call.ended_ms, strict=True):
            yield self._attempt(ids, attempt, ended_ms, is_late=False)

    def _call(self, ids: "_CallIds") -> ReadableSpan:
        call, record = ids.call, ids.call.record
        is_error = record.status_code >= _SERVER_ERROR or (
            record.error_kind is not None and record.status_code < 400  # noqa: PLR2004 - it broke off
        )
        attributes = of_call(record)
        if is_error:
            attributes["error.type"] = record.error_kind or str(record.status_code)
        return ReadableSpan(
            name=f"{operation(record.endpoint)} {record.model}",
            context=ids.own,
            parent=ids.parent,
            resource=self._resource,
            attributes=attributes,
            events=_events(ids, call),
            kind=SpanKind.SERVER,
            status=_ERROR if is_error else _UNSET,
            start_time=ids.at(0.0),
            end_time=ids.at(record.total_ms),
            instrumentation_scope=self._scope,
        )

    def _attempt(self, ids: "_CallIds", attempt: AttemptRecord, ended_ms: float, *, is_late: bool) -> ReadableSpan:
        record, offset_ms = ids.call.record, attempt.launch_offset_ms
        attributes = of_attempt(attempt, record, self.peers.get(attempt.provider))
        if is_error := attempt.outcome.is_error:
            attributes["error.type"] = str(attempt.error_kind or attempt.outcome)
        links: tuple[Link, ...] = ()
        if is_late and record.winner_attempt_id is not None:
            links = (Link(ids.context(record.winner_attempt_id), {"holeshot.outcome": "won"}),)
        return ReadableSpan(
            name=f"{operation(record.endpoint)} {attempt.deployment.partition('/')[2]}",
            context=ids.context(attempt.id),
            parent=ids.own,
            resource=self._resource,
            attributes=attributes,
            events=()
            if attempt.token_ms is None
            else (Event("holeshot.first_token", {}, ids.at(offset_ms + attempt.token_ms)),),
            links=links,
            kind=SpanKind.CLIENT,
            status=_ERROR if is_error else _UNSET,
            start_time=ids.at(offset_ms),
            end_time=ids.at(offset_ms + _age_ms(attempt, ended_ms)),
            instrumentation_scope=self._scope,
        )


class _CallIds:
    """The ids and the clock of one call's spans."""

    def __init__(self, call: EndedCall) -> None:
        record, trace = call.record, call.trace
        self.call = call
        self._trace_id = int(trace.trace_id, 16)
        self._flags = TraceFlags(trace.flags)
        self._state = TraceState.from_header([trace.state]) if trace.state else TraceState()
        self.own = self.context(record.id)
        self.parent = None if trace.parent_id is None else self._remote(trace)
        # An attempt has its launch both as an instant and as an offset, which gives the instant of the call's receipt.
        first = record.attempts[0] if record.attempts else None
        self._received_ns = (
            _unix_ns(record.started_at)
            if first is None
            else _unix_ns(first.started_at) - round(first.launch_offset_ms * 1e6)
        )

    def at(self, ms: float) -> int:
        """Return the instant, in nanoseconds since 1970, that is ``ms`` milliseconds after the call was received."""
        return self._received_ns + round(ms * 1e6)

    def context(self, record_id: str) -> SpanContext:
        """Return the context of the span of a call or attempt."""
        return SpanContext(self._trace_id, int(span_id(record_id), 16), False, self._flags, self._state)  # noqa: FBT003 - its own argument

    def _remote(self, trace: TraceContext) -> SpanContext:
        return SpanContext(self._trace_id, int(trace.parent_id or "0", 16), True, self._flags, self._state)  # noqa: FBT003 - likewise


def _events(ids: _CallIds, call: EndedCall) -> Sequence[Event]:
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
        elif attempt.outcome.was_cancelled_by_race:
            age_ms = _age_ms(attempt, ended_ms)
            cut_ms = attempt.launch_offset_ms + age_ms
            found.append((cut_ms, "holeshot.cut", {**about, "holeshot.age_ms": round(age_ms, 3)}))
    found.sort(key=lambda each: each[0])
    return [Event(name, attributes, ids.at(ms)) for ms, name, attributes in found]


def _age_ms(attempt: AttemptRecord, ended_ms: float) -> float:
    """Return the age at which an attempt ended: as in the ledger, else the time at which the end was reported."""
    if attempt.censored_at_ms is not None:
        return attempt.censored_at_ms
    return max(ended_ms - attempt.launch_offset_ms, attempt.last_token_ms or 0.0, attempt.token_ms or 0.0)


def _unix_ns(instant: datetime) -> int:
    return round(instant.timestamp() * 1e6) * 1000


BUSY_S, PAUSE_S = 0.001, 0.001
_SERVICE = "service.name"
_LONGEST_REASON = 300  # characters of a collector's message
ANSWER_BYTES = 64 * 1024  # the longest answer of a collector that is read
_READ_S = 10.0  # for reading it, if the settings have no limit
_READ_BYTES = 16 * 1024
_REDIRECTS = range(300, 400)
# The variables with which an operator gives the exporter a session.
_OWN_SESSION = tuple(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{each}CREDENTIAL_PROVIDER" for each in ("", "TRACES_"))


class OtlpExporter:
    """Makes spans and sends them. ``spans`` has the providers."""

    def __init__(self, settings: TracingSettings, *, instance: str, peers: Mapping[str, Peer]) -> None:
        """``instance`` is this process's ``service.instance.id``.

        Raises:
            ValueError: an OTEL_* variable is invalid.

        """
        self._logged = _first_line()
        self._logged.clear()
        self.spans = Spans(_resource(settings, instance), __version__, peers)
        self._is_hurried = threading.Event()
        self._rejected: tuple[int, str] | None = None
        self._timeout_s = settings.timeout_s
        self._exporter = OTLPSpanExporter(
            endpoint=None if settings.endpoint is None else settings.endpoint.rstrip("/") + TRACES_PATH,
            headers={name: value.get_secret_value() for name, value in settings.headers.items()} or None,
            timeout=settings.timeout_s,
            session=None if any(os.environ.get(name) for name in _OWN_SESSION) else _session_with(self._answered),
        )
        if self._logged.text is not None:
            # Event tracing.setting_ignored: The exporter ignores a variable `OTEL_…` (`reason`).
            # Do: Correct the variable and restart.
            structlog.get_logger().warning("tracing.setting_ignored", reason=self._logged.text)
            self._logged.clear()

    @property
    def is_failing(self) -> bool:
        """Whether the running export was refused at first, and is tried again."""
        return self._logged.text is not None

    @property
    def rejected(self) -> tuple[int, str] | None:
        """The number of spans of an accepted export that the collector rejected, and its reason; None: it kept all."""
        return self._rejected

    def export(self, ended: Sequence[Ended]) -> str | None:
        """Send the spans; return None, or the reason if they were not accepted."""
        self._logged.clear()
        self._rejected = None
        try:
            result = self._exporter.export(_Paced(ended, self.spans, self._is_hurried))
        except Exception as error:  # noqa: BLE001 - the thread goes on, and the operator reads it
            return f"{type(error).__name__}: {error}"
        return None if result is SpanExportResult.SUCCESS else self._logged.text or "refused"

    def hurry(self) -> None:
        """Make no more pauses: the process ends."""
        self._is_hurried.set()

    def shutdown(self) -> None:
        """Abandon the running export."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # it has no annotations

    def _answered(self, response: requests.Response, *_: Any, **__: Any) -> None:
        """Read the number of rejected spans, which the exporter ignores: for it, status 200 means that all were kept.

        Raises:
            requests.RequestException: a redirect, which the exporter would take for success.

        """
        body = _read_body(response, time.monotonic() + (self._timeout_s or _READ_S))
        if response.status_code in _REDIRECTS:
            raise requests.RequestException(f"{response.status_code}, a redirect, which is not followed")
        try:
            partial = ExportTraceServiceResponse.FromString(body if response.ok else b"").partial_success
        except DecodeError:  # JSON, or the page of a proxy
            return
        if partial.rejected_spans > 0:
            self._rejected = partial.rejected_spans, partial.error_message[:_LONGEST_REASON] or "it does not say why"


def _read_body(response: requests.Response, until_s: float) -> bytes:
    """Return an answer's body, not decompressed; empty if it is too long, or not complete at ``until_s``.

    It becomes the response's content, so that nothing reads the rest.
    """
    body, is_whole = bytearray(), False
    try:
        while len(body) <= ANSWER_BYTES and time.monotonic() < until_s:
            piece = response.raw.read1(_READ_BYTES, decode_content=False)
            if not piece:
                is_whole = True
                break
            body += piece
    except (urllib3.exceptions.HTTPError, OSError):  # it broke off: the status is enough
        pass
    if not is_whole:
        response.raw.close()
        body.clear()
    response._content = bytes(body)  # noqa: SLF001 - ``requests`` has no other way to read a part
    return response._content  # noqa: SLF001 - likewise


class _Session(requests.Session):
    """A session that reads NO_PROXY as the gateway does, which names more than ``requests`` understands.

    OTEL_EXPORTER_OTLP_CERTIFICATE comes before what names authorities for all programs that use ``requests``.
    """

    def merge_environment_settings(self, url: Any, *others: Any, **named: Any) -> Any:
        """Return the arguments of a request to ``url``, with its proxy."""
        merged = super().merge_environment_settings(url, *others, **named)
        if isinstance(self.verify, str):
            merged = {**merged, "verify": self.verify}
        parts = urlsplit(url)
        is_spared = is_direct(parts.scheme, parts.hostname or "", parts.port)
        return {**merged, "proxies": {} if is_spared else getproxies_environment()}


def _session_with(hook: Any) -> requests.Session:
    """Return a session that calls ``hook`` with each answer before its body is read."""
    session = _Session()
    session.headers["accept-encoding"] = "identity"
    session.hooks["response"].append(hook)
    return session


class _Paced(Sequence[ReadableSpan]):
    """Spans that are made while the exporter encodes them, with a pause after each millisecond.

    A computing thread holds the interpreter lock for 5 ms at a time, and the event loop needs it for each callback.
    """

    def __init__(self, ended: Sequence[Ended], spans: Spans, is_hurried: threading.Event) -> None:
        self._ended = ended
        self._spans = spans
        self._is_hurried = is_hurried

    def __len__(self) -> int:
        return sum(each.spans for each in self._ended)

    @overload
    def __getitem__(self, index: int) -> ReadableSpan: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReadableSpan]: ...
    def __getitem__(self, index: int | slice) -> ReadableSpan | Sequence[ReadableSpan]:
        return [span for each in self._ended for span in self._spans.of(each)][index]

    def __iter__(self) -> Iterator[ReadableSpan]:
        began_at = time.monotonic()
        for each in self._ended:
            yield from self._spans.of(each)
            if time.monotonic() - began_at > BUSY_S and not self._is_hurried.is_set():
                time.sleep(PAUSE_S)
                began_at = time.monotonic()


class _OneResource(Resource):
    """A resource whose hash is not computed again for each span, of all its attributes as JSON."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _resource(settings: TracingSettings, instance: str) -> Resource:
    """Return the resource of all spans: the file's attributes override the environment's, which override ours."""
    environment = OTELResourceDetector().detect().attributes
    ours = {_SERVICE: "holeshot", "service.version": __version__, "service.instance.id": instance}
    found = {**ours, **environment, **settings.resource_attributes}
    if settings.service_name is not None:
        found[_SERVICE] = settings.service_name
    return _OneResource(Resource.create(found).attributes)


class _FirstLine(logging.Handler):
    """Keeps the first line logged by an export, which has the cause, and writes none: outages may last for days."""

    def __init__(self) -> None:
        super().__init__()
        self.text: str | None = None

    def clear(self) -> None:
        """Drop the line of an earlier export."""
        self.text = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line, unless it is about a client's tracestate."""
        if self.text is None and not record.name.startswith("opentelemetry.trace."):
            self.text = record.getMessage()


def _first_line() -> _FirstLine:
    """Return the handler of all log lines of OpenTelemetry's packages in this process."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.setLevel(logging.WARNING)  # also if the gateway's own log omits warnings
    for handler in logger.handlers:
        if isinstance(handler, _FirstLine):
            return handler
    handler = _FirstLine()
    logger.addHandler(handler)
    return handler
