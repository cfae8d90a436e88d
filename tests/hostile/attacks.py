"""What hostile clients and providers send: one table, each line with who sends it, the requests and the answers.

Bytes are made when they are needed, in the process that sends them.
"""

import gzip
import json
import random
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

MIB = 2**20
# Of clients: what is set beside the key, which is "hs-" and the name.
_CLIENTS: dict[str, dict[str, Any]] = {
    "weak": {"max_parallel": 8},
    "poor": {"usd_per_day": 1},
    "adhoc": {"adhoc": True},
    "fair": {},
    "rare": {"rpm": 5},
    "weakest": {"rpm": 60, "usd_per_day": 0.01, "models": ["fair", "hostile"]},
}
_CLIENTS["viewer"] = {"role": "viewer"}
CLIENTS = {name: {**more, "key_sha256": sha256(f"hs-{name}".encode()).hexdigest()} for name, more in _CLIENTS.items()}


class Sent(msgspec.Struct, frozen=True):
    """Bytes as they go over a socket, piece by piece."""

    pieces: tuple[bytes, ...]
    pause_s: float = 0.0  # after each piece
    repeats: int = 0  # of the last piece
    leaves_after_s: float | None = None  # then the connection is closed; None: at the end of the answer


class Attack(msgspec.Struct, frozen=True):
    """``parallel`` connections at a time, each with one request after the other, as long as the attack lasts."""

    who: str
    name: str
    row: int  # of the table in docs/security.md
    request: Callable[[int], Sent]  # made of its number
    answer: Callable[[], Sent] | None = None  # None: an ordinary one
    speaks: str = "chat"  # the API of its provider
    parallel: int = 3
    varies: bool = False  # a request is not as the one before it
    refusal: Callable[[bytes], Sent] | None = None  # what the fair client's own provider makes of a request with MARK
    says: bytes = b""  # what each answer must have
    gets: frozenset[str] = frozenset()  # the statuses that may come; none: any
    reaches: bool = True  # whether its provider may be asked
    descriptors: int = 16_384  # that the gateway may have open


# Requests.

MARK = b"attack"  # in requests that the fair client's provider refuses
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/hostile:generateContent",
    "embeddings": "/v1/embeddings",
    "audio": "/v1/audio/transcriptions",
    "compact": "/v1/responses/compact",
    "count": "/v1/responses/input_tokens",
}
# A request, and where its prompt is.
BODIES = {
    "chat": b'{"model":"hostile","messages":[{"role":"user","content":%b}]}',
    "messages": b'{"model":"hostile","max_tokens":99,"messages":[{"role":"user","content":%b}]}',
    "responses": b'{"model":"hostile","input":[{"role":"user","content":%b}]}',
    "gemini": b'{"contents":[{"role":"user","parts":%b}]}',
}
NESTED = b"[" * 100 + b"]" * 100
DEEP = BODIES["messages"][:-1] % b'"Hi"' + b',"other":{%b}}'
BLOCKS = {"responses": b'{"type":"input_text","text":"x"}', "gemini": b'{"text":"x"}'}


def head(api: str, key: str | None = "weak", **fields: str) -> bytes:
    """Return the head of a POST; names of ``fields`` have underscores for dashes."""
    told = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in fields.items()}
    if key is not None:
        told["authorization"] = f"Bearer hs-{key}"
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST {PATHS[api]} HTTP/1.1\r\nhost: 127.0.0.1\r\n{lines}\r\n".encode()


def post(api: str, body: bytes, key: str | None = "weak", *, packed: bool = False, **fields: str) -> Sent:
    """Return a request with a ``content-length``."""
    if packed:
        body, fields = gzip.compress(body, 6), {**fields, "content_encoding": "gzip"}
    return Sent((head(api, key, content_length=str(len(body)), **fields) + body,))


def asking(text: str = "Hi", **more: Any) -> bytes:
    """Return the body of a chat completion, which is one of Messages, too."""
    told = {"model": "hostile", "max_tokens": 99, "messages": [{"role": "user", "content": text}]}
    return json.dumps({**told, **more}).encode()


def many(block: bytes, number: int) -> bytes:
    return (block + b",") * (number - 1) + block  # a join of millions takes a hundred times their memory


