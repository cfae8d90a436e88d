"""OpenTelemetry's own OTLP/HTTP exporter, set up from the settings. Imported only while traces are on."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
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
        self._exporter = OTLPSpanExporter(
            endpoint=None if settings.endpoint is None else settings.endpoint.rstrip("/") + TRACES_PATH,
            headers={name: value.get_secret_value() for name, value in settings.headers.items()} or None,
            timeout=settings.timeout_s,
        )
        if self._words.said is not None:
            structlog.get_logger().warning("tracing.setting_ignored", reason=self._words.said)
            self._words.forget()

    @property
    def is_failing(self) -> bool:
        """Whether what is being sent was refused at first, and is tried again."""
        return self._words.said is not None

    def export(self, ended: Sequence[Ended]) -> str | None:
        """Send the spans; return None, or why they were not accepted."""
        self._words.forget()
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
        """Keep the line."""
        if self.said is None:
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
