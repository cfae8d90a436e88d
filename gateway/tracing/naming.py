"""The names of OpenTelemetry's conventions for generative AI, as of semantic-conventions-genai in November 2026."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord
from gateway.core.ids import TraceContext
from gateway.settings import Settings, vendor_of
from providers import load_catalog

# The conventions' names that differ from the catalog's.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "bedrock_invoke": "aws.bedrock",
    "bedrock_mantle": "aws.bedrock",
    "bedrock_openai": "aws.bedrock",
    "claude_aws": "anthropic",
    "claude_google": "anthropic",
    "foundry": "azure.ai.inference",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "vertex_ai": "gcp.vertex_ai",
    "vertex_openai": "gcp.vertex_ai",
    "xai": "x_ai",
}
_OPERATIONS = {
    "chat.completions": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "generate_content": "generate_content",
    "messages": "chat",
    "responses": "chat",
}
_PORTS = {"http": 80, "https": 443}


class Peer(msgspec.Struct, frozen=True):
    """A provider's attributes in spans."""

    name: str
    address: str | None  # of its server; None: litellm knows it
    port: int | None


def operation(endpoint: str) -> str:
    """Return the operation's name; our own where the conventions have none."""
    return _OPERATIONS.get(endpoint, endpoint)


def peers(settings: Settings) -> Mapping[str, Peer]:
    """Return the providers of ``settings`` by their names."""
    catalog, found = load_catalog(), {}
    for name, provider in settings.providers.items():
        vendor = vendor_of(name, provider, catalog)
        kind = name if vendor is None else vendor.name
        base_url = provider.base_url or (vendor.base_url if vendor is not None else None)
        parts = urlsplit(base_url or "")
        port = None if parts.hostname is None else parts.port or _PORTS.get(parts.scheme)
        found[name] = Peer(_PROVIDERS.get(kind, kind), parts.hostname, port)
    return found


# Ended calls and attempts, which the exporting thread makes spans from.


class EndedCall(msgspec.Struct, frozen=True, gc=False):
    """A finished call. Milliseconds are since it was received."""

    record: CallRecord
    trace: TraceContext
    ended_ms: tuple[float, ...]  # when each of its attempts ended

    @property
    def spans(self) -> int:
        """The number of its spans."""
        return 1 + len(self.ended_ms)


class LateAttempt(msgspec.Struct, frozen=True, gc=False):
    """An audited loser that has ended after its call."""

    record: AttemptRecord
    call: EndedCall
    ended_ms: float  # since the call was received
    spans: int = 1


Ended = EndedCall | LateAttempt
