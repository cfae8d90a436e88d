"""Requests of every row of the APIs: each row's plain request, and what is changed about it.

Nothing of the gateway is imported: any version of it can be asked.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

KEY = "hs-of-the-recording"
KEYS: dict[str, dict[str, Any]] = {
    KEY: {},
    "hs-that-has-ended": {"expires": "2020-01-01"},
    "hs-of-other-models": {"models": ["other"]},
}
Body = dict[str, Any]
_WORDS = [{"role": "user", "content": "Say hello."}]
_PARTS = [{"role": "user", "parts": [{"text": "Say hello."}]}]
_FORM = "multipart/form-data; boundary=here"


class Row(NamedTuple):
    """One path: ``provider`` is what it is answered by, ``body`` its plain request without the model."""

    name: str
    path: str
    body: Body
    provider: Body
    file: str = ""  # the field of a form that is a file


CHAT: Body = {"apis": ["chat", "completions"]}
OPENAI: Body = {"apis": ["responses"]}
OTHERS: Body = {"apis": ["embeddings", "moderations", "rerank", "audio", "images", "decisions", "responses"]}
ANTHROPIC: Body = {"kind": "anthropic"}
GEMINI: Body = {"kind": "gemini"}
INTERACTIONS: Body = {"kind": "gemini", "apis": ["interactions"]}

ROWS = (
    Row("chat", "/v1/chat/completions", {"messages": _WORDS}, CHAT),
    Row("chat streamed", "/v1/chat/completions", {"messages": _WORDS, "stream": True}, CHAT),
    Row("chat by Messages", "/v1/chat/completions", {"messages": _WORDS}, ANTHROPIC),
    Row("completions", "/v1/completions", {"prompt": "Hello"}, CHAT),
    Row("responses", "/v1/responses", {"input": "Say hello."}, OPENAI),
    Row("responses streamed", "/v1/responses", {"input": "Say hello.", "stream": True}, OPENAI),
    Row("responses by chat", "/v1/responses", {"input": "Say hello."}, CHAT),
    Row("messages", "/v1/messages", {"max_tokens": 50, "messages": _WORDS}, ANTHROPIC),
    Row("messages streamed", "/v1/messages", {"max_tokens": 50, "messages": _WORDS, "stream": True}, ANTHROPIC),
    Row("messages by chat", "/v1/messages", {"max_tokens": 50, "messages": _WORDS}, CHAT),
    Row("gemini", "/v1beta/models/{model}:generateContent", {"contents": _PARTS}, GEMINI),
    Row("gemini streamed", "/v1beta/models/{model}:streamGenerateContent?alt=sse", {"contents": _PARTS}, GEMINI),
    Row("gemini by chat", "/v1beta/models/{model}:generateContent", {"contents": _PARTS}, CHAT),
    Row("interactions", "/v1/interactions", {"input": "Say hello."}, INTERACTIONS),
    Row("interactions streamed", "/v1/interactions", {"input": "Say hello.", "stream": True}, INTERACTIONS),
    Row("interactions by chat", "/v1/interactions", {"input": "Say hello."}, CHAT),
    Row("tokens of messages", "/v1/messages/count_tokens", {"messages": _WORDS}, ANTHROPIC),
    Row("tokens of gemini", "/v1beta/models/{model}:countTokens", {"contents": _PARTS}, GEMINI),
    Row("tokens of responses", "/v1/responses/input_tokens", {"input": "Say hello."}, OPENAI),
    Row("compact", "/v1/responses/compact", {"input": "Say hello."}, OPENAI),
    Row("embeddings", "/v1/embeddings", {"input": ["a", "b"]}, OTHERS),
    Row("moderations", "/v1/moderations", {"input": "Hello"}, OTHERS),
    Row("rerank", "/v1/rerank", {"query": "a", "documents": ["a", "b"]}, OTHERS),
    Row(
        "decisions",
        "/v1/decisions",
        {"input": "Hello", "questions": [{"type": "predicate", "instructions": "?"}]},
        OTHERS,
    ),
    Row("speech", "/v1/audio/speech", {"input": "Hello", "voice": "alloy"}, OTHERS),
    Row("transcriptions", "/v1/audio/transcriptions", {"response_format": "json"}, OTHERS, "file"),
    Row("translations", "/v1/audio/translations", {}, OTHERS, "file"),
    Row("generations", "/v1/images/generations", {"prompt": "a dog"}, OTHERS),
    Row("edits", "/v1/images/edits", {"prompt": "a dog"}, OTHERS, "image"),
)

# How a provider answers, by the first word of its address.
FAULTS = (
    *("400", "401", "402", "403", "404", "408", "413", "422", "429", "429-later", "500", "502", "503", "529"),
    *("closes", "half", "nothing", "no-json", "a-page", "a-list", "an-error", "500-closes"),
)
MODES = ("single", "both", "one", "then")  # race of two that fail; of one that fails; a fallback to one that does not


class Asked(NamedTuple):
    """One request."""

    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def of_row(row: Row) -> Iterator[Asked]:
    """Return a row's requests, in an order that is always the same."""
    plain = _encoded(row, "good", row.body)
    yield from _of_keys(plain)
    yield from _of_bodies(row, plain)
    yield from _of_fields(row)
    yield from _of_headers(plain)
    unread = {"half", "no-json", "a-list"} | ({"an-error"} if row.name == "speech" else set())
    for mode in MODES:
        for fault in FAULTS:
            if mode == "one" and fault in unread:
                continue  # who begins first is left to chance
            yield _encoded(row, f"{mode}.{fault}", row.body)._replace(name=f"{mode} {fault}")


