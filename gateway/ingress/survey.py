"""What a prompt's raw JSON shows without being parsed: pictures, sound, documents, and bytes that are no text of it."""

import re
from collections.abc import Generator
from typing import TypeVar

import msgspec

# Base64: bytes of the body, but no text of the prompt. Backslashes as some write "/" and line ends in JSON.
_CODED = rb"[A-Za-z0-9+/=_\\-]"
_LEAST_RUN = 1024  # bytes; shorter ones are words
_BLOCK = _LEAST_RUN // 2  # one that begins at a multiple of it lies wholly in every run
_CODED_BLOCK = re.compile(_CODED + rb"{%d}" % _BLOCK)
_CODED_REST = re.compile(_CODED + rb"{0,%d}" % 2**20)
_CODED_END = re.compile(rb"(?<!%b)%b*\Z" % (_CODED, _CODED))
_SLICE_BYTES = 2**20  # looked through in two or three milliseconds
_STRADDLING_BYTES = 4096  # an object's type that begins in a slice ends within these

_T = TypeVar("_T")
Steps = Generator[None, None, _T]  # work in slices: between two of them others may have their turn


class Media(msgspec.Struct, frozen=True):
    """How a dialect's raw JSON says that a prompt has pictures, sound or documents in it.

    In text that quotes JSON the quotes are escaped, so that it is not taken for the thing itself.
    """

    any: re.Pattern[bytes]  # of the three; nearly all prompts have none, and are looked through once
    vision: re.Pattern[bytes]
    audio: re.Pattern[bytes]
    documents: re.Pattern[bytes]

    @classmethod
    def of(cls, vision: str, audio: str, documents: str) -> "Media":
        """Return how it is said with objects of these types."""
        return cls(*map(_object_of, (f"{vision}|{audio}|{documents}", vision, audio, documents)))


class Survey(msgspec.Struct):
    """What a prompt was seen to have."""

    escapes: int = 0  # letters written as \\uXXXX
    vision: bool = False
    audio: bool = False
    documents: bool = False
    payloads: int = 0  # runs of Base64
    payload_bytes: int = 0  # of all of them


def survey(prompt: msgspec.Raw, media: Media) -> Survey:
    """Return what there is in ``prompt``, of at most a few megabytes."""
    return finished(survey_steps(prompt, media))


def survey_steps(prompt: msgspec.Raw, media: Media) -> Steps[Survey]:
    """Look through ``prompt``, of any size."""
    found = Survey()
    view = memoryview(prompt)
    size = len(view)
    searched = {"vision": media.vision, "audio": media.audio, "documents": media.documents}
    for at in range(0, size, _SLICE_BYTES):
        # One byte more, for an escape that straddles: none that begins there is counted twice.
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
    """Return what ``steps`` come to, all of them at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def _payload_steps(prompt: msgspec.Raw, found: Survey) -> Steps[None]:
    """Find the runs of Base64 by the blocks that begin at multiples of their size: of text no more is looked at.

    To search for them byte by byte takes a hundred times as long.
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
        at = end - end % _BLOCK + _BLOCK  # what begins at ``end`` is no such byte


def _begin_of_run(prompt: msgspec.Raw, at: int, after: int) -> int:
    """Return where the run begins that reaches ``at``; the block before that is not all of it."""
    found = _CODED_END.search(prompt, max(after, at - _BLOCK), at)
    return at if found is None else found.start()


def _object_of(types: str) -> re.Pattern[bytes]:
    return re.compile(rb'"type"\s*:\s*"(?:%b)"' % types.encode())
