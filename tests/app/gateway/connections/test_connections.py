"""How many connections strangers may have, how long they may be silent, and who is cut for it."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trustme
from structlog.typing import EventDict

from providers.simulator import Hang
from tests.app.gateway.running_gateway import RunningGateway, Serve, chat_body, read
from tests.patience import PATIENCE_S

KEY = "hs-key-of-a-client"
CLIENTS = {"someone": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest()}}
MODELS = f"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()
LIVE = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
OTHER = "127.0.0.2"  # another address of this machine's own


def limits(**limits: Any) -> dict[str, Any]:
    return {"connections": limits, "clients": CLIENTS}


def forwarded(*clients: str, request: bytes = LIVE) -> bytes:
    """Return the request as a proxy passes it on."""
    return request.replace(b"\r\n\r\n", f"\r\nx-forwarded-for: {', '.join(clients)}\r\n\r\n".encode())


def accepted(running: RunningGateway) -> float:
    return running.gateway.metrics._cells[running.gateway.metrics._accepted]


async def counted(running: RunningGateway) -> dict[str, float]:
    """Return what the metrics say of connections, by what they call it."""
    page, _ = await running.gateway.metrics.render()
    lines = (line for line in page.decode().splitlines() if line.startswith("holeshot_connections"))
    return {name.removeprefix("holeshot_connections"): float(value) for name, value in map(str.split, lines)}


def told(answer: bytes) -> tuple[int, str]:
    """Return an error's status and code."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head
    assert b"\r\ncontent-length: %d\r\n" % len(body) in head
    return int(head[9:12]), msgspec.json.decode(body)["error"]["code"]


class Caller:
    """A connection of a client's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: bytes = LIVE) -> int:
        """Send a request, and return its answer's status."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await self._reader.readexactly(int(fields[b"content-length"]))
        return int(head[9:12])

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def rest(self) -> bytes:
        """Return what comes until the gateway hangs up; also if it does so while more is said to it."""
        said = b""
        try:
            while block := await self._reader.read(65_536):
                said += block
        except ConnectionResetError:
            said += bytes(self._reader._buffer)  # type: ignore[attr-defined]  # what a reset has overtaken
        return said

    async def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def calling(
    running: RunningGateway, number: int = 1, *, source: str = "127.0.0.1"
) -> AsyncIterator[list[Caller]]:
    """Open connections, one after the other, each once the gateway knows the one before."""
    host, _, port = running.url.removeprefix("http://").rpartition(":")
    callers = []
    try:
        for _ in range(number):
            known = accepted(running)
            reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            callers.append(Caller(reader, writer))
            while accepted(running) == known:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0)
        yield callers
    finally:
        for caller in callers:
            await caller.close()


async def test_an_address_that_is_silent_keeps_neither_others_nor_itself_out(serve: Serve) -> None:
    async with serve(config=limits(max_per_address=3)) as running, calling(running, 4) as silent:
        async with calling(running, source=OTHER) as [other]:
            assert await other.ask() == 200
        async with calling(running) as [same]:
            assert await same.ask() == 200
        assert [await each.rest() for each in silent[:2]] == [b"", b""]  # the longest silent ones
        assert [await each.ask() for each in silent[2:]] == [200, 200]
        assert (await counted(running))['_cut_total{reason="address"}'] == 2


async def test_when_there_are_too_many_in_all_the_longest_silent_makes_room_wherever_it_is_from(serve: Serve) -> None:
    async with (
        serve(config=limits(max=3)) as running,
        calling(running, source=OTHER) as [first],
        calling(running) as [second],
        calling(running, source="127.0.0.3") as [third],
    ):
        assert await first.ask() == 200  # so that it is not the longest silent one
        async with calling(running, source="127.0.0.4") as [newest]:
            assert await second.rest() == b""
            assert [await each.ask() for each in (first, third, newest)] == [200, 200, 200]
        assert (await counted(running))['_cut_total{reason="strangers"}'] == 1


