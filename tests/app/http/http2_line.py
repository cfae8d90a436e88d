"""A server's HTTP/2 connection, spoken by the h2 package."""

import asyncio
import ssl
from collections.abc import Sequence

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.settings import SettingCodes

from providers.http.message import Field
from tests.app.http.lines import Exchange, Line, Server
from tests.app.providers.origin import soon

_EMPTY = {204, 304}


class Http2Line(Line):
    """Opens its windows as requests arrive, unless it is ``miserly``."""

    miserly = False
    streams_at_a_time = 100

    def __init__(self, server: Server, tls: ssl.SSLContext | None) -> None:
        super().__init__(server, tls)
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.goodbye: int | None = None  # the code of the client's GOAWAY
        self._greeted = False
        self._moved = asyncio.Event()  # a window may have opened, or an exchange ended

    def heard(self, data: bytes) -> None:
        if not self._greeted:
            self._greeted = True
            self.h2.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = self.streams_at_a_time
            self.h2.initiate_connection()
        for event in self.h2.receive_data(data):
            self._take(event)
        self._moved.set()
        self.flush()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data:
            self.send(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._moved.set()

    def begin(self, exchange: Exchange, status: int, fields: Sequence[Field], length: int | None) -> None:
        own = [(b":status", b"%d" % status), *fields]
        if length is not None and status >= 200 and status not in _EMPTY:
            own.append((b"content-length", b"%d" % length))
        self.h2.send_headers(exchange.stream_id, own)
        self.flush()

    async def say(self, exchange: Exchange, data: bytes) -> None:
        while data:
            await self.drained()
            if exchange.cut.is_set():
                raise ConnectionResetError
            room = min(self.h2.local_flow_control_window(exchange.stream_id), self.h2.max_outbound_frame_size)
            if room <= 0:
                self._moved.clear()
                await soon(self._moved.wait())
                continue
            self.h2.send_data(exchange.stream_id, data[:room])
            data = data[room:]
            self.flush()

    def end(self, exchange: Exchange, trailers: Sequence[Field]) -> None:
        if trailers:
            self.h2.send_headers(exchange.stream_id, trailers, end_stream=True)
        else:
            self.h2.end_stream(exchange.stream_id)
        self.flush()

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=stream_id, headers=headers):
                pseudo = {name: value.decode("latin-1") for name, value in headers if name.startswith(b":")}
                fields = [(name, value) for name, value in headers if not name.startswith(b":")]
                self.arrived(Exchange(self, stream_id, pseudo[b":method"], pseudo[b":path"], fields))
            case DataReceived(stream_id=stream_id, data=data, flow_controlled_length=size):
                self.exchanges[stream_id].body += data
                if size and not self.miserly:
                    self.h2.acknowledge_received_data(size, stream_id)
            case StreamEnded(stream_id=stream_id):
                self.exchanges[stream_id].whole.set()
            case StreamReset(stream_id=stream_id):
                self.exchanges[stream_id].cut.set()
            case ConnectionTerminated(error_code=code):
                self.goodbye = int(code or 0)
            case WindowUpdated() | RemoteSettingsChanged():
                self._moved.set()
