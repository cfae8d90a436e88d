"""The limits on what a server can make the client store or do, all in one place.

They are far above what providers need. A server that exceeds one is broken or hostile, and its connection is dropped.
"""

HEAD_BYTES = 64 * 1024  # the header fields of one response, and its trailers
HEAD_FIELDS = 256
INTERIM_RESPONSES = 16  # with a status of 1xx, before the response
BUFFERED_BYTES = 48 * 1024  # unread bytes of one response's body, before reading from the connection pauses
READ_BYTES = 32 * 1024  # of a body at once: the reader may have to wait for a slow client before it can pass them on
WHOLE_READ_BYTES = 1024 * 1024  # likewise, for readers of a whole body
PIECES = 128  # unread, before they are joined: a piece of one byte takes forty

IDLE_S = 50.0  # less than the 60 s after which many vendors' load balancers close an idle connection
UNKNOWN_DIALS = 4  # at a time, until it is known whether connections can be shared (HTTP/2)
MAX_IDLE = 256  # idle connections that are kept, per origin
MAX_TRIES = 3  # of one request that the server did not begin to process

HTTP2_STREAMS = 16  # exchanges at a time on one connection: a lost packet delays all of them
HTTP2_WINDOWS = 8  # a longer body goes over HTTP/1.1, where it does not wait a round trip for each window
HTTP2_RESETS_WEARING = 75  # our resets on one connection, until another one is opened
HTTP2_RESETS = 100  # likewise, until it gets no more requests: nghttp2, Envoy and netty tolerate 200 or more
HTTP2_CONNECTION_BYTES = 16 * 1024 * 1024  # unread bytes on one connection
HTTP2_STREAM_BYTES = 96 * 1024  # unread bytes of one response; enough for 1 MB/s at a round trip of 0.1 s
HTTP2_WHOLE_BYTES = 1024 * 1024  # likewise, for readers of a whole body
HTTP2_CONTINUATIONS = 64  # CONTINUATION frames of one header block
HTTP2_USELESS_FRAMES = 1000  # consecutive frames without progress of any request or response
HTTP2_QUIET_S = 10.0  # after this idle time a PING checks the connection: a NAT or a firewall may have forgotten it
HTTP2_ANSWER_S = 5.0  # the time limit for an answer to that PING, or any other data
HTTP2_WINDOW_S = 5.0  # the time limit for a server to take any more of the bodies that wait for it