async def test_a_connection_on_which_a_request_was_admitted_is_no_strangers(serve: Serve) -> None:
    async with serve(config=limits(max=2, max_per_address=1)) as running, calling(running, 1) as [client]:
        assert await client.ask(MODELS) == 200
        async with calling(running, 3) as silent:
            assert [await each.rest() for each in silent[:2]] == [b"", b""]
            assert await client.ask() == 200
            assert await silent[2].ask() == 200
            found = await counted(running)
    assert (found[""], found["_unadmitted"], found["_accepted_total"]) == (2, 1, 4)


async def test_a_refused_key_admits_nobody(serve: Serve) -> None:
    async with serve(config=limits(max_per_address=1)) as running, calling(running) as [refused]:
        assert await refused.ask(MODELS.replace(KEY.encode(), b"hs-wrong")) == 401
        async with calling(running) as [newest]:
            assert await refused.rest() == b""
            assert await newest.ask() == 200


async def test_with_no_room_for_more_connections_a_stranger_goes_before_a_client(serve: Serve) -> None:
    async with serve(config=limits()) as running:
        running.connections.most = 2
        async with calling(running, 2) as [client, stranger]:
            assert await client.ask(MODELS) == 200
            async with calling(running) as [newest]:
                assert await stranger.rest() == b""
                assert [await each.ask() for each in (client, newest)] == [200, 200]
        assert (await counted(running))['_cut_total{reason="descriptors"}'] == 1


async def test_idle_connections_of_clients_keep_nobody_out_where_there_is_no_room_for_more(serve: Serve) -> None:
    async with serve(config=limits()) as running:
        running.connections.most = 2
        async with calling(running, 2) as [longest_idle, other]:
            assert [await each.ask(MODELS) for each in (longest_idle, other)] == [200, 200]
            async with calling(running) as [newest]:
                assert await longest_idle.rest() == b""
                assert [await each.ask() for each in (newest, other)] == [200, 200]
        assert (await counted(running))['_cut_total{reason="descriptors"}'] == 1


async def test_a_client_with_a_running_request_is_not_idle(serve: Serve) -> None:
    async with serve(alpha=[Hang()], config=limits()) as running:
        running.connections.most = 1
        async with calling(running) as [busy]:
            body = msgspec.json.encode(chat_body())
            head = MODELS.replace(b"GET /v1/models", b"POST /v1/chat/completions").removesuffix(b"\r\n")
            busy.say(head + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await running["alpha"].requested.wait()
            reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rpartition(":")[2]))
            writer.write(LIVE)  # waits in the kernel's queue, and is not reset
            running.connections.exhausted()
            assert running["alpha"].counts.disconnects == 0
            running.connections.most = 2
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            writer.close()


async def test_who_says_nothing_is_cut_without_a_word(serve: Serve) -> None:
    async with serve(config=limits(headers_timeout_s=0.3)) as running, calling(running) as [silent]:
        assert await silent.rest() == b""
        assert (await counted(running))['_cut_total{reason="late_head"}'] == 1


async def test_headers_that_come_in_drops_are_not_waited_for(serve: Serve) -> None:
    async with serve(config=limits()) as running, calling(running) as [slow]:
        assert await slow.ask() == 200
        running.gateway.reload(read({**running.config, **limits(headers_timeout_s=0.3)}, running.folder))
        slow.say(LIVE[:-2])
        answer = asyncio.create_task(slow.rest())
        # Two drops after the end close the client's side before it has read.
        async with asyncio.timeout(PATIENCE_S):
            while not (await asyncio.wait({answer}, timeout=0.1))[0]:
                slow.say(b"x-more: of it\r\n")
        assert told(await answer) == (408, "headers_timeout")
        assert (await counted(running))['_cut_total{reason="late_head"}'] == 1


