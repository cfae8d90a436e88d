"""Optional dependencies, and the commands that install them."""

from importlib.util import find_spec

LITELLM = "pip install 'holeshot[litellm]'"
OTEL = "pip install 'holeshot[otel]'"


def has_litellm() -> bool:
    """Whether litellm is installed. It is not imported for this check, which would take seconds."""
    return find_spec("litellm") is not None


def has_otel() -> bool:
    """Whether OpenTelemetry's exporter is installed. It is imported only where traces are on."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # one of the packages that it is in
        return False
