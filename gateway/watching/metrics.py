"""Prometheus metrics of calls and attempts, with their children cached: ``labels()`` costs more than counting."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gateway.calls import AttemptRecord, AttemptStart, CallRecord

# Seconds. Dense where first tokens lie, up to the default first-token clock.
TTFT_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60, 120)
TPS_BUCKETS = (5, 10, 20, 30, 45, 60, 80, 100, 150, 200, 300, 500, 1000, 2000)
OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # to be set before prometheus_client is first imported
REFRESH_S = 1.0
ADHOC_LABEL = "adhoc"  # names made up by clients must not become time series


def forget_process(pid: int) -> None:
    """Take a dead worker's gauges out of the sums."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - only with several workers

    mark_process_dead(pid)  # type: ignore[no-untyped-call] # the library has no types


class Metrics:
    """Counts what the recorder hears. One per process; ``render`` gives all workers' together."""

    def __init__(self, known_models: Callable[[], object]) -> None:
        self._known_models = known_models
        self.shared = MULTIPROCESS_FOLDER in os.environ  # there are several workers
        self._refreshed: list[tuple[Gauge, Callable[[], float]]] = []
        registry = self.registry = CollectorRegistry()
        self._children: dict[tuple[Any, ...], Any] = {}
        self._calls = Counter("holeshot_calls_total", "Finished calls.", ("model", "mode", "status"), registry=registry)
        self._attempts = Counter(
            "holeshot_attempts_total",
            "Ended upstream attempts; outcome lost counts cancelled losers.",
            ("deployment", "role", "outcome"),
            registry=registry,
        )
        self._errors = Counter(
            "holeshot_attempt_errors_total",
            "Failed upstream attempts by cause.",
            ("deployment", "kind"),
            registry=registry,
        )
        self._refused = Counter(
            "holeshot_refused_launches_total",
            "Extra attempts a limit refused: their races were narrower.",
            ("model", "limit"),
            registry=registry,
        )
        self._tokens = Counter(
            "holeshot_tokens_total", "Tokens, as reported.", ("deployment", "kind"), registry=registry
        )
        self._cost = Counter(
            "holeshot_cost_usd_total",
            "US dollars at list price, losers' as lower bounds.",
            ("model", "share"),
            registry=registry,
        )
        self._ttft = Histogram(
            "holeshot_ttft_seconds",
            "Call received to first token.",
            ("model",),
            buckets=TTFT_BUCKETS,
            registry=registry,
        )
        self._attempt_ttft = Histogram(
            "holeshot_attempt_ttft_seconds",
            "Attempt launched to first token, of those that had one.",
            ("deployment",),
            buckets=TTFT_BUCKETS,
            registry=registry,
        )
        self._decode = Histogram(
            "holeshot_decode_tokens_per_second",
            "Decode speed.",
            ("deployment",),
            buckets=TPS_BUCKETS,
            registry=registry,
        )
        self._overhead = Histogram(
            "holeshot_overhead_seconds",
            "The gateway's own share of the TTFT.",
            buckets=OVERHEAD_BUCKETS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "holeshot_in_flight_attempts",
            "Attempts under way.",
            ("deployment",),
            multiprocess_mode="livesum",
            registry=registry,
        )

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when metrics are rendered, or each second when there are several workers."""
        gauge = Gauge(name, documentation, multiprocess_mode="livesum", registry=self.registry)
        if self.shared:  # a function cannot be called from another process
            self._refreshed.append((gauge, read))
        else:
            gauge.set_function(read)

    async def keep_fresh(self) -> None:
        """Note the gauges each second, for the worker that is asked for all. Runs until cancelled."""
        while True:
            for gauge, read in self._refreshed:
                gauge.set(read())
            await asyncio.sleep(REFRESH_S)

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """Count an attempt in."""
        self._child(self._in_flight, self._deployment(model, start.deployment)).inc()

    def attempt_ended(self, model: str, attempt: AttemptRecord) -> None:
        """Count an attempt out, and what it was."""
        name = self._deployment(model, attempt.deployment)
        self._child(self._in_flight, name).dec()
        self._child(self._attempts, name, str(attempt.role), str(attempt.outcome)).inc()
        if attempt.error_kind is not None:
            self._child(self._errors, name, str(attempt.error_kind)).inc()
        if attempt.ttft_ms is not None:
            self._child(self._attempt_ttft, name).observe(attempt.ttft_ms / 1000)
        if attempt.decode_tps is not None:
            self._child(self._decode, name).observe(attempt.decode_tps)
        if attempt.completion_tokens:
            self._child(self._tokens, name, "completion").inc(attempt.completion_tokens)
        if attempt.prompt_tokens:
            self._child(self._tokens, name, "prompt").inc(attempt.prompt_tokens)

    def launch_refused(self, model: str, limit: str) -> None:
        """Count an extra attempt that ``limit``, budget or usd_per_day, did not let start."""
        self._child(self._refused, self._label(model), limit).inc()

    def call_finished(self, record: CallRecord) -> None:
        """Count a call."""
        model = self._label(record.model)
        self._child(self._calls, model, str(record.mode), str(record.status_code)).inc()
        if record.ttft_ms is not None:
            self._child(self._ttft, model).observe(record.ttft_ms / 1000)
        if record.overhead_ms is not None:
            self._overhead.observe(record.overhead_ms / 1000)
        if record.cost_usd is not None:
            duplicate_usd = record.duplicate_cost_usd or 0.0
            self._child(self._cost, model, "answer").inc(max(0.0, record.cost_usd - duplicate_usd))
            self._child(self._cost, model, "duplicate").inc(duplicate_usd)

    async def render(self) -> tuple[bytes, str]:
        """Return the text format and its content type, of all workers when there are several."""
        return await asyncio.to_thread(self._render), CONTENT_TYPE_LATEST

    def _render(self) -> bytes:
        if self.shared:
            from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415 - only with several workers

            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call] # the library has no types
            return generate_latest(registry)
        return generate_latest(self.registry)

    def _label(self, model: str) -> str:
        known = self._known_models()
        return model if isinstance(known, dict) and model in known else ADHOC_LABEL

    def _deployment(self, model: str, name: str) -> str:
        return name if self._label(model) == model else ADHOC_LABEL

    def _child(self, metric: Any, *labels: str) -> Any:
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child