def _encoded(row: Row, model: Any, fields: Body) -> Asked:
    path = row.path.replace("{model}", str(model))
    body = fields if path != row.path else {"model": model, **fields}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    if row.file:
        headers["content-type"] = _FORM
        return Asked("plain", "POST", path, headers, _form(body, row.file))
    return Asked("plain", "POST", path, headers, json.dumps(body).encode())


def _form(fields: Body, file: str) -> bytes:
    parts = [
        f'--here\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields.items()
    ]
    head = (
        f'--here\r\ncontent-disposition: form-data; name="{file}"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n'
    )
    return "\r\n".join([*parts, f"{head}RIFF....WAVE", "--here--\r\n"]).encode()


def _of_keys(plain: Asked) -> Iterator[Asked]:
    rest = {name: value for name, value in plain.headers.items() if name != "authorization"}
    yield plain
    yield plain._replace(name="no key", headers=rest)
    for name in ("x-api-key", "x-goog-api-key", "api-key"):
        yield plain._replace(name=f"key in {name}", headers={**rest, name: KEY})
    for key in ("wrong", *list(KEYS)[1:], ""):
        yield plain._replace(name=f"key {key!r}", headers={**rest, "authorization": f"Bearer {key}"})
    yield plain._replace(name="key without a scheme", headers={**rest, "authorization": KEY})
    yield plain._replace(name="basic", headers={**rest, "authorization": "Basic aHM6aHM="})


_BODIES = {
    "empty": b"",
    "no JSON": b"hello",
    "a list": b"[]",
    "a text": b'"hello"',
    "null": b"null",
    "a number": b"1e999",
    "an empty object": b"{}",
    "no UTF-8": b'{"model": "\xff"}',
    "half": b'{"model": "good", "messages": [',
    "deep": b'{"model": "good", "messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "more behind it": b'{"model": "good"} {}',
    "a lone surrogate": b'{"model": "good", "user": "\\ud800"}',
}


def _of_bodies(row: Row, plain: Asked) -> Iterator[Asked]:
    for name, body in _BODIES.items():
        yield plain._replace(name=f"body: {name}", body=body)
    yield plain._replace(name="with a byte order mark", body=b"\xef\xbb\xbf" + plain.body)
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "multipart/form-data",
    ):
        yield plain._replace(name=f"as {kind}", headers={**plain.headers, "content-type": kind})
    yield plain._replace(name="said to be gzip", headers={**plain.headers, "content-encoding": "gzip"})
    for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
        yield plain._replace(name=method, method=method, body=b"")
    head, question, query = plain.path.partition("?")
    yield plain._replace(name="a slash behind it", path=f"{head}/{question}{query}")
    yield plain._replace(name="without its version", path=plain.path.replace("/v1beta", "").replace("/v1", ""))
    if not row.file:
        yield plain._replace(name="the model twice", body=b'{"model": "unknown", ' + plain.body[1:])


_WRONG: tuple[Any, ...] = (None, 7, "text", [], {}, True)


def _of_fields(row: Row) -> Iterator[Asked]:
    for model in ("unknown", "", "a" * 300, "good\n", "p-good/m", "nobody/m", 7, None):
        yield _encoded(row, model, row.body)._replace(name=f"model {str(model)[:20]!r}")
    for name in row.body:
        yield _encoded(row, "good", {key: value for key, value in row.body.items() if key != name})._replace(
            name=f"without {name}"
        )
        for value in _WRONG:
            changed = _encoded(row, "good", {**row.body, name: value})
            yield changed._replace(name=f"{name}: {json.dumps(value)}")
    for name in ("unheard_of", "stream", "n", "temperature", "max_tokens", "tools", "race", "user"):
        for value in _WRONG if name == "stream" else (-3, "text"):
            yield _encoded(row, "good", {**row.body, name: value})._replace(name=f"with {name}: {json.dumps(value)}")


def _of_headers(plain: Asked) -> Iterator[Asked]:
    for name, values in {
        "x-holeshot-race": ("single", "race", "auto", "width=9", '{"mode": "race"}', "nonsense"),
        "x-holeshot-deadline-ms": ("60000", "0", "-1", "soon"),
        "x-holeshot-call-id": ("mine",),
        "x-request-id": ("mine",),
        "anthropic-version": ("2023-06-01",),
        "accept": ("text/event-stream", "application/xml"),
        "origin": ("https://example.com",),
    }.items():
        for value in values:
            yield plain._replace(name=f"{name}: {value}", headers={**plain.headers, name: value})
