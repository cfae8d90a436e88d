"""Whether a whole answer has as many entries as were asked for: vectors, rankings, pictures."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from providers.refusals.complaints import COMPLAINTS
from providers.refusals.error_bodies import LARGE_BYTES, error_in
from providers.refusals.error_shapes import FIELDS_OF_ERRORS
from providers.refusals.errors import UNREADABLE, ErrorKind, UpstreamError

# Where answers have what was asked for. A vendor's own shape has none of these, and passes.
_LISTS = {
    "embeddings": ("data", "embeddings"),
    "moderations": ("results",),
    "rerank": ("results", "data"),
    **{f"images/{what}": ("data", "images") for what in ("generations", "edits", "variations")},
}
_EMPTY = (b"null", b"[]", b"{}", b'""')
_BESIDE_COMPLAINTS = frozenset(  # what errors have beside their text, and what no client could use
    (
        *FIELDS_OF_ERRORS,
        *("created", "id", "meta", "metadata", "model", "name", "object", "path", "reason", "request", "request_id"),
        *("requestId", "sid", "status", "statusCode", "success", "timestamp", "traceId", "trace_id", "usage"),
    )
)
_OF_RANKINGS = ("documents", "max_chunks_per_doc", "max_tokens_per_doc", "query", "rank_fields", "return_documents")
_LEAVE_NOTHING_OUT = frozenset((*_OF_RANKINGS, "model", "top_k", "top_n", "truncate", "truncation", "user"))
# Servers may make one vector of all inputs if one is a file: docs.litellm.ai/blog/gemini_embedding_2_multimodal, read
# on 2026-11-27.
_FILE = re.compile(rb'"(?:data:|files\\?/|[a-z]+:\\?/)')


class _Entry(msgspec.Struct, frozen=True):
    embedding: msgspec.Raw = msgspec.Raw(b" ")  # not of rankings, moderations and pictures


_arrays = msgspec.json.Decoder(list[msgspec.Raw])
_entries = msgspec.json.Decoder(list[_Entry | None])


def fewest_entries(path: str, fields: Mapping[str, msgspec.Raw]) -> int:
    """Return how many entries the list in an answer to ``fields`` has at least. For example, two texts: two vectors.

    0 for APIs whose answers have no list, or a list that may be empty.
    """
    if path not in _LISTS or any(bytes(fields.get(name, b"")) == b"0" for name in ("n", "top_n", "top_k")):
        return 0
    if path == "rerank" and not fields.keys() <= _LEAVE_NOTHING_OUT:
        return 0
    if path != "embeddings":
        return 1
    try:
        inputs = [bytes(each) for each in _arrays.decode(fields.get("input", b""))]
    except UNREADABLE:
        return 1  # a text
    are_texts = all(each.startswith(b'"') and _FILE.match(each) is None for each in inputs)
    are_tokens = all(each.startswith(b"[") and each[1:].lstrip()[:1].isdigit() for each in inputs)
    return len(inputs) if are_texts or are_tokens else 1


def check_entries(path: str, body: bytes, said: Mapping[str, msgspec.Raw], secrets: Sequence[str], fewest: int) -> None:
    """Raise the error of an answer without content, which would win: such an answer comes sooner than any other.

    ``said``: the top level of the answer; of a large answer without the entries of the list.
    """
    if not fewest or not said or body.lstrip().startswith(b"["):  # a server's own ranking, not empty
        return
    lists = [said[name] for name in _LISTS[path] if name in said]
    if (count := max((_count(raw, body, fewest) for raw in lists), default=0)) >= fewest:
        return
    full = {name for name, raw in said.items() if bytes(raw) not in _EMPTY}
    complains = not full.isdisjoint(COMPLAINTS)
    if not lists and not (complains and ("error_message" in full or full <= _BESIDE_COMPLAINTS)):
        return
    if complains:
        raise error_in(body, secrets, otherwise=ErrorKind.SERVER_ERROR)
    message = f"answered with {count} of {fewest} vectors" if fewest > 1 else "answered with nothing of what was asked"
    raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, message)


def _count(raw: msgspec.Raw, body: bytes, fewest: int) -> int:
    """Return how many entries are not empty; ``fewest`` for an object, as some group vectors by their types."""
    if len(body) > LARGE_BYTES and bytes(raw).startswith(b"["):  # is not read again, as only vectors are so long
        return body.count(b'"embedding":') or fewest
    try:
        return sum(each is not None and bytes(each.embedding) not in _EMPTY for each in _entries.decode(raw))
    except UNREADABLE:
        pass
    try:
        return sum(bytes(each) not in _EMPTY for each in _arrays.decode(raw))
    except UNREADABLE:
        return 0 if bytes(raw) in _EMPTY else fewest
