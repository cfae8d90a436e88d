"""A multipart form as its sender wrote it, and the same form as one deployment is sent it: its model's name put in."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from providers.dialects.dialect import Malformed

_MAX_PARTS = 1000
_LONGEST_VALUE_BYTES = 64 * 1024  # of a field that is read here: names, options, JSON of a few lines
_LONGEST_BOUNDARY = 200  # characters; the standard allows 70
_BOUNDARY = re.compile(r';\s*boundary\s*=\s*(?:"([^"]+)"|([^\s;"]+))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition[ \t]*:[ \t]*form-data[ \t]*(;[^\r\n]*)", re.IGNORECASE | re.MULTILINE)
# One parameter after the other, so that nothing inside a quoted file name is taken for one.
_PARAMETER = re.compile(rb';\s*([\w*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))')


class Part(msgspec.Struct, frozen=True):
    """Where in the body one part lies."""

    name: str
    at: int  # its delimiter
    content: int
    end: int  # of the content: the line end before the next delimiter

    @property
    def next_at(self) -> int:
        """Where the next delimiter is."""
        return self.end + 2


class Form(msgspec.Struct, frozen=True):
    """A form; every byte of it that is not to be changed stays as it came."""

    content_type: str  # as it was declared, with the boundary
    body: bytes
    parts: tuple[Part, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields."""
        return frozenset(part.name for part in self.parts)

    def text(self, name: str) -> str | None:
        """Return the text of the field ``name``, of the first of them; None where there is none.

        Raises:
            Malformed: it is no text, or far too long for one.

        """
        part = next((part for part in self.parts if part.name == name), None)
        if part is None:
            return None
        if part.end - part.content > _LONGEST_VALUE_BYTES:
            raise Malformed(f"{name!r} is longer than {_LONGEST_VALUE_BYTES} bytes", name)
        try:
            return self.body[part.content : part.end].decode()
        except UnicodeDecodeError:
            raise Malformed(f"{name!r} is not valid UTF-8", name) from None

    def without(self, names: Iterable[str]) -> "Form":
        """Return the form without these fields."""
        gone = frozenset(names)
        if gone.isdisjoint(self.names):
            return self
        body = self._spliced([(part.at, part.next_at, b"") for part in self.parts if part.name in gone])
        return read_form(self.content_type, body)

    def worded(self, model: str, extra: Mapping[str, msgspec.Raw]) -> bytes:
        """Return the body that asks ``model``, with ``extra`` fields in place of the sender's own.

        Every part called ``model`` gets the name: a server may heed any of them.
        """
        edits = [(part.at, part.next_at, b"") for part in self.parts if part.name in extra and part.name != "model"]
        named = [(part.content, part.end, model.encode()) for part in self.parts if part.name == "model"]
        added = [self._part(name, _written(raw)) for name, raw in extra.items() if name != "model"]
        if not named:
            added.append(self._part("model", model.encode()))
        close = self.parts[-1].next_at if self.parts else self.body.index(self._delimiter)
        return self._spliced([*edits, *named, (close, close, b"".join(added))])

    @property
    def _delimiter(self) -> bytes:
        return b"--" + _boundary_of(self.content_type)

    def _part(self, name: str, value: bytes) -> bytes:
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A").encode()
        return b'%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (self._delimiter, quoted, value)

    def _spliced(self, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
        pieces = []
        done = 0
        for start, end, replacement in sorted(edits):
            pieces += [self.body[done:start], replacement]
            done = end
        return b"".join([*pieces, self.body[done:]])


def read_form(content_type: str, body: bytes) -> Form:
    """Return a ``multipart/form-data`` body, found through but not copied.

    Raises:
        Malformed: it is none.

    """
    delimiter = b"--" + _boundary_of(content_type)
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    if at == 1:
        raise Malformed("the body has no part: is it the one its content-type's boundary belongs to?")
    parts: list[Part] = []
    while not body.startswith(b"--", after := at + len(delimiter)):
        line_end = body.find(b"\r\n", after)
        if line_end < 0 or body[after:line_end].strip(b" \t"):
            raise Malformed("the body is no multipart form: a boundary is not at the end of its line")
        head_end = body.find(b"\r\n\r\n", line_end)
        end = body.find(b"\r\n" + delimiter, line_end)
        if head_end < 0 or end < head_end:
            raise Malformed("the body is no whole multipart form: it ends within a part, or a part has no headers")
        name = _name(body[line_end + 2 : head_end])
        parts.append(Part(name, at, min(head_end + 4, end), end))
        if len(parts) > _MAX_PARTS:
            raise Malformed(f"the form has more than {_MAX_PARTS} parts")
        at = end + 2
    return Form(content_type, body, tuple(parts))


def _boundary_of(content_type: str) -> bytes:
    found = _BOUNDARY.search(content_type)
    boundary = (found[1] or found[2]) if found else ""
    if not boundary or not boundary.isascii() or not boundary.isprintable() or len(boundary) > _LONGEST_BOUNDARY:
        raise Malformed("the content-type names no boundary that a multipart form could have")
    return boundary.encode()


def _name(head: bytes) -> str:
    disposition = _DISPOSITION.search(head)
    for parameter in _PARAMETER.finditer(disposition[1] if disposition else b""):
        if parameter[1].lower() == b"name":
            quoted = parameter[2] if parameter[2] is not None else parameter[3]
            return quoted.decode(errors="replace").replace('\\"', '"').replace("%22", '"')
    raise Malformed("a part of the form has no name")


def _written(raw: msgspec.Raw) -> bytes:
    """Return a JSON value as a form says it: texts bare, anything else as JSON."""
    value = msgspec.json.decode(raw)
    return value.encode() if isinstance(value, str) else bytes(raw)
