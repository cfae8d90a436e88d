"""An OTLP/HTTP collector on loopback, which decodes what it is sent with OpenTelemetry's official protobufs."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


class Event(msgspec.Struct, frozen=True):
    """An event of a span."""

    name: str
    unix_ns: int
    attributes: Mapping[str, Any]


class Span(msgspec.Struct, frozen=True):
    """A span as it arrived; ids in hexadecimal digits, no parent as an empty text."""

    name: str
    kind: int
    trace_id: str
    id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: tuple[Event, ...]
    links: tuple[str, ...]  # the ids of spans
    state: str
    status: int
    resource: Mapping[str, Any]

    @property
    def deployment(self) -> str | None:
        """The deployment of an attempt."""
        found: str | None = self.attributes.get("holeshot.deployment")
        return found


class Collector:
    """What arrived. ``status`` is what it answers; ``hangs`` makes it accept requests and never answer.

    ``rejected`` are the spans that it says of each export that it does not keep. ``says`` answers in its place.
    """

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self.status = 200
        self.hangs = False
        self.rejected = 0
        self.says: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        self.asked = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def calls(self) -> list[Span]:
        """The spans of calls."""
        return [span for span in self.spans if "holeshot.launched" in span.attributes]

    @property
    def attempts(self) -> dict[str, Span]:
        """The spans of attempts by deployment."""
        return {span.deployment: span for span in self.spans if span.deployment is not None}

    async def receive(self, request: web.Request) -> web.StreamResponse:
        """Answer one export."""
        body = await request.read()
        self.asked.set()
        if self.hangs:
            await self._over.wait()
        if self.status == 200:
            self.headers.append(dict(request.headers))
            self.bodies.append(body)
            self.spans += decoded(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        if self.says is not None:
            return await self.says(request)
        answer = ExportTraceServiceResponse()
        if self.rejected:
            answer.partial_success.rejected_spans = self.rejected
            answer.partial_success.error_message = "too old"
        message = answer.SerializeToString()
        return web.Response(status=self.status, body=message, content_type="application/x-protobuf")

    def end(self) -> None:
        """Let hanging requests go."""
        self._over.set()


@asynccontextmanager
async def collecting(port: int = 0) -> AsyncIterator[Collector]:
    """Run a collector until the block ends."""
    collector = Collector()
    application = web.Application()
    application.router.add_post("/v1/traces", collector.receive)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        collector.end()
        await runner.cleanup()


def decoded(body: bytes) -> list[Span]:
    """Return the spans in an export request."""
    return [
        Span(
            name=span.name,
            kind=span.kind,
            trace_id=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            attributes=_plain(span.attributes),
            events=tuple(Event(each.name, each.time_unix_nano, _plain(each.attributes)) for each in span.events),
            links=tuple(link.span_id.hex() for link in span.links),
            state=span.trace_state,
            status=span.status.code,
            resource=_plain(resource.resource.attributes),
        )
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _plain(attributes: Any) -> dict[str, Any]:
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, str(kind))
