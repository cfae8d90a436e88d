"""What a server may make us hold or do, whatever it sends: every bound of the client in one place.

All of them are far above what providers do; whoever goes beyond is broken or hostile, and its connection is dropped.
"""

HEAD_BYTES = 64 * 1024  # of one response's header fields, and of its trailers
HEAD_FIELDS = 256
INTERIM_RESPONSES = 16  # 1xx before the response
BUFFERED_BYTES = 48 * 1024  # of one response's body that nobody has read yet, before its sender is held back
READ_BYTES = 32 * 1024  # of a body at a time: who reads one may have to wait for a slow client with what it has read
WHOLE_READ_BYTES = 1024 * 1024  # likewise, for who takes all of a body as it comes
PIECES = 128  # of what was not read yet, before they are joined: one byte alone takes forty

IDLE_S = 50.0  # below the 60 s after which the load balancers of many vendors drop a silent connection
UNKNOWN_DIALS = 4  # at a time, until it is known whether a connection takes one exchange or many
MAX_IDLE = 256  # kept connections per origin
MAX_TRIES = 3  # of one request, where each time the server did not begin with it

HTTP2_STREAMS = 16  # exchanges at a time on one connection: more would wait for each other's lost packets
HTTP2_WINDOWS = 8  # a body may wait for so many, a round trip each, rather than cost a connection when its race is lost
HTTP2_RESETS_WEARING = 75  # of ours on one connection, until another is made ready
HTTP2_RESETS = 100  # likewise, until it takes no more requests: servers count them (nghttp2, Envoy, netty), from 200 on
HTTP2_CONNECTION_BYTES = 16 * 1024 * 1024  # under way to us on one connection
HTTP2_STREAM_BYTES = 96 * 1024  # of one response's body that nobody has read yet; a megabyte a second from 0.1 s away
HTTP2_WHOLE_BYTES = 1024 * 1024  # likewise, of one whose reader takes all of it as it comes
HTTP2_CONTINUATIONS = 64  # frames of one header block
HTTP2_USELESS_FRAMES = 1000  # since a request, a response or a body last got on
HTTP2_QUIET_S = 10.0  # idle for longer, a connection may have been forgotten by what lies between: it is asked
HTTP2_ANSWER_S = 5.0  # how long it may then take to send anything at all
