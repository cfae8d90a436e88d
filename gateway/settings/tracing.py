"""The settings of OpenTelemetry traces."""

from typing import Annotated

from pydantic import Field, SecretStr

from gateway.settings.section import Seconds, Section

Ratio = Annotated[float, Field(ge=0, le=1)]


class TracingSettings(Section):
    """Spans of calls and attempts, exported over OTLP/HTTP. What is not set is taken from OTEL_* variables."""

    enabled: bool = False
    endpoint: Annotated[str, Field(pattern="^https?://[^/]")] | None = None  # of the collector, without /v1/traces
    headers: dict[str, SecretStr] = {}  # sent with every export: the collector's key
    timeout_s: Seconds | None = None  # of one export, with its retries
    sample_ratio: Ratio = 1.0  # of traces that begin here; in a client's trace the client's flag decides
    propagate: bool = True  # whether providers are sent traceparent and tracestate
    service_name: str | None = None
    resource_attributes: dict[str, str] = {}
