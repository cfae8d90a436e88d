"""Where a sound begins after its container's header, so that a header alone wins no race: a table with one user."""

from collections.abc import Callable, Mapping

_MOST_HEADER_BYTES = 64 * 1024  # pictures and tags may be longer: then what follows counts as sound
_EVENTS = "text/event-stream"
_TOLD = (b".delta", b".done")  # the types of events with a part of the sound or text, or with all of it
_PAGE_BYTES, _GRANULE = 27, slice(6, 14)  # of Ogg
_RIFF_BYTES = 12
_ID3_BYTES, _ID3_VERSIONS = 10, (2, 3, 4)
_LAST_OF_FLAC = 0x80


def has_begun(content_type: str, head: bytes) -> bool:
    """Whether ``head``, the beginning of an answer, has some of the sound, or of the text, beyond a header."""
    if len(head) > _MOST_HEADER_BYTES:
        return True
    if content_type.partition(";")[0].strip().lower() == _EVENTS:
        return any(told in head for told in _TOLD)
    header = next((known for magic, known in _HEADERS.items() if head.startswith(magic)), None)
    if header is not None:
        return header(head)
    # The first bytes of a known container may be cut.
    return bool(head) and not any(magic.startswith(head) for magic in _HEADERS)


def _wave(head: bytes) -> bool:
    if len(head) >= _RIFF_BYTES and head[8:_RIFF_BYTES] != b"WAVE":  # something else
        return True
    at = head.find(b"data", _RIFF_BYTES)
    return at >= 0 and len(head) > at + 8


def _ogg(head: bytes) -> bool:
    """Whether one of the pages is not of headers: those have the granule 0."""
    at = 0
    while len(head) >= at + _PAGE_BYTES:
        lengths = head[at + _PAGE_BYTES : at + _PAGE_BYTES + head[at + _PAGE_BYTES - 1]]
        begins = at + _PAGE_BYTES + len(lengths)
        if head[at:][_GRANULE] != bytes(8):
            return len(head) > begins
        at = begins + sum(lengths)
    return False


def _id3(head: bytes) -> bool:
    if len(head) < _ID3_BYTES:
        return False
    if head[3] not in _ID3_VERSIONS:  # no tag at all
        return True
    size = 0
    for byte in head[6:_ID3_BYTES]:
        size = size << 7 | byte & 0x7F
    return len(head) > _ID3_BYTES + size


def _flac(head: bytes) -> bool:
    at = 4
    while len(head) >= at + 4:
        is_last, size = head[at] & _LAST_OF_FLAC, int.from_bytes(head[at + 1 : at + 4])
        at += 4 + size
        if is_last:
            return len(head) > at
    return False


def _after(mark: bytes) -> Callable[[bytes], bool]:
    return lambda head: (at := head.find(mark)) >= 0 and len(head) > at + len(mark) + 8


# By the first bytes of a container: whether something follows its header. Sounds without one begin at once.
_HEADERS: Mapping[bytes, Callable[[bytes], bool]] = {
    b"RIFF": _wave,
    b"OggS": _ogg,
    b"ID3": _id3,
    b"fLaC": _flac,
    b"\x1aE\xdf\xa3": _after(b"\x1fC\xb6u"),  # Matroska: its first cluster
    b"\x00\x00\x00\x18ftyp": _after(b"mdat"),
    b"\x00\x00\x00\x1cftyp": _after(b"mdat"),
    b"\x00\x00\x00\x20ftyp": _after(b"mdat"),
}
