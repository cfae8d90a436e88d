"""What hostile clients and providers send: one table, each line with who sends it, the requests and the answers.

Bytes are made when they are needed, in the process that sends them.
"""

import functools
import gzip
import json
import random
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

MIB = 2**20
MODEL = "hostile"
# A weak key, one whose day's dollar is small, one that may name any model of a provider, a fair client's,
# and one that may look at metrics.
KEYS = {name: f"hs-{name}" for name in ("weak", "poor", "adhoc", "fair", "viewer")}
CLIENTS: dict[str, Any] = {
    "weak": {"max_parallel": 8},
    "poor": {"usd_per_day": 1},
    "adhoc": {"adhoc": True},
    "fair": {},
    "viewer": {"role": "viewer"},
}
CLIENTS = {name: {**more, "key_sha256": sha256(KEYS[name].encode()).hexdigest()} for name, more in CLIENTS.items()}


class Sent(msgspec.Struct, frozen=True):
    """Bytes as they go over a socket, piece by piece."""

    pieces: tuple[bytes, ...]
    pause_s: float = 0.0  # after each piece
    repeats: int = 0  # of the last piece
    leaves_after_s: float | None = None  # then the connection is closed; None: at the end of the answer


Request = Callable[[int], Sent]
Answer = Callable[[], Sent]


class Attack(msgspec.Struct, frozen=True):
    """``parallel`` connections at a time, each with one request after the other, as long as the attack lasts."""

    who: str
    name: str
    row: int  # of the table in docs/security.md
    request: Request  # made of its number
    answer: Answer | None = None  # None: an ordinary one
    speaks: str = "chat"  # the API of its provider
    parallel: int = 3


# Requests.

PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
    "gemini": f"/v1beta/models/{MODEL}:generateContent",
    "embeddings": "/v1/embeddings",
    "audio": "/v1/audio/transcriptions",
}


def head(api: str, key: str | None = "weak", **fields: str) -> bytes:
    """Return the head of a POST; names of ``fields`` have underscores for dashes."""
    told = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in fields.items()}
    if key is not None:
        told["authorization"] = f"Bearer {KEYS[key]}"
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST {PATHS[api]} HTTP/1.1\r\nhost: 127.0.0.1\r\n{lines}\r\n".encode()


def post(api: str, body: bytes, key: str | None = "weak", *, packed: bool = False, **fields: str) -> Sent:
    """Return a request with a ``content-length``."""
    if packed:
        body, fields = gzip.compress(body, 6), {**fields, "content_encoding": "gzip"}
    return Sent((head(api, key, content_length=str(len(body)), **fields) + body,))


def once(make: Callable[[], Sent]) -> Request:
    """Send the same each time; it is made at the first."""
    cached = functools.cache(make)
    return lambda _: cached()


def raw(*pieces: bytes, **options: Any) -> Request:
    return once(lambda: Sent(pieces, **options))


def asking(text: str = "Hi", **more: Any) -> bytes:
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}], **more}).encode()


def usual(api: str = "chat", **more: Any) -> Request:
    """Ask as anybody does: the answer is the attack."""
    return once(lambda: post(api, asking(max_tokens=9, **more)))


def blocks(api: str, number: int, *, packed: bool = False, key: str = "weak") -> Request:
    """Send one turn of ``number`` small blocks."""
    text, item = b'{"type":"text","text":"x"}', b'{"type":"input_text","text":"x"}'
    begin, block, end = {
        "chat": (b'{"model":"hostile","messages":[{"role":"user","content":[', text, b"]}]}"),
        "messages": (b'{"model":"hostile","max_tokens":9,"messages":[{"role":"user","content":[', text, b"]}]}"),
        "responses": (b'{"model":"hostile","input":[{"role":"user","content":[', item, b"]}]}"),
        "gemini": (b'{"contents":[{"role":"user","parts":[', b'{"text":"x"}', b"]}]}"),
    }[api]
    return once(lambda: post(api, begin + b",".join([block] * number) + end, key, packed=packed))


