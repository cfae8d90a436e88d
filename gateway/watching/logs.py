"""The log: one canonical line per call, dotted event names, key=value, secrets masked."""

import logging
import sys
from typing import Any, Literal

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.calls import CallRecord
from providers.redaction import redact

_TEXTS = ("error", "exception", "event", "url", "problem")  # where foreign words, and so perhaps a key, can appear


def configure(level: str, style: Literal["auto", "console", "json"]) -> None:
    """Set up structlog, and the standard library's logging through it, for this process."""
    console = sys.stderr.isatty() if style == "auto" else style == "console"
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
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(
        handlers=[handler], level=max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]), force=True
    )


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
        self._log = _quick_logger() or structlog.get_logger()

    def call_finished(self, record: CallRecord) -> None:
        """Write the line."""
        winner = next((item for item in record.attempts if item.id == record.winner_attempt_id), None)
        facts: dict[str, Any] = {
            "id": record.id,
            "model": record.model,
            "status": record.status_code,
            "mode": str(record.mode),
            "launched": record.launched,
            "winner": winner.deployment if winner else None,
            "ttft_ms": record.ttft_ms,
            "total_ms": record.total_ms,
            "decode_tps": winner.decode_tps if winner else None,
            "tokens": record.completion_tokens,
        }
        if record.client is not None:
            facts["client"] = record.client
        if record.error_kind is not None:
            facts["error_kind"] = str(record.error_kind)
            facts["causes"] = [f"{item.deployment}:{item.error_kind}" for item in record.attempts if item.error_kind]
        self._log.info("call.finished", **facts)


def _quick_logger() -> Any:
    """Return a logger for lines that quote nobody, in JSON straight to bytes; None where people read the log."""
    processors = structlog.get_config()["processors"]
    if not isinstance(processors[-1], structlog.processors.JSONRenderer):
        return None
    return structlog.wrap_logger(
        structlog.BytesLogger(sys.stderr.buffer),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=_json_bytes),
        ],
        wrapper_class=structlog.get_config()["wrapper_class"],
        cache_logger_on_first_use=True,
    )


def _json_bytes(event: EventDict, **_options: Any) -> bytes:
    return msgspec.json.encode(event, enc_hook=str)


def _json(event: EventDict, **_options: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
