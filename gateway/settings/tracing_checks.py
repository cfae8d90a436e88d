"""Checks of the settings of traces."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from gateway.settings.model import Settings
from gateway.settings.problems import Complaint
from providers.extras import OTEL, has_otel
from providers.http.message import checked

TRACES_PATH = "/v1/traces"


def check_tracing(settings: Settings) -> Iterator[Complaint]:
    """Yield what is wrong with ``tracing``."""
    tracing = settings.tracing
    if tracing.enabled and not has_otel():
        yield Complaint(("tracing", "enabled"), f"needs the OpenTelemetry packages: run {OTEL}, or set it to false")
    if tracing.endpoint is not None and (problem := _problem(tracing.endpoint)) is not None:
        yield Complaint(("tracing", "endpoint"), problem)
    for name, value in tracing.headers.items():
        try:
            checked({name: value.get_secret_value()})
        except ValueError:
            yield Complaint(
                ("tracing", "headers", name), "cannot be sent as a header field: is there a line break in it?"
            )


def _problem(endpoint: str) -> str | None:
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError:
        return "is not a URL"
    if parts.username is not None or parts.password is not None:
        return "has a user name or password: put the key into tracing.headers"
    if parts.query or parts.fragment:
        return "has a query or fragment: write only the address, like http://localhost:4318"
    if parts.path.rstrip("/").endswith(TRACES_PATH):
        return f"ends with {TRACES_PATH}, which is added: write only what is before it"
    return None