def filled(before: bytes, unit: bytes, size: int, after: bytes, api: str = "chat", *, packed: bool = False) -> Request:
    """Send a body of about ``size`` bytes, most of them ``unit`` again and again."""
    return once(lambda: post(api, before + unit * (size // len(unit)) + after, packed=packed))


def framed(text: str, size: int, *, extension: bytes = b"", end: bytes = b"\r\n") -> Request:
    """Send a body in chunks of ``size`` bytes; ``end`` is what follows the last one."""

    def make() -> Sent:
        body = asking(text)
        pieces = (body[at : at + size] for at in range(0, len(body), size))
        frames = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
        return Sent((head("chat", transfer_encoding="chunked") + frames + b"0\r\n" + end,))

    return once(make)


def dribbled(_: int) -> Sent:
    """Send each chunk of one byte in a segment of its own."""
    return Sent((head("chat", transfer_encoding="chunked"), *[b"1\r\nx\r\n"] * 9000), pause_s=0.0001)


def form(size: int) -> Sent:
    """Return a transcription of ``size`` bytes."""
    edge = b"--edge\r\ncontent-disposition: form-data; name="
    body = edge + b'"model"\r\n\r\nhostile\r\n' + edge + b'"file"; filename="a.wav"\r\n\r\n'
    return post("audio", body + bytes(size) + b"\r\n--edge--\r\n", content_type="multipart/form-data; boundary=edge")


def fields(number: int) -> bytes:
    return b'{"model":"hostile",' + b",".join(b'"f%d":1' % each for each in range(number)) + b"}"


def items(number: int) -> bytes:
    """Return a Responses request that names so many items at the provider."""
    named = [{"type": "item_reference", "id": f"msg_{each}"} for each in range(number)]
    return json.dumps({"model": MODEL, "input": named}).encode()


def adhoc(number: int) -> Sent:
    return post("chat", asking().replace(b'"hostile"', b'"hostile/name-%d"' % number), "adhoc")


def costly(number: int) -> Sent:
    return post("chat", asking(max_tokens=5 if number < 200 else 100_000), "poor")


def guess(number: int) -> Sent:
    return post("chat", b"{}", None, authorization=f"Bearer hs-{number}")


CHAT = b'{"model":"hostile","messages":[{"role":"user","content":"'
PICTURE = CHAT[:-1] + b'[{"type":"image_url","image_url":{"url":"data:image/png;base64,'
TOOLED = CHAT + b'"}],"tools":'
INSTRUCTED = b'{"model":"hostile","input":"Hi","instructions":"'
ECHOED = filled(INSTRUCTED, b"i", 12 * MIB, b'","stream":true}', "responses")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
EMBEDDED = b'{"model":"hostile","input":[' + b",".join([b'"x"'] * 2048) + b"]}"
UNKEYED = head("chat", None, transfer_encoding="chunked")
ENDLESS = head("chat", content_length="40000000")
TRAILERS = b"a: b\r\n" * (256 * 1024 // 6)
LEFT = once(lambda: Sent(post("chat", asking(stream=True)).pieces, leaves_after_s=0.2))
MOST = 16_000  # blocks of three values: nearly as many as may be translated


# Answers.


def whole(body: bytes, status: str = "200 OK", kind: str = "application/json", **fields: str) -> Sent:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    first = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
    return Sent((first.encode() + body,))


def streamed(*pieces: bytes, **options: Any) -> Sent:
    """Return a stream of events that ends with its connection."""
    return Sent(
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n", *pieces), **options
    )


def answering(make: Callable[[], Sent]) -> Answer:
    return functools.cache(make)


USAGE = b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'
TOLD = b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[%b],%b}'
CHOICE = b'{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello."%b}}'
CALL = b'{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}'
HELLO = TOLD % (CHOICE % b"", USAGE)
OUTPUT = b'{"type":"message","id":"m","role":"assistant","status":"completed","content":[%b]}'
RESPONSE = (
    b'{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m","instructions":"%b",'
    b'"output":[%b],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}'
)
SAID = b'{"type":"output_text","text":"Hello.","annotations":[]}'
MESSAGE = (
    b'{"id":"m","type":"message","role":"assistant","model":"m","content":[%b],"stop_reason":"end_turn",'
    b'"usage":{"input_tokens":1,"output_tokens":1}}'
)
TEXT = b'{"type":"text","text":"Hello."}'
GOOGLES = (
    b'{"candidates":[{"index":0,"finishReason":"STOP","content":{"role":"model","parts":[%b]}}],'
    b'"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}'
)
ORDINARY = {
    "chat": HELLO,
    "messages": MESSAGE % TEXT,
    "responses": RESPONSE % (b"", OUTPUT % SAID),
    "gemini": GOOGLES % b'{"text":"Hello."}',
}


WELL = None


def delta(text: bytes) -> bytes:
    return (
        b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":%b}]}\n\n' % text
    )


FIRST = delta(b'{"role":"assistant","content":"Hello"}')
WROTE = delta(b'{"content":"a"}')
BEGUN = delta(b'{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":""}}]}')
PART = delta(b'{"tool_calls":[{"index":0,"function":{"arguments":"1"}}]}')
END = b"data: [DONE]\n\n"
PING = b"event: ping\ndata: {}\n\n"
FAILED = b'data: {"error":{"message":"%b"}}\n\n'
CITING = b'{"type":"text","text":"x","citations":[%b]}'


def many(block: bytes, number: int) -> bytes:
    return b",".join([block] * number)


def calls(number: int) -> bytes:
    return TOLD % (CHOICE % (b',"tool_calls":[%b]' % many(CALL, number)), USAGE)


def failing(text: bytes, status: str = "500 Bad") -> Answer:
    return answering(lambda: whole(text, status, "text/html"))


def saying(make: Callable[[], bytes], **fields: str) -> Answer:
    return answering(lambda: whole(make(), **fields))


def flowing(make: Callable[[], bytes], piece: int = 64 * 1024) -> Answer:
    """Stream what ``make`` returns, in pieces of that many bytes."""

    def cut() -> Sent:
        body = make()
        return streamed(*(body[at : at + piece] for at in range(0, len(body), piece)))

    return answering(cut)


def echoing(size: int) -> bytes:
    """Return a Responses stream whose events repeat the instructions, as OpenAI's do."""
    told = RESPONSE % (b"i" * size, b"")
    created = b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":%b}\n\n' % told
    wrote = (
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":1,'
        b'"item_id":"m","output_index":0,"content_index":0,"delta":"Hello"}\n\n'
    )
    done = (
        b'event: response.completed\ndata: {"type":"response.completed","sequence_number":2,"response":%b}\n\n' % told
    )
    return created + wrote + done


def long(answer: bytes, mib: int) -> bytes:
    return answer.replace(b"Hello.", b"x" * mib * MIB)


def vectors() -> bytes:
    """Return 2,048 embeddings of 1,024 numbers."""
    numbers = b",".join(b"-0.0%d" % (each * 7919) for each in range(1, 1025))
    data = b",".join(b'{"object":"embedding","index":%d,"embedding":[%b]}' % (n, numbers) for n in range(2048))
    return b'{"object":"list","model":"m","data":[%b],"usage":{"prompt_tokens":1,"total_tokens":1}}' % data


ASKED, STREAM, MESSAGES_STREAM = usual(), usual(stream=True), usual("messages", stream=True)
# Who sends what: (name, row of docs/security.md, request, answer, the provider's API, connections at a time).
_TABLE: dict[str, tuple[tuple[Any, ...], ...]] = {
    "nobody's key": (
        ("trailers of 256 KB", 1, once(lambda: Sent((UNKEYED + b"1\r\n{\r\n0\r\n" + TRAILERS,))), WELL, "chat", 200),
        ("heads that never end", 1, raw(b"GET / HTTP/1.1\r\nx: ", b"z", pause_s=0.1, repeats=99), WELL, "chat", 300),
        ("wrong keys", 1, guess, WELL, "chat", 50),
        ("long unknown paths", 1, raw(b"GET /v1/" + b"a/" * 3900 + b" HTTP/1.1\r\nhost: h\r\n\r\n"), WELL, "chat", 20),
        ("a bomb without a key", 1, once(lambda: post("chat", bytes(60 * MIB), None, packed=True)), WELL, "chat", 8),
        ("nonsense", 1, once(lambda: Sent((random.Random(7).randbytes(32_768),))), WELL, "chat", 50),
    ),
    "a key": (
        ("trailers with a key", 1, framed("{}", 64, end=TRAILERS), WELL, "chat", 50),
        ("chunk extensions", 1, framed("x" * 20_000, 1, extension=b";" + b"e" * 30), WELL, "chat", 20),
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
        ("blocks of a key without dollars", 3, blocks("messages", MOST, key="poor"), WELL, "chat", 8),
        ("a million blocks in its own API", 3, blocks("chat", 1_000_000)),
        ("8,000 tools", 3, once(lambda: post("chat", asking(tools=[TOOL] * 8000))), WELL, "messages"),
        ("4 million fields", 3, once(lambda: post("chat", fields(4_000_000)))),
        ("900 brackets deep", 3, filled(TOOLED, b"[" * 900 + b"]" * 900, 1800, b"}"), WELL, "messages", 8),
        ("7 million brackets", 3, filled(TOOLED + b"[", b"[],", 20 * MIB, b"[]]}"), WELL, "messages"),
        ("instructions of 30 MB", 4, filled(INSTRUCTED, b"i", 30 * MIB, b'"}', "responses")),
        ("echoed instructions of 12 MB", 4, ECHOED, flowing(lambda: echoing(12 * MIB)), "responses"),
        ("dear calls after cheap ones", 6, costly, WELL, "chat", 100),
        ("model names without end", 7, adhoc, WELL, "chat", 20),
        ("2 MB in chunks of one byte", 9, framed("x" * 2 * MIB, 1)),
        ("2 MB in chunks of three bytes", 9, framed("x" * 2 * MIB, 3), WELL, "chat", 8),
        ("chunks of one byte, a segment each", 9, dribbled),
        ("bodies that never end", 9, raw(ENDLESS, b"x" * 100_000, pause_s=0.05, repeats=300), WELL, "chat", 30),
        ("a bomb", 9, filled(CHAT, b"x", 60 * MIB, b'"}]}', packed=True)),
        ("requests ahead", 9, once(lambda: Sent(post("chat", asking()).pieces * 400))),
        ("calls that are left", 10, LEFT, answering(lambda: streamed(FIRST, pause_s=30.0)), "chat", 8),
        ("a form of 40 MB", 11, once(lambda: form(40 * MIB)), saying(lambda: b'{"text":"Hello."}'), "audio", 1),
        ("three bodies of 15 MB in their own API", 11, filled(CHAT, b"x", 15 * MIB, b'"}]}')),
        ("a picture of 40 MB", 11, filled(PICTURE, b"aGVs", 40 * MIB, b'"}}]}]}'), WELL, "chat", 1),
        ("a translated text of 30 MB", 11, filled(CHAT, "é".encode(), 30 * MIB, b'"}]}'), WELL, "messages"),
        ("escapes of 20 MB", 11, filled(CHAT, rb"\u0041\"", 20 * MIB, b'"}]}'), WELL, "messages"),
        ("2,048 embeddings", 11, once(lambda: post("embeddings", EMBEDDED)), saying(vectors), "embeddings"),
        ("10,000 items at the provider", 13, once(lambda: post("responses", items(10_000))), WELL, "responses"),
    ),
    "a provider": (
        ("<a<a…", 5, ASKED, failing(b"<a" * 32_768)),
        ("<a<a… of 30 MB", 5, ASKED, answering(lambda: whole(b"<a" * 15 * MIB, "500 Bad", "text/html"))),
        ("an error of brackets", 5, ASKED, failing(b'{"error":"' + b"{[" * 500_000, "400 Bad"), "messages"),
        ("an error of keys and spaces", 5, ASKED, failing(b" sk-" * 16_000 + b" " * 100_000, "429 Too Many")),
        ("an error event of 1 MB", 5, STREAM, flowing(lambda: FAILED % (b"<a" * 524_288))),
        ("an event of 25 MB of lines", 8, STREAM, flowing(lambda: FIRST + b"data: \n" * (4 * MIB) + b"\n")),
        ("a line without end", 8, STREAM, flowing(lambda: FIRST + b"data: " + b"x" * 40 * MIB)),
        ("200,000 calls", 8, ASKED, saying(lambda: calls(200_000))),
        ("2,000 calls", 8, ASKED, saying(lambda: calls(2000))),
        ("200,000 choices", 8, ASKED, saying(lambda: TOLD % (many(CHOICE % b"", 200_000), USAGE))),
        ("900,000 values", 8, ASKED, saying(lambda: TOLD % (CHOICE % b"", USAGE + b',"x":[%b]' % many(b"1", 900_000)))),
        ("900,000 values in Messages", 8, ASKED, saying(lambda: MESSAGE % (CITING % many(b"1", 900_000))), "messages"),
        ("200,000 blocks of Messages", 8, ASKED, saying(lambda: MESSAGE % many(TEXT, 200_000)), "messages"),
        ("200,000 items", 8, ASKED, saying(lambda: RESPONSE % (b"", many(OUTPUT % SAID, 200_000))), "responses"),
        ("200,000 parts of Gemini's", 8, ASKED, saying(lambda: GOOGLES % many(b'{"text":"x"}', 200_000)), "gemini"),
        ("a text of 30 MB", 8, ASKED, saying(lambda: long(HELLO, 30))),
        ("a text of 30 MB to be translated", 8, ASKED, saying(lambda: long(MESSAGE % TEXT, 30)), "messages"),
        ("JSON of 100 MB", 8, ASKED, saying(lambda: long(HELLO, 100)), "chat", 1),
        ("comments like keys", 8, STREAM, flowing(lambda: FIRST + b": sk-abcdefghijklmnopqrstuvw\n" * 220_000)),
        ("300,000 fragments of arguments", 8, STREAM, flowing(lambda: FIRST + BEGUN + PART * 300_000)),
        ("fragments to be translated", 8, MESSAGES_STREAM, flowing(lambda: FIRST + BEGUN + PART * 300_000)),
        ("as many tokens as a socket takes", 8, STREAM, flowing(lambda: FIRST + WROTE * 200_000 + END)),
        ("pieces of one byte", 8, STREAM, flowing(lambda: FIRST + WROTE * 30, 1)),
        ("heads without end", 8, ASKED, answering(lambda: Sent((b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 600_000,)))),
        ("a compressed answer", 8, ASKED, saying(lambda: gzip.compress(bytes(100 * MIB)), content_encoding="gzip")),
        ("pings for ever", 12, STREAM, answering(lambda: streamed(FIRST, PING, pause_s=0.001, repeats=9**4))),
        ("pings as fast as can be", 12, STREAM, flowing(lambda: FIRST + PING * 1_000_000)),
    ),
}  # fmt: skip
ATTACKS = tuple(Attack(who, *line) for who, lines in _TABLE.items() for line in lines)
