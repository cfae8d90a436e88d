"""Searches a prompt's raw JSON, without parsing, for images, audio, documents and Base64 data."""

import re
from collections.abc import Generator
from typing import TypeVar

import msgspec

# Base64 counts as bytes of the body, not as text. Backslashes: some clients escape "/" and line ends in JSON.
_CODED = rb"[A-Za-z0-9+/=_\\-]"
_LEAST_RUN = 1024  # bytes; shorter runs may be words
_BLOCK = _LEAST_RUN // 2  # every run contains at least one whole block at a multiple of this
_CODED_BLOCK = re.compile(_CODED + rb"{%d}" % _BLOCK)
_CODED_REST = re.compile(_CODED + rb"{0,%d}" % 2**20)
_CODED_END = re.compile(rb"(?<!%b)%b*\Z" % (_CODED, _CODED))
_SLICE_BYTES = 2**20  # a slice takes two or three milliseconds
_STRADDLING_BYTES = 4096  # a match that begins in a slice ends within these

_T = TypeVar("_T")
Steps = Generator[None, None, _T]  # work in slices: the event loop may run other tasks between them


class Media(msgspec.Struct, frozen=True):
    """Patterns by which a dialect's raw JSON shows that a prompt contains images, audio or documents.

    Quotes are escaped in text that quotes JSON, so such text does not match.
    """

    any: re.Pattern[bytes]  # any of the three: most prompts have none and are searched only once
    vision: re.Pattern[bytes]
    audio: re.Pattern[bytes]
    documents: re.Pattern[bytes]

    @classmethod
    def of(cls, vision: str, audio: str, documents: str) -> "Media":
        """Return the patterns for objects with these values of ``type`` (alternatives of a regular expression)."""
        return cls(*map(_object_of, (f"{vision}|{audio}|{documents}", vision, audio, documents)))


class Survey(msgspec.Struct):
    """What was found in a prompt."""

    escapes: int = 0  # letters written as \\uXXXX
    vision: bool = False
    audio: bool = False
    documents: bool = False
    payloads: int = 0  # runs of Base64
    payload_bytes: int = 0  # of all runs together


def survey(prompt: msgspec.Raw, media: Media) -> Survey:
    """Survey a ``prompt`` of at most a few megabytes."""
    return finished(survey_steps(prompt, media))


def survey_steps(prompt: msgspec.Raw, media: Media) -> Steps[Survey]:
    """Survey a ``prompt`` of any size, in slices."""
    found = Survey()
    view = memoryview(prompt)
    size = len(view)
    searched = {"vision": media.vision, "audio": media.audio, "documents": media.documents}
    for at in range(0, size, _SLICE_BYTES):
        # One byte more, for an escape across the end of the slice. None is counted twice.
        found.escapes += bytes(view[at : at + _SLICE_BYTES + 1]).count(b"\\u")
        end = min(size, at + _SLICE_BYTES + _STRADDLING_BYTES)
        if media.any.search(prompt, at, end) is not None:
            for name, pattern in [*searched.items()]:
                if pattern.search(prompt, at, end) is not None:
                    setattr(found, name, True)
                    del searched[name]
        yield
    if len(searched) < len(("vision", "audio", "documents")):
        yield from _payload_steps(prompt, found)
    return found


def finished(steps: Steps[_T]) -> _T:
    """Run all ``steps`` at once and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def _payload_steps(prompt: msgspec.Raw, found: Survey) -> Steps[None]:
    """Find the runs of Base64, checking only blocks at multiples of the block size.

    A search byte by byte takes a hundred times as long.
    """
    size = len(memoryview(prompt))
    at = done = paused_at = 0
    while at + _BLOCK <= size:
        if at - paused_at >= _SLICE_BYTES:
            paused_at = at
            yield
        if _CODED_BLOCK.match(prompt, at) is None:
            at += _BLOCK
            continue
        begin = _begin_of_run(prompt, at, done)
        end = at + _BLOCK
        while (more := _CODED_REST.match(prompt, end)) is not None and more.end() > end:
            end = more.end()
            yield
        if end - begin >= _LEAST_RUN:
            found.payloads += 1
            found.payload_bytes += end - begin
        done = end
        at = end - end % _BLOCK + _BLOCK  # the byte at ``end`` is not Base64


def _begin_of_run(prompt: msgspec.Raw, at: int, after: int) -> int:
    """Return where the run that reaches ``at`` begins; it is within the block before ``at``."""
    found = _CODED_END.search(prompt, max(after, at - _BLOCK), at)
    return at if found is None else found.start()


def _object_of(types: str) -> re.Pattern[bytes]:
    return re.compile(rb'"type"\s*:\s*"(?:%b)"' % types.encode())
