"""The log: one canonical line per call, dotted event names, key=value, secrets masked."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.calls import CallRecord
from gateway.watching.lines import Lines
from providers.redaction import redact

_TEXTS = ("error", "exception", "event", "url", "problem")  # where foreign words, and so perhaps a key, can appear


def configure(level: str, style: Literal["auto", "console", "json"]) -> None:
    """Set up structlog, and the standard library's logging through it, for this process and those it forks."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    console = sys.stderr.isatty() if style == "auto" else style == "console"
    lines = Lines(sys.stderr)
    output = cast("TextIO", lines)  # it has all that a logger asks of one
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        mask_secrets,
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(serializer=_json)
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_Output(output, None if console or threshold > logging.INFO else lines),
    )
    handler = logging.StreamHandler(output)  # which logging flushes when the process ends
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(logging.WARNING, threshold), force=True)


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask what looks like a key in the fields that quote others."""
    for name in _TEXTS:
        value = event.get(name)
        if isinstance(value, str):
            event[name] = redact(value, ())
    return event


class CallLog:
    """Writes ``call.finished``, the one line of each call."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        output = structlog.get_config()["logger_factory"]
        self._lines = output.calls if isinstance(output, _Output) else None

    def call_finished(self, record: CallRecord) -> None:
        """Write the line."""
        winner = next((item for item in record.attempts if item.id == record.winner_attempt_id), None)
        line = _Line(
            id=record.id,
            model=record.model,
            status=record.status_code,
            mode=record.mode,
            launched=record.launched,
            winner=winner.deployment if winner else None,
            ttft_ms=record.ttft_ms,
            total_ms=record.total_ms,
            decode_tps=winner.decode_tps if winner else None,
            tokens=record.completion_tokens,
            timestamp=datetime.now(UTC),
        )
        if record.client is not None:
            line.client = record.client
        if record.request_id is not None:
            line.request_id = record.request_id
        if record.answered_model is not None:
            line.answered_model = record.answered_model
        if record.error_kind is not None:
            line.error_kind = record.error_kind
            line.causes = [f"{item.deployment}:{item.error_kind}" for item in record.attempts if item.error_kind]
        if self._lines is not None:
            self._lines.hold(_encode(line) + b"\n")
        else:
            facts = msgspec.to_builtins(line)
            self._log.info(**{name: value for name, value in facts.items() if name not in _STRUCTLOGS_OWN})


class _Line(msgspec.Struct, kw_only=True, gc=False):
    """The line of a call. It quotes nobody, so no secret can be in it."""

    id: str
    model: str
    status: int
    mode: str
    launched: int
    winner: str | None
    ttft_ms: float | None
    total_ms: float
    decode_tps: float | None
    tokens: int | None
    client: str | msgspec.UnsetType = msgspec.UNSET
    request_id: str | msgspec.UnsetType = msgspec.UNSET  # the client's word for it
    answered_model: str | msgspec.UnsetType = msgspec.UNSET  # the fallback that answered
    error_kind: str | msgspec.UnsetType = msgspec.UNSET
    causes: list[str] | msgspec.UnsetType = msgspec.UNSET
    event: str = "call.finished"
    level: str = "info"
    timestamp: datetime


class _Output(structlog.WriteLoggerFactory):
    """Where log lines go, and straight to where those of ``calls``, unless they go through structlog like any other."""

    def __init__(self, stream: TextIO, calls: Lines | None) -> None:
        super().__init__(stream)
        self.calls = calls


def _json(event: EventDict, **_options: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


_encode = msgspec.json.Encoder().encode
_STRUCTLOGS_OWN = frozenset({"level", "timestamp"})