def keyed(number: int) -> bytes:
    return b"{%b}" % b",".join(b'"k%d":"x"' % each for each in range(number))


def blocks(api: str, number: int, key: str = "weak", *, packed: bool = False) -> Callable[[int], Sent]:
    """Send one turn of ``number`` small blocks."""
    block = BLOCKS.get(api, b'{"type":"text","text":"x"}')
    return lambda _: post(api, BODIES[api] % (b"[%b]" % many(block, number)), key, packed=packed)


def filled(before: bytes, unit: bytes, size: int, after: bytes, api: str = "chat") -> Callable[[int], Sent]:
    """Send a body of about ``size`` bytes, most of them ``unit`` again and again."""
    return lambda _: post(api, before + unit * (size // len(unit)) + after)


def framed(text: str, size: int, *, extension: bytes = b"", end: bytes = b"\r\n") -> Sent:
    """Return a body in chunks of ``size`` bytes; ``end`` is what follows the last one."""
    body = asking(text)
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    frames = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return Sent((head("chat", transfer_encoding="chunked") + frames + b"0\r\n" + end,))


def form(size: int) -> Sent:
    """Return a transcription of ``size`` bytes."""
    edge = b"--edge\r\ncontent-disposition: form-data; name="
    body = edge + b'"model"\r\n\r\nhostile\r\n' + edge + b'"file"; filename="a.wav"\r\n\r\n'
    return post("audio", body + bytes(size) + b"\r\n--edge--\r\n", content_type="multipart/form-data; boundary=edge")


def socket(message: bytes, number: int = 1, key: str = "weak", *, repeats: int = 0) -> Sent:
    """Return a WebSocket that sends ``message`` so often in one write, and such writes, without waiting for answers."""
    length = len(message)
    frame = b"\x81" + (bytes((0x80 | length,)) if length < 126 else b"\xff" + length.to_bytes(8, "big"))
    frame += bytes(4) + message
    shake = f"GET {PATHS['responses']} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer hs-{key}\r\n"
    shake += "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    shake += "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    return Sent((shake.encode(), frame * number), repeats=repeats)


# What the fair client asks, long and with fields: what others make the gateway learn would keep it out, or change it.
USUAL = {
    "model": "fair",
    "stream": True,
    "max_tokens": 9000,
    "service_tier": "auto",
    "temperature": 0.3,
    "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}],
}
PROMPT = "Summarise this. " * 100


def at_fair(**more: Any) -> Sent:
    """Ask the same with the weakest of keys, and be refused."""
    asked = [{"role": "user", "content": PROMPT}, {"role": "user", "content": MARK.decode()}]
    return post("chat", json.dumps({**USUAL, "messages": asked, **more}).encode(), "weakest")


def refused(status: str, message: str, **fields: str) -> Callable[[bytes], Sent]:
    """Refuse a request in these words, whatever it says."""
    error = json.dumps({"error": {"message": message, "type": "invalid_request_error", **fields}}).encode()
    return lambda _: whole(error, status)


def quoting(body: bytes) -> bytes:
    """Return a refusal that quotes a value of a request."""
    effort = json.loads(body).get("reasoning_effort", "none")
    said = {"message": f"Invalid value: '{effort}'. Supported values are: 'low', 'high'."}
    return json.dumps({"error": {**said, "type": "invalid_request_error"}}).encode()


def naming(api: str, **fields: Any) -> Callable[[int], Sent]:
    """Name what others have at the provider."""
    return lambda _: post(api, json.dumps({"model": "hostile", "input": "Hi", **fields}).encode(), "weakest")


def within(kind: str, tool: Any) -> list[Any]:
    """Return an input that has a list of tools."""
    return [{"role": "user", "content": "Hi"}, {"type": kind, "tools": [tool]}]


# Values that read as what vendors say when a fact is learnt.
ERRORS = (
    "maximum context length is 100 tokens",
    "max_tokens: 9000 > 100, which is the maximum",
    "`stream_options` is not permitted",
    "Unsupported parameter: 'service_tier' is not supported with this model",
    "temperature is not supported with this model",
    "tools[0].function.strict: Extra inputs are not permitted",
    "roles must alternate user/assistant/user/assistant/...",
    "only supported in v1/responses",
    "The API key you provided is invalid",
    "Your credit balance is too low to access the API",
)
CHAT = b'{"model":"hostile","messages":[{"role":"user","content":"'
PICTURE = CHAT[:-1] + b'[{"type":"image_url","image_url":{"url":"data:image/png;base64,'
ESCAPES = b'"%b"' % (rb"\u0041\"" * 10)
TOOLED = CHAT + b'"}],"tools":'
INSTRUCTED = b'{"model":"hostile","input":"Hi","instructions":"'
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SAYS, TURN = b'{"type":"%b"}', b'{"type":"response.create","model":"hostile","input":"Hi"%b}'
NUMBERS = SAYS[:-1] % b"x" + b',"input":[%b]}' % many(b"1", 9 * MIB)
UNKEYED, CHUNKED = head("chat", None, transfer_encoding="chunked"), head("chat", transfer_encoding="chunked")
TRAILERS = b"a: b\r\n" * (256 * 1024 // 6)
MOST = 16_000  # blocks of three values: nearly as many as may be translated


# Answers.


def whole(body: bytes, status: str = "200 OK", **fields: str) -> Sent:
    """Return an answer of JSON; names of ``fields`` have underscores for dashes."""
    told = {"content_type": "application/json", "content_length": str(len(body)), **fields}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in told.items())
    return Sent((f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body,))


def streamed(*pieces: bytes, **options: Any) -> Sent:
    """Return a stream of events that ends with its connection."""
    first = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return Sent((first, *pieces), **options)


def chunked(body: bytes, size: int, kind: bytes = b"application/json") -> Sent:
    """Return an answer in chunks of ``size`` bytes."""
    first = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return Sent((first + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n",))


def delta(text: bytes) -> bytes:
    """Return an event of chat completions."""
    return b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":%b}]}\n\n' % text


USAGE = b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'
TOLD = b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[%b],%b}'
CHOICE = b'{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello."%b}}'
CALL = b'{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}'
CALLS = TOLD % (CHOICE % b',"tool_calls":[%b]', USAGE)
OUTPUT = b'{"type":"message","id":"m","role":"assistant","status":"completed","content":[%b]}'
RESPONSE = b'{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m","instructions":"%b",'
RESPONSE += b'"output":[%b],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}'
SAID = b'{"type":"output_text","text":"Hello.","annotations":[]}'
MESSAGE = b'{"id":"m","type":"message","role":"assistant","model":"m","content":[%b],"stop_reason":"end_turn",'
MESSAGE += b'"usage":{"input_tokens":1,"output_tokens":1}}'
TEXT = b'{"type":"text","text":"Hello."}'
CITING = b'{"type":"text","text":"x","citations":[%b]}'
GOOGLES = b'{"candidates":[{"index":0,"finishReason":"STOP","content":{"role":"model","parts":[%b]}}],'
GOOGLES += b'"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}'
VECTORS = b'{"object":"list","model":"m","data":[%b],"usage":{"prompt_tokens":1,"total_tokens":1}}'
VECTOR = b'{"object":"embedding","index":0,"embedding":[%b]}' % many(b"-0.0123456789", 1024)
ORDINARY = {
    "chat": TOLD % (CHOICE % b"", USAGE),
    "messages": MESSAGE % TEXT,
    "responses": RESPONSE % (b"", OUTPUT % SAID),
    "gemini": GOOGLES % b'{"text":"Hello."}',
}
XAIS = json.dumps({
    "code": "The caller does not have permission to execute the specified operation",
    "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO",
}).encode()  # fmt: skip
NOT_THEIRS = frozenset({"403", "404", "429"})  # 429: beyond the key's own limit
NOT_KNOWN = NOT_THEIRS | {"400"}  # of a response, as OpenAI tells one that it does not know
FIRST, WROTE = delta(b'{"role":"assistant","content":"Hello"}'), delta(b'{"content":"a"}')
BEGUN = delta(b'{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":""}}]}')
PART = delta(b'{"tool_calls":[{"index":0,"function":{"arguments":"1"}}]}')
PING = b"event: ping\ndata: {}\n\n"
FAILED = b'data: {"error":{"message":"%b"}}\n\n'
EVENT = b'event: response.%b\ndata: {"type":"response.%b","sequence_number":0,%b}\n\n'
WRITTEN = b'"item_id":"m","output_index":0,"content_index":0,"delta":"Hello"'


def saying(make: Callable[[], bytes], status: str = "200 OK", **fields: str) -> Callable[[], Sent]:
    return lambda: whole(make(), status, **fields)


def flowing(make: Callable[[], bytes], piece: int = 64 * 1024) -> Callable[[], Sent]:
    """Stream what ``make`` returns, in pieces of that many bytes."""

    def cut() -> Sent:
        body = make()
        return streamed(*(body[at : at + piece] for at in range(0, len(body), piece)))

    return cut


def echoing(size: int) -> bytes:
    """Return a Responses stream whose events repeat the instructions, as OpenAI's do."""
    told = b'"response":' + RESPONSE % (b"i" * size, b"")
    begun, wrote = EVENT % (b"created", b"created", told), EVENT % (*[b"output_text.delta"] * 2, WRITTEN)
    return begun + wrote + EVENT % (b"completed", b"completed", told)


def long(answer: bytes, mib: int) -> bytes:
    return answer.replace(b"Hello.", b"x" * mib * MIB)


def asked(api: str = "chat", *, stream: bool = False) -> Callable[[int], Sent]:
    """Ask as anybody does: the answer is the attack."""
    return lambda _: post(api, asking(stream=stream))


ASKED, STREAM, WELL = asked(), asked(stream=True), None
SEARCH = {"type": "file_search", "vector_store_ids": ["vs_0123456789abcdef01234567"]}
RESPONSE_OF_OTHERS = "resp_" + "0" * 48
MCP = {"type": "mcp", "server_label": "x", "server_url": "http://169.254.169.254/"}  # of another machine
LARGE_HEAD = b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (number, b"y" * 2_000) for number in range(24))
TWICE = '{"hostile": "one-0123456789", "hostile": "two-0123456789"}'
# Who sends what: (name, row in docs/security.md, request, answer, the provider's API, connections at a time, varies).
_TABLE: dict[str, tuple[tuple[Any, ...], ...]] = {
    "nobody's key": (
        ("trailers of 256 KB", 1, lambda _: Sent((UNKEYED + b"1\r\n{\r\n0\r\n" + TRAILERS,)), WELL, "chat", 200),
        ("heads without end", 1, lambda _: Sent((b"GET / HTTP/1.1\r\nx: ", b"z"), 0.1, repeats=99), WELL, "chat", 300),
        ("large heads", 1, lambda _: Sent((LARGE_HEAD,)), WELL, "chat", 50),
        ("wrong keys", 1, lambda n: post("chat", b"{}", f"none-{n}"), WELL, "chat", 50, True),
        ("long paths", 1, lambda _: Sent((b"GET /v1" + b"/a" * 3900 + b" HTTP/1.1\r\n\r\n",)), WELL, "chat", 20),
        ("a bomb without a key", 1, lambda _: post("chat", bytes(60 * MIB), None, packed=True), WELL, "chat", 8),
        ("nonsense", 1, lambda _: Sent((random.Random(7).randbytes(32_768),)), WELL, "chat", 50),
    ),
    "a key": (
        ("trailers with a key", 1, lambda _: framed("{}", 64, end=TRAILERS), WELL, "chat", 50),
        ("chunk extensions", 1, lambda _: framed("x" * 20_000, 1, extension=b";" + b"e" * 30), WELL, "chat", 20),
        ("1.6 million blocks, Messages", 2, blocks("messages", 1_600_000, packed=True)),
        ("1.6 million blocks, Responses", 2, blocks("responses", 1_600_000, packed=True)),
        ("1.6 million blocks, Gemini's", 2, blocks("gemini", 1_600_000, packed=True)),
        ("1.6 million blocks, chat", 2, blocks("chat", 1_600_000, packed=True), WELL, "messages"),
        ("100,000 blocks", 3, blocks("messages", 100_000)),
        ("as many values as may be, Messages", 3, blocks("messages", MOST)),
        ("as many values as may be, Responses", 3, blocks("responses", MOST)),
        ("as many values as may be, Gemini's", 3, blocks("gemini", MOST)),
        ("as many values as may be, to Messages", 3, blocks("chat", MOST), WELL, "messages"),
        ("as many values as may be, to Gemini's", 3, blocks("chat", MOST), WELL, "gemini"),
        ("as many values as may be, to Responses", 3, blocks("messages", MOST), WELL, "responses"),
        ("blocks of a key without dollars", 3, blocks("messages", MOST, "poor"), WELL, "chat", 8),
        ("a million blocks in its own API", 3, blocks("chat", 1_000_000)),
        ("8,000 tools", 3, lambda _: post("chat", asking(tools=[TOOL] * 8000)), WELL, "messages"),
        ("4 million fields", 3, lambda _: post("chat", b'{"a":1,%b}' % many(b'"b":1', 4_000_000))),
        ("an object of 300,000 keys", 3, lambda _: post("chat", BODIES["chat"] % keyed(300_000)), WELL, "responses"),
        ("900 brackets deep", 3, filled(TOOLED, b"[" * 900 + b"]" * 900, 1800, b"}"), WELL, "messages", 8),
        ("20,000 keys of deep values", 3, lambda _: post("messages", DEEP % many(b'"k":%b' % NESTED, 20_000))),
        ("7 million brackets", 3, filled(TOOLED + b"[", b"[],", 20 * MIB, b"[]]}"), WELL, "messages"),
        ("instructions of 30 MB", 4, filled(INSTRUCTED, b"i", 30 * MIB, b'"}', "responses")),
        ("echoed instructions of 12 MB", 4, filled(INSTRUCTED, b"i", 12 * MIB, b'","stream":true}', "responses"),
         flowing(lambda: echoing(12 * MIB)), "responses"),
        ("dear calls after cheap ones", 6, lambda n: post("chat", asking(max_tokens=5 if n < 200 else 100_000), "poor"),
         WELL, "chat", 100, True),
        ("names without end", 7, lambda n: post("chat", asking(model=f"hostile/{n}"), "adhoc"), WELL, "chat", 20, True),
        ("2 MB in chunks of one byte", 9, lambda _: framed("x" * 2 * MIB, 1)),
        ("2 MB in chunks of three bytes", 9, lambda _: framed("x" * 2 * MIB, 3), WELL, "chat", 8),
        ("chunks of one byte, a segment each", 9, lambda _: Sent((CHUNKED, b"1\r\nx\r\n"), 0.0001, repeats=9000)),
        ("bodies that never end", 9, lambda _: Sent((head("chat", content_length="40000000"), bytes(99_999)), 0.05,
         repeats=300), WELL, "chat", 30),
        ("a bomb", 9, lambda _: post("chat", CHAT + bytes(60 * MIB), packed=True)),
        ("requests ahead", 9, lambda _: Sent(post("chat", asking()).pieces * 400)),
        ("calls that are left", 10, lambda _: Sent(post("chat", asking(stream=True)).pieces, leaves_after_s=0.2),
         lambda: streamed(FIRST, pause_s=30.0), "chat", 8),
        ("a form of 40 MB", 11, lambda _: form(40 * MIB), saying(lambda: b'{"text":"Hello."}'), "audio", 1),
        ("three bodies of 15 MB in their own API", 11, filled(CHAT, b"x", 15 * MIB, b'"}]}')),
        ("a picture of 40 MB", 11, filled(PICTURE, b"aGVs", 40 * MIB, b'"}}]}]}'), WELL, "chat", 1),
        ("a translated text of 30 MB", 11, filled(CHAT, "é".encode(), 30 * MIB, b'"}]}'), WELL, "messages"),
        ("escapes of 20 MB", 11, filled(CHAT, rb"\u0041\"", 20 * MIB, b'"}]}'), WELL, "messages"),
        ("44,000 texts of escapes", 11, lambda _: post("gemini", BODIES["gemini"] % (b"[%b]" % many(ESCAPES, 44_000))),
         WELL, "gemini"),
        ("2,048 embeddings", 11, lambda _: post("embeddings", b'{"model":"hostile","input":[%b]}' % many(b'"x"', 2048)),
         saying(lambda: VECTORS % many(VECTOR, 2048)), "embeddings"),
        ("messages of an unknown type", 14, lambda _: socket(SAYS % b"x", 100, repeats=200)),
        ("messages of an unknown type beyond rpm", 14, lambda _: socket(SAYS % b"x", 100, "rare", repeats=200)),
        ("turns beyond rpm", 14, lambda _: socket(TURN % b"", 100, "rare", repeats=200), WELL, "responses"),
        ("warm-ups without end", 14, lambda _: socket(TURN % b',"generate":false', 100, repeats=200)),
        ("18 MB of numbers of an unknown type", 14, lambda _: socket(NUMBERS, repeats=20)),
        ("handshakes", 14, lambda _: Sent(socket(b"").pieces[:1], leaves_after_s=0.01), WELL, "chat", 20),
        ("300 WebSockets", 14, lambda _: socket(SAYS % b"x", repeats=99), WELL, "chat", 300),
        ("10,000 items at the provider", 13, lambda _: post("responses", b'{"model":"hostile","input":[%b]}'
         % many(b'{"type":"item_reference","id":"msg_1"}', 10_000)), WELL, "responses"),
    ),
    "a provider": (
        ("<a<a…", 5, ASKED, saying(lambda: b"<a" * 32_768, "500 Bad", content_type="text/html")),
        ("<a<a… of 30 MB", 5, ASKED, saying(lambda: b"<a" * 15 * MIB, "500 Bad", content_type="text/html")),
        ("an error of brackets", 5, ASKED, saying(lambda: b'{"error":"' + b"{[" * 500_000, "400 Bad"), "messages"),
        ("an error of keys and spaces", 5, ASKED, saying(lambda: b" sk-" * 16_000 + b" " * 100_000, "429 Too Many")),
        ("an error event of 1 MB", 5, STREAM, flowing(lambda: FAILED % (b"<a" * 524_288))),
        ("an event of 25 MB of lines", 8, STREAM, flowing(lambda: FIRST + b"data: \n" * (4 * MIB) + b"\n")),
        ("a line without end", 8, STREAM, flowing(lambda: FIRST + b"data: " + b"x" * 40 * MIB)),
        ("200,000 calls", 8, ASKED, saying(lambda: CALLS % many(CALL, 200_000))),
        ("2,000 calls", 8, ASKED, saying(lambda: CALLS % many(CALL, 2000))),
        ("200,000 choices", 8, ASKED, saying(lambda: TOLD % (many(CHOICE % b"", 200_000), USAGE))),
        ("900,000 values", 8, ASKED, saying(lambda: TOLD % (CHOICE % b"", USAGE + b',"x":[%b]' % many(b"1", 900_000)))),
        ("900,000 values in Messages", 8, ASKED, saying(lambda: MESSAGE % (CITING % many(b"1", 900_000))), "messages"),
        ("200,000 blocks of Messages", 8, ASKED, saying(lambda: MESSAGE % many(TEXT, 200_000)), "messages"),
        ("200,000 items", 8, ASKED, saying(lambda: RESPONSE % (b"", many(OUTPUT % SAID, 200_000))), "responses"),
        ("200,000 parts of Gemini's", 8, ASKED, saying(lambda: GOOGLES % many(b'{"text":"x"}', 200_000)), "gemini"),
        ("a text of 30 MB", 8, ASKED, saying(lambda: long(ORDINARY["chat"], 30))),
        ("a text of 30 MB to be translated", 8, ASKED, saying(lambda: long(ORDINARY["messages"], 30)), "messages"),
        ("twenty texts of 60 MB", 8, ASKED, saying(lambda: long(ORDINARY["chat"], 60)), "chat", 20),
        ("twenty events of 30 MB", 8, STREAM,
         flowing(lambda: FIRST + b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * (30 * MIB)), "chat", 20),
        ("JSON of 100 MB", 8, ASKED, saying(lambda: long(ORDINARY["chat"], 100)), "chat", 1),
        ("comments like keys", 8, STREAM, flowing(lambda: FIRST + b": sk-abcdefghijklmnopqrstuvw\n" * 220_000)),
        ("300,000 fragments of arguments", 8, STREAM, flowing(lambda: FIRST + BEGUN + PART * 300_000)),
        ("fragments to be translated", 8, asked("messages", stream=True),
         flowing(lambda: FIRST + BEGUN + PART * 300_000)),
        ("as many tokens as a socket takes", 8, STREAM, flowing(lambda: FIRST + WROTE * 200_000)),
        ("pieces of one byte", 8, STREAM, flowing(lambda: FIRST + WROTE * 30, 1)),
        ("an answer of 2 MB in chunks of one byte", 8, ASKED, lambda: chunked(long(ORDINARY["chat"], 2), 1)),
        ("2 MB of tokens in chunks of one byte", 8, STREAM,
         lambda: chunked(FIRST + WROTE * (2 * MIB // len(WROTE)), 1, b"text/event-stream")),
        ("fields of a head without end", 8, ASKED, lambda: Sent((b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 600_000,))),
        ("a compressed answer", 8, ASKED, saying(lambda: gzip.compress(bytes(100 * MIB)), content_encoding="gzip")),
        ("pings for ever", 12, STREAM, lambda: streamed(FIRST, PING, pause_s=0.001, repeats=9999), "chat", 8),
        ("pings as fast as can be", 12, STREAM, flowing(lambda: FIRST + PING * 1_000_000)),
    ),
}  # fmt: skip
# What the weakest of keys does with few requests, which ask little; of the same form: more is said of what may come.
_WEAKEST = (
    *(Attack("weakest key", name, 15, lambda number: at_fair(reasoning_effort=ERRORS[number % len(ERRORS)]),
             parallel=1, varies=True, refusal=refusal) for name, refusal in (
        ("errors in values that are quoted", lambda body: whole(quoting(body), "400 Bad Request")),
        ("errors in values, quoted within an answer", lambda body: streamed(b"data: %b\n\n" % quoting(body))),
    )),
    Attack("weakest key", "a content that xAI refuses", 16, lambda _: at_fair(), parallel=1,
           refusal=lambda _: whole(XAIS, "403 Forbidden")),
    Attack("weakest key", "a tier that is full", 16, lambda _: at_fair(service_tier="flex"), parallel=1,
           refusal=refused("498 Custom", "Flex tier capacity exceeded", code="capacity_exceeded")),
    Attack("weakest key", "an input that breaks its server", 16, lambda _: at_fair(seed=7), parallel=1,
           refusal=refused("500 Error", "list index out of range")),
    Attack("weakest key", "a 429 of one kind of request", 16, lambda _: at_fair(seed=7), parallel=3,
           refusal=refused("429 Too Many", "Requests of this kind are throttled")),
    *(Attack("weakest key", f"{what} of another{where}", 17, asks, speaks="responses", parallel=1, gets=gets,
             reaches=False) for what, where, gets, asks in (
        ("a response", ", to be compacted", NOT_KNOWN, naming("compact", previous_response_id=RESPONSE_OF_OTHERS)),
        ("a response", ", to be counted", NOT_KNOWN, naming("count", previous_response_id=RESPONSE_OF_OTHERS)),
        ("a vector store", "", NOT_THEIRS, naming("responses", tools=[SEARCH])),
        ("a vector store", ", within the input", NOT_THEIRS,
         naming("responses", input=within("additional_tools", SEARCH))),
        ("a server", ", within the input", NOT_THEIRS, naming("responses", input=within("tool_search_output", MCP))),
    )),
    Attack("a key", "1,000 keys of providers that are made up", 18,
           lambda number: post("chat", asking(), x_holeshot_provider_keys=f"hostile=made-up-{number:08}"),
           parallel=8, varies=True, descriptors=512),
    Attack("a key", "a provider named twice", 18, lambda _: post("chat", asking(), x_holeshot_provider_keys=TWICE),
           parallel=1, gets=frozenset({"400"}), reaches=False),
    Attack("a provider", "bytes that are no text, over a WebSocket", 14,
           lambda _: Sent(socket(TURN % b"").pieces, leaves_after_s=0.5),
           lambda: streamed(echoing(9).replace(b'"Hello"', b'"Hello \xff"')), "responses", 1,
           says="Hello \ufffd".encode(), gets=frozenset({"101", "429 without it"})),
)  # fmt: skip
ATTACKS = (*(Attack(who, *line) for who, lines in _TABLE.items() for line in lines), *_WEAKEST)
