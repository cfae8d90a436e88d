"""What is used of aiohttp's inside, tried with the aiohttp that is installed: its server over real sockets."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.http_parser import RawRequestMessage

from gateway.http import (
    EventsResponse,
    PlainResponse,
    ServerConnection,
    has_answer,
    message_of,
    past_the_router,
    serving_task,
)
from gateway.http.aiohttp_adapter import reading_is_paused
from tests.patience import until

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
ROOT = Path(__file__).parents[4]
HELP = "aiohttp has changed what gateway/http/aiohttp_adapter.py uses: see its new version of "


class Served:
    """One connection to a server, and its two ends."""

    def __init__(
        self, connection: ServerConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connection = connection
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """Send a request, and return the head of its answer."""
        self.writer.write(request)
        return await self.reader.readuntil(b"\r\n\r\n")

    async def idle(self) -> None:
        """Wait until aiohttp's task waits for a request."""
        await until(lambda: (waiter := self.connection.waiter) is not None and not waiter.done())


@asynccontextmanager
async def served(handle: Handle, *, app: web.Application | None = None) -> AsyncIterator[Served]:
    made: list[ServerConnection] = []
    loop = asyncio.get_running_loop()
    if app is None:
        server: web.Server = web.Server(handle)  # type: ignore[arg-type] # its requests have no application
    else:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        assert runner.server is not None
        server = runner.server
        server.request_handler = handle  # type: ignore[assignment]

    def connect() -> ServerConnection:
        made.append(ServerConnection(server, loop=loop))
        return made[-1]

    listening = await loop.create_server(connect, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    await until(lambda: made and made[0].transport is not None)
    try:
        yield Served(made[0], reader, writer)
    finally:
        writer.close()
        listening.close()
        await server.shutdown(1.0)


async def nothing(_: web.Request) -> web.StreamResponse:
    return web.Response()


@pytest.mark.parametrize(
    "name",
    [name for name, each in vars(ServerConnection).items() if type(each).__name__ == "member_descriptor"],
)
def test_each_name_is_a_slot_of_aiohttps_connection(name: str) -> None:
    slot = vars(ServerConnection)[name]
    assert slot.__objclass__ in web.RequestHandler.__mro__, HELP + "web.RequestHandler"


def test_all_names_are_slots_so_that_a_look_calls_no_python_function() -> None:
    listed = "waiter messages current_request socket_reader idle_until serving loop reading_paused buffer_paused"
    for name in listed.split():
        assert type(vars(ServerConnection)[name]).__name__ == "member_descriptor", HELP + "web.RequestHandler"


async def test_a_connection_waits_for_a_request_handles_it_and_notes_when_it_is_answered() -> None:
    seen: list[object] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, ServerConnection)
        seen.extend((connection.current_request is request, connection.waiter, message_of(request).path))
        seen.append((has_answer(request), serving_task(connection) is connection.serving is not None))
        return web.Response()

    async with served(handle) as one:
        await one.idle()
        assert one.connection.current_request is None
        before_s = one.connection.loop.time()
        assert (await one.ask(GET)).startswith(b"HTTP/1.1 200")
        await one.idle()
        assert seen == [True, None, "/a", (False, True)], HELP + "RequestHandler.start"
        assert one.connection.current_request is None
        assert one.connection.idle_until >= before_s + one.connection.keepalive_timeout


async def test_the_end_of_an_answer_is_seen_while_its_handler_runs_on() -> None:
    seen: list[bool] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        response = EventsResponse()
        await response.prepare(request)
        await response.write_eof(b"all")
        seen.append(has_answer(request))
        return response

    async with served(handle) as one:
        await one.ask(GET)
    assert seen == [True], HELP + "http_writer.StreamWriter"


