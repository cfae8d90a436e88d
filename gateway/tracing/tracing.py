"""The traces of a process: off, or on with an exporter; a reload may change that."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from gateway.settings.model import Settings
from gateway.settings.tracing import TracingSettings
from gateway.tracing.call_traces import CallTraces
from gateway.tracing.naming import peers
from gateway.tracing.sender import Sender

if TYPE_CHECKING:
    from gateway.tracing.exporting import OtlpExporter

_OFF = TracingSettings()


class Tracing:
    """``own`` is what recorders tell of calls: None while traces are off. OpenTelemetry is imported when they are on.

    ``worker`` names this process in its spans; ``clock``: monotonic seconds, that of the records.
    """

    def __init__(self, settings: Settings, *, worker: str, clock: Callable[[], float]) -> None:
        """Set up traces; ``start`` them.

        Raises:
            ValueError: an OTEL_* variable is invalid.

        """
        self.own: CallTraces | None = None
        self._worker = worker
        self._clock = clock
        self._settings = _OFF
        self._exporter: OtlpExporter | None = None
        self._senders: list[Sender] = []  # the last one is in use, if traces are on
        self._closing: set[asyncio.Task[None]] = set()
        self._set_up(settings)

    @property
    def dropped(self) -> int:
        """The number of spans of this process that were not exported."""
        return sum(sender.dropped for sender in self._senders)

    def start(self) -> None:
        """Start to export."""
        if self.own is not None:
            self.own.sender.start()

    def configure(self, settings: Settings) -> None:
        """Use the settings of a reload; an invalid variable leaves traces as they were."""
        before = None if self.own is None else self.own.sender
        try:
            self._set_up(settings)
        except ValueError as error:
            structlog.get_logger().error(
                "tracing.not_configured", problem=str(error), effect="traces stay as they were"
            )
            return
        self.start()
        if before is not None and (self.own is None or self.own.sender is not before):
            task = asyncio.get_running_loop().create_task(before.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Export what is queued, for a limited time."""
        if self.own is not None:
            await self.own.sender.close()
        await asyncio.gather(*self._closing)

    def _set_up(self, settings: Settings) -> None:
        new = settings.tracing
        if new == self._settings or not (new.enabled or self._settings.enabled):
            if self._exporter is not None:
                self._exporter.spans.peers = peers(settings)
            return
        if not new.enabled:
            self.own, self._exporter, self._settings = None, None, new
            return
        from gateway.tracing.exporting import OtlpExporter  # noqa: PLC0415 - half a second that others need not pay

        self._exporter = OtlpExporter(new, instance=self._worker, peers=peers(settings))
        sender = Sender(self._exporter)
        self._senders.append(sender)
        if self.own is None:
            self.own = CallTraces(sender, sample_ratio=new.sample_ratio, is_passed_on=new.propagate, clock=self._clock)
        else:
            self.own.use(sender, sample_ratio=new.sample_ratio, is_passed_on=new.propagate)
        self._settings = new