async def test_headers_without_an_end_are_not_kept(serve: Serve) -> None:
    async with serve(config=limits()) as running, calling(running) as [endless]:
        for _ in range(2):  # what came with an earlier request does not count
            for number in range(3):
                line = b"x-%d: %s\r\n" % (number, b"x" * 6_000)
                endless.say(LIVE[:-2] + line if number == 0 else line)
            assert await endless.ask(b"\r\n") == 200
        endless.say(LIVE[:-2])
        for number in range(6):
            endless.say(b"x-%d: %s\r\n" % (number, b"x" * 6_000))
        assert told(await endless.rest()) == (431, "headers_too_large")
        assert (await counted(running))['_cut_total{reason="large_head"}'] == 1


async def test_headers_in_several_pieces_that_come_in_time_are_taken(serve: Serve) -> None:
    async with serve(config=limits()) as running, calling(running) as [caller]:
        for _ in range(2):
            for piece in (LIVE[:5], LIVE[5:20]):
                caller.say(piece)
                await asyncio.sleep(0)
            assert await caller.ask(LIVE[20:]) == 200
        assert not running.connections._heads


async def test_a_kept_connection_owes_nothing_between_its_requests(serve: Serve) -> None:
    async with serve(config=limits()) as running, calling(running) as [caller]:
        assert len(running.connections._heads) == 1
        for request in (LIVE, MODELS, LIVE):
            assert await caller.ask(request) == 200
            assert not running.connections._heads
        assert running.connections._heads._look is None


async def test_a_trusted_proxys_connections_are_counted_by_who_it_says_they_are_for(serve: Serve) -> None:
    config = {**limits(max_per_address=1), "trusted_proxies": ["127.0.0.1/32", "10.0.0.0/8"]}
    async with serve(config=config) as running, calling(running, 4) as [one, two, three, four]:
        # The first of two addresses is what the client said itself; one of the proxy's own speaks for nobody.
        assert await one.ask(forwarded("192.0.2.1")) == 200
        assert await two.ask(forwarded("192.0.2.1", "192.0.2.2")) == 200
        assert await three.ask(forwarded("192.0.2.1", "10.0.0.1", request=MODELS)) == 200
        assert await one.rest() == b""
        assert [await each.ask() for each in (two, three, four)] == [200, 200, 200]


async def test_who_is_not_trusted_cannot_say_that_it_is_somebody_else(serve: Serve) -> None:
    async with serve(config=limits(max_per_address=1)) as running, calling(running) as [one]:
        assert await one.ask(forwarded("192.0.2.1")) == 200
        async with calling(running) as [two]:
            assert await one.rest() == b""
            assert await two.ask(forwarded("192.0.2.2")) == 200


async def test_many_that_are_cut_make_one_line_of_the_log(serve: Serve, logged: list[EventDict]) -> None:
    async with serve(config=limits(max_per_address=1)) as running, calling(running, 4):
        [line] = [entry for entry in logged if entry["event"] == "connections.cut"]
        assert line["address"] == 1
    first, rest = [entry for entry in logged if entry["event"] == "connections.cut"]
    assert (first["address"], rest["address"]) == (1, 2)


async def test_limits_that_are_changed_count_at_once(serve: Serve) -> None:
    async with serve(config=limits()) as running, calling(running, 2) as [one, two]:
        settings = running.gateway.context.settings
        fewer = settings.connections.model_copy(update={"max_per_address": 2})
        running.gateway.reload(settings.model_copy(update={"connections": fewer}))
        async with calling(running) as [three]:
            assert await one.rest() == b""
            assert [await each.ask() for each in (two, three)] == [200, 200]


async def test_handshakes_that_are_begun_keep_nobody_out(serve: Serve) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    async with serve(config=limits(max_per_address=2)) as running:
        running.connections.ssl_context = context
        async with calling(running, 3) as begun:
            for each in begun:
                each.say(b"\x16\x03\x01\x02")
            assert await begun[0].rest() == b""
            port = int(running.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            assert await begun[1].rest() == b""
            assert await Caller(reader, writer).ask(MODELS) == 200
            assert len(running.connections._opening) == 1  # the third one's
            writer.close()
        assert (await counted(running))['_cut_total{reason="address"}'] == 2
