"""OpenTelemetry's own OTLP/HTTP exporter, set up from the settings. Imported only while traces are on."""

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import requests
import structlog
import urllib3
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # it has no annotations
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from gateway import __version__
from gateway.settings.tracing import TracingSettings
from gateway.settings.tracing_checks import TRACES_PATH
from gateway.tracing.ended import Ended
from gateway.tracing.naming import Peer
from gateway.tracing.spans import Spans

BUSY_S, PAUSE_S = 0.001, 0.001
_SERVICE = "service.name"
_LONGEST_REASON = 300  # characters of what a collector says
ANSWER_BYTES = 64 * 1024  # read of an answer, which nobody needs to be longer
_READ_S = 10.0  # for that, where the settings have no limit
_READ_BYTES = 16 * 1024
_REDIRECTS = range(300, 400)
# The variables by which an operator has the exporter use a session of their own.
_OWN_SESSION = tuple(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{each}CREDENTIAL_PROVIDER" for each in ("", "TRACES_"))


class OtlpExporter:
    """Makes spans and sends them. ``spans`` knows the providers."""

    def __init__(self, settings: TracingSettings, *, instance: str, peers: Mapping[str, Peer]) -> None:
        """``instance`` is this process's ``service.instance.id``.

        Raises:
            ValueError: an OTEL_* variable is invalid.

        """
        self._words = _first_words()
        self._words.forget()
        self.spans = Spans(_resource(settings, instance), __version__, peers)
        self._is_hurried = threading.Event()
        self._rejected: tuple[int, str] | None = None
        self._timeout_s = settings.timeout_s
        self._exporter = OTLPSpanExporter(
            endpoint=None if settings.endpoint is None else settings.endpoint.rstrip("/") + TRACES_PATH,
            headers={name: value.get_secret_value() for name, value in settings.headers.items()} or None,
            timeout=settings.timeout_s,
            session=None if any(os.environ.get(name) for name in _OWN_SESSION) else _heard_by(self._answered),
        )
        if self._words.said is not None:
            structlog.get_logger().warning("tracing.setting_ignored", reason=self._words.said)
            self._words.forget()

    @property
    def is_failing(self) -> bool:
        """Whether what is being sent was refused at first, and is tried again."""
        return self._words.said is not None

    @property
    def rejected(self) -> tuple[int, str] | None:
        """How many spans of an accepted export the collector did not keep, and why; None if it has all."""
        return self._rejected

    def export(self, ended: Sequence[Ended]) -> str | None:
        """Send the spans; return None, or why they were not accepted."""
        self._words.forget()
        self._rejected = None
        try:
            result = self._exporter.export(_Paced(ended, self.spans, self._is_hurried))
        except Exception as error:  # noqa: BLE001 - the thread goes on, and the operator reads it
            return f"{type(error).__name__}: {error}"
        return None if result is SpanExportResult.SUCCESS else self._words.said or "refused"

    def hurry(self) -> None:
        """Make no more pauses: the process ends."""
        self._is_hurried.set()

    def shutdown(self) -> None:
        """Give up what is being sent."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # it has no annotations

    def _answered(self, response: requests.Response, *_: Any, **__: Any) -> None:
        """Read which spans of an export were rejected: the exporter takes an answer of status 200 for all of them.

        Raises:
            requests.RequestException: a redirect, which the exporter would take for success.

        """
        said = _beginning(response, time.monotonic() + (self._timeout_s or _READ_S))
        if response.status_code in _REDIRECTS:
            raise requests.RequestException(f"{response.status_code}, a redirect, which is not followed")
        try:
            partial = ExportTraceServiceResponse.FromString(said if response.ok else b"").partial_success
        except DecodeError:  # JSON, or the page of a proxy
            return
        if partial.rejected_spans > 0:
            self._rejected = partial.rejected_spans, partial.error_message[:_LONGEST_REASON] or "it does not say why"


def _beginning(response: requests.Response, until_s: float) -> bytes:
    """Return an answer's body as it is sent, not decompressed; nothing of one that is too long or lasts too long.

    It becomes the response's content, so that nothing reads the rest.
    """
    said, is_whole = bytearray(), False
    try:
        while len(said) <= ANSWER_BYTES and time.monotonic() < until_s:
            piece = response.raw.read1(_READ_BYTES, decode_content=False)
            if not piece:
                is_whole = True
                break
            said += piece
    except (urllib3.exceptions.HTTPError, OSError):  # it breaks off: its status has said enough
        pass
    if not is_whole:
        response.raw.close()
        said.clear()
    response._content = bytes(said)  # noqa: SLF001 - ``requests`` has no other way to read a part
    return response._content  # noqa: SLF001 - likewise


def _heard_by(hook: Any) -> requests.Session:
    """Return a session of which ``hook`` hears each answer before its body is read."""
    session = requests.Session()
    session.headers["accept-encoding"] = "identity"
    session.hooks["response"].append(hook)
    return session


class _Paced(Sequence[ReadableSpan]):
    """Spans that are made as the exporter encodes them, with a pause after each millisecond of that.

    A thread that computes keeps the interpreter for 5 ms at a time, and the event loop wants it for each callback.
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

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def _resource(settings: TracingSettings, instance: str) -> Resource:
    """Return what all spans are of: the file's attributes, over those of the environment, over ours."""
    environment = OTELResourceDetector().detect().attributes
    ours = {_SERVICE: "holeshot", "service.version": __version__, "service.instance.id": instance}
    found = {**ours, **environment, **settings.resource_attributes}
    if settings.service_name is not None:
        found[_SERVICE] = settings.service_name
    return _OneResource(Resource.create(found).attributes)


class _FirstWords(logging.Handler):
    """Keeps the first line of an export, which has the cause, and writes none: a collector may be away for days."""

    def __init__(self) -> None:
        super().__init__()
        self.said: str | None = None

    def forget(self) -> None:
        """Forget the line of an earlier export."""
        self.said = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line, but none about a client's tracestate."""
        if self.said is None and not record.name.startswith("opentelemetry.trace."):
            self.said = record.getMessage()


def _first_words() -> _FirstWords:
    """Return the handler of all that OpenTelemetry's packages log in this process."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    for handler in logger.handlers:
        if isinstance(handler, _FirstWords):
            return handler
    handler = _FirstWords()
    logger.addHandler(handler)
    return handler