async def test_what_is_parsed_unseen_wakes_nobody_and_can_be_answered_or_handed_on() -> None:
    async with served(nothing) as one:
        await one.idle()
        connection = one.connection
        waiter = connection.waiter
        assert waiter is not None
        connection.parse_unseen(POST, waiter)
        [(message, payload)] = connection.messages
        assert isinstance(message, RawRequestMessage)
        assert (message.method, payload.read_nowait(), payload.is_eof()) == ("POST", b"hi", True)
        await asyncio.sleep(0)
        assert (connection.waiter, waiter.done()) == (waiter, False), HELP + "RequestHandler.data_received"
        connection.take_first()
        assert not connection.messages
        assert connection.idle_until > 0.0
        connection.parse_unseen(GET, waiter)
        waiter.set_result(None)
        assert (await one.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_complete_requests_before_malformed_data_are_kept_in_their_order() -> None:
    async with served(nothing) as one:
        await one.idle()
        connection = one.connection
        assert connection.waiter is not None
        connection.parse_unseen(GET + POST + b"no HTTP\r\n\r\n", connection.waiter)
        connection.restore_requests()
        *requests, (error, _) = connection.messages
        assert [message.method for message, _ in requests] == ["GET", "POST"], HELP + "_http_parser.pyx"
        assert not isinstance(error, RawRequestMessage)


async def test_reading_that_is_paused_is_seen_and_the_wire_is_resumed_by_one_method() -> None:
    resumed: list[bool] = []

    class Noting(ServerConnection):
        def resume_wire(self) -> None:
            resumed.append(reading_is_paused(self))
            super().resume_wire()

    connection = Noting(web.Server(nothing), loop=asyncio.get_running_loop())  # type: ignore[arg-type]
    connection.data_received(POST[:-1])  # its body is awaited
    connection.pause_reading()
    assert (connection.reading_paused, reading_is_paused(connection)) == (True, True)
    connection.resume_reading()
    assert (connection.reading_paused, connection.buffer_paused) == (False, False)
    assert resumed == [False], HELP + "BaseProtocol.resume_reading"


async def test_a_read_of_a_body_parses_on_only_where_reading_was_paused() -> None:
    parsed: list[bytes] = []

    class Noting(ServerConnection):
        def data_received(self, data: bytes) -> None:
            parsed.append(data)
            super().data_received(data)

    connection = Noting(web.Server(nothing), loop=asyncio.get_running_loop())  # type: ignore[arg-type]
    connection.data_received(POST[:-1])
    [(_, payload)] = connection.messages
    assert payload.read_nowait() == b"h"
    assert parsed == [POST[:-1]]
    connection.pause_reading()
    connection.resume_reading()
    assert parsed == [POST[:-1], b""], HELP + "BaseProtocol.resume_reading"


async def test_the_head_of_an_event_stream_goes_out_with_its_first_events() -> None:
    written: list[int] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        response = EventsResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        written.append(request.writer.output_size)
        await response.write(b"data: 1\n\n")
        written.append(request.writer.output_size)
        await response.write_eof()
        return response

    async with served(handle) as one:
        assert b"text/event-stream" in await one.ask(GET)
    assert written[0] == 0 < written[1], HELP + "web.StreamResponse"


@pytest.mark.parametrize("body", [b"all of it", None])
async def test_a_plain_response_is_one_that_aiohttps_server_takes(body: bytes | None) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = PlainResponse({"x-a": "b"}, body)
        await response.prepare(request)
        if body is None:
            await response.write(b"all ")
            await response.write_eof(b"of it")
        return response

    async with served(handle) as one:
        for _ in range(2):  # the connection stays open
            head = await one.ask(GET)
            assert head.startswith(b"HTTP/1.1 200 OK\r\nx-a: b\r\n")
            if body is None:
                assert await one.reader.readuntil(b"0\r\n\r\n") == b"4\r\nall \r\n5\r\nof it\r\n0\r\n\r\n"
            else:
                assert b"content-length: 9\r\n" in head
                assert await one.reader.readexactly(9) == body
            await one.idle()


async def test_a_plain_response_can_be_the_last_of_its_connection() -> None:
    async def handle(_: web.Request) -> web.StreamResponse:
        response = PlainResponse({}, b"x")
        response.force_close()
        return response

    async with served(handle) as one:
        await one.ask(GET)
        assert await one.reader.read() == b"x"


async def test_requests_past_the_router_have_the_route_and_the_application_of_the_first() -> None:
    key = web.AppKey("name", str)
    seen: list[object] = []
    app = web.Application()
    app[key] = "the app"

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.app[key], request.match_info.handler is answer))
        return web.Response()

    async def around(request: web.Request, handler: Handle) -> web.StreamResponse:
        seen.append("around")
        return await handler(request)

    async def prepared(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["x-prepared"] = "yes"

    app.add_routes([web.post("/a", answer), web.get("/a", answer)])
    app.on_response_prepare.append(prepared)

    async def routed(request: web.Request) -> web.StreamResponse:
        seen.append("routed")
        return await app._handle(request)  # what its runner's server calls

    async with served(past_the_router(routed, {"/a": answer}, around), app=app) as one:
        heads = [await one.ask(request) for request in (POST, POST, GET)]
    assert all(b"x-prepared: yes" in head.lower() for head in heads), HELP + "web.Request._prepare_hook"
    told = ("the app", True)
    assert seen == ["routed", told, "around", told, "routed", told], HELP + "web.Request.match_info"


PRIVATE = {
    *(name for kind in web.RequestHandler.__mro__[:-1] for name in getattr(kind, "__slots__", ()) if name[0] == "_"),
    *(name for kind in (web.Request, web.StreamResponse) for name in vars(kind) if re.match("_[a-z]", name)),
}
OWN = {"_body", "_cache", "_close", "_connection", "_loop", "_messages", "_parser", "_paused", "_start", "_waiter"}


def test_no_other_file_of_the_front_names_a_private_part_of_aiohttp() -> None:
    """Names that our own classes have as well are left out."""
    used = re.compile(rf"\.({'|'.join(sorted(PRIVATE - OWN))})\b")
    found = [
        f"{path.relative_to(ROOT)}: {match[1]}"
        for room in ("admin", "api", "connections", "server")
        for path in sorted((ROOT / "gateway" / room).rglob("*.py"))
        if path.name != "aiohttp_adapter.py"
        for match in used.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
