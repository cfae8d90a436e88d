"""Multipart forms: reading a client's form, and writing it for one deployment, with the deployment's model name.

The model decides what a call costs, and whether the call is allowed. So no server may find another model in the form
than this parser does: forms that servers parse differently are refused, or the differences are removed.
"""

import re
from collections.abc import Generator, Iterable, Mapping
from io import BytesIO
from typing import TypeVar

import msgspec

from providers.dialects import Malformed
from providers.refusals import MaskedRecord

_MAX_PARTS = 1000
LONGEST_VALUE_BYTES = 64 * 1024  # of a field that is read here, such as a name or an option
_LONGEST_HEAD_BYTES = 16 * 1024  # of a part's headers
# A form may have 64 MB, which takes a tenth of a second to read and longer to copy: so work on it comes in steps.
_STEP_BYTES = 2**19
_LONGEST_BOUNDARY = 200  # characters; the standard allows 70
_KIND = "multipart/form-data"
_DISPOSITION = b"content-disposition"
_FORM_DATA = b"form-data"
_FILE = b"filename"  # the parameter that only the part of a file has
# Parameters are matched one after the other, so that none is found inside a quoted file name.
_PARAMETER = re.compile(r'\s*;\s*([\w*.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s"]*))', re.DOTALL)
_BREAKS = frozenset(b"\r\n\0")
_TOKEN = re.compile(rb"[\w!#$%&'*+.^`|~-]+", re.ASCII)

_T = TypeVar("_T")
Steps = Generator[None, None, _T]  # of a few milliseconds each: the event loop may run other tasks between them


def finished(steps: Steps[_T]) -> _T:
    """Run all ``steps`` at once and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


class Part(msgspec.Struct, frozen=True):
    """The position of one part in the body."""

    name: str
    at: int  # the beginning of its delimiter
    content: int
    end: int  # the end of its content: the line end before the next delimiter

    @property
    def next_at(self) -> int:
        """The position of the next delimiter."""
        return self.end + 2


class Form(MaskedRecord, frozen=True):
    """A form. Parts that are not changed keep all their bytes."""

    boundary: bytes
    body: bytes
    parts: tuple[Part, ...]

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return the fields for the repr, without the content, which is private."""
        yield "body", f"{len(self.parts)} parts, {len(self.body)} bytes"

    @property
    def content_type(self) -> str:
        """The content-type of a request with this form; the boundary is the only parameter."""
        boundary = self.boundary.decode()
        return f"{_KIND}; boundary={boundary if _TOKEN.fullmatch(self.boundary) else _quoted(boundary)}"

    @property
    def names(self) -> frozenset[str]:
        """The names of its fields."""
        return frozenset(part.name for part in self.parts)

    def text(self, name: str) -> str | None:
        """Return the text of the first field ``name``; None if there is none.

        Raises:
            Malformed: the field is not text, or too long.

        """
        part = next((part for part in self.parts if part.name == name), None)
        if part is None:
            return None
        if part.end - part.content > LONGEST_VALUE_BYTES:
            raise Malformed(f"{name!r} is longer than {LONGEST_VALUE_BYTES} bytes", name)
        try:
            return self.body[part.content : part.end].decode()
        except UnicodeDecodeError:
            raise Malformed(f"{name!r} is not valid UTF-8", name) from None

    def values(self) -> list[tuple[str, memoryview]]:
        """Return the names and contents of the parts that are no files."""
        body = self.body
        plain = (part for part in self.parts if _FILE not in body[part.at : part.content].lower())
        return [(part.name, memoryview(body)[part.content : part.end]) for part in plain]

    def texts(self) -> list[str]:
        """Return the parts with their headers as text, except for the model's name."""
        body = self.body
        return [body[part.at : part.end].decode(errors="replace") for part in self.parts if part.name != "model"]

    def without(self, names: Iterable[str]) -> "Form":
        """Return the form without these fields."""
        return finished(self.without_steps(names))

    def without_steps(self, names: Iterable[str]) -> "Steps[Form]":
        """Return the form without these fields, step by step."""
        left_out = frozenset(names)
        if left_out.isdisjoint(self.names):
            return self
        cuts = [(part.at, part.next_at, b"") for part in self.parts if part.name in left_out]
        return (yield from _read(self.boundary, (yield from _joined(self._spliced(cuts)))))

    def rendered(self, model: str, extra: Mapping[str, msgspec.Raw]) -> bytes:
        """Return the body for ``model``; the fields ``extra`` replace the client's."""
        return finished(self.rendering_steps(model, extra))

    def rendering_steps(self, model: str, extra: Mapping[str, msgspec.Raw]) -> Steps[bytes]:
        """Return the body for ``model``, step by step; the fields ``extra`` replace the client's.

        Every part with the name ``model`` gets this name: a server may use any of these parts.
        """
        edits = [(part.at, part.next_at, b"") for part in self.parts if part.name in extra and part.name != "model"]
        named = [(part.content, part.end, model.encode()) for part in self.parts if part.name == "model"]
        added = [self._part(name, _written(raw)) for name, raw in extra.items() if name != "model"]
        if not named:
            added.append(self._part("model", model.encode()))
        close = self.parts[-1].next_at if self.parts else self.body.index(self._delimiter)
        return (yield from _joined(self._spliced([*edits, *named, (close, close, b"".join(added))])))

    @property
    def _delimiter(self) -> bytes:
        return b"--" + self.boundary

    def _part(self, name: str, value: bytes) -> bytes:
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A").encode()
        return b'%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (self._delimiter, quoted, value)

    def _spliced(self, edits: Iterable[tuple[int, int, bytes]]) -> list[bytes | memoryview]:
        pieces: list[bytes | memoryview] = []
        done, body = 0, memoryview(self.body)
        for start, end, replacement in sorted(edits):
            pieces += [body[done:start], replacement]
            done = end
        return [*pieces, body[done:]]


def _quoted(text: str) -> str:
    return f'"{text}"'


def read_form(content_type: str, body: bytes) -> Form:
    """Return the parsed form at once, as ``form_steps`` does in steps."""
    return finished(form_steps(content_type, body))


def form_steps(content_type: str, body: bytes) -> Steps[Form]:
    """Parse a ``multipart/form-data`` body, step by step; data before and after its parts is left out.

    Raises:
        Malformed: the body is not a valid form.

    """
    return (yield from _read(_boundary_of(content_type), body))


def _read(boundary: bytes, body: bytes) -> Steps[Form]:
    delimiter = b"--" + boundary
    start = 0 if body.startswith(delimiter) else (yield from _found(b"\r\n" + delimiter, body, 0)) + 2
    if start == 1:
        raise Malformed("the body has no part: does its boundary match the content-type?")
    at = start
    parts: list[Part] = []
    while not body.startswith(b"--", after := at + len(delimiter)):
        line_end = yield from _found(b"\r\n", body, after)
        if line_end < 0 or line_end > after + _LONGEST_HEAD_BYTES or body[after:line_end].strip(b" \t"):
            raise Malformed("the body is not a multipart form: a boundary is not at the end of its line")
        head_end = body.find(b"\r\n\r\n", line_end, line_end + _LONGEST_HEAD_BYTES)
        end = yield from _found(b"\r\n" + delimiter, body, line_end)
        if head_end < 0 or end < head_end:
            raise Malformed(
                "the body is not a complete multipart form: it ends within a part, or a part has no or endless headers"
            )
        name = _name(body[line_end + 2 : head_end])
        parts.append(Part(name, at - start, min(head_end + 4, end) - start, end - start))
        if len(parts) > _MAX_PARTS:
            raise Malformed(f"the form has more than {_MAX_PARTS} parts")
        at = end + 2
        yield
    # Servers that accept a single CR or LF as a line end would find more parts.
    whole = body.startswith(b"\r\n", after + 2) and len(body) == after + 4
    if start or not whole:
        body = yield from _joined([memoryview(body)[start : after + 2], b"\r\n"])
    if (yield from _counted(b"\n" + delimiter, body)) != len(parts) or (yield from _counted(b"\r" + delimiter, body)):
        raise Malformed("the form's boundary is also in one of its parts: use another")
    return Form(boundary, body, tuple(parts))


def _found(text: bytes, body: bytes, start: int) -> Steps[int]:
    """Return the first position of ``text`` from ``start`` on; -1 if there is none."""
    for at in range(start, len(body), _STEP_BYTES):
        position = body.find(text, at, at + _STEP_BYTES + len(text) - 1)
        if position >= 0:
            return position
        yield
    return -1


def _counted(text: bytes, body: bytes) -> Steps[int]:
    """Return the number of ``text``, which cannot overlap itself, in ``body``."""
    number = 0
    for at in range(0, len(body), _STEP_BYTES):
        number += body.count(text, at, at + _STEP_BYTES + len(text) - 1)
        yield
    return number


def _joined(pieces: Iterable[bytes | memoryview]) -> Steps[bytes]:
    body = BytesIO()  # unlike a bytearray it becomes bytes without another copy
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), _STEP_BYTES):
            body.write(view[at : at + _STEP_BYTES])
            if at:
                yield
    return body.getvalue()


def _boundary_of(content_type: str) -> bytes:
    _, semicolon, rest = content_type.partition(";")
    parameters = _parameters(semicolon + rest, "boundary")
    boundary = parameters[0] if len(parameters) == 1 else ""
    usable = boundary.isascii() and boundary.isprintable() and not set(boundary) & set('"\\')
    if not boundary or not usable or len(boundary) > _LONGEST_BOUNDARY:
        raise Malformed("the content-type names no boundary that a multipart form could have, or several")
    return boundary.encode()


def _name(head: bytes) -> str:
    """Return the name from a part's headers.

    Raises:
        Malformed: there is no name, or more than one: servers would differ in which they use.

    """
    dispositions = []
    for line in head.split(b"\r\n"):
        field, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(field) or not _BREAKS.isdisjoint(line):
            raise Malformed("a part of the form has an invalid header")
        if field.lower() == _DISPOSITION:
            dispositions.append(value.strip())
    kind, semicolon, rest = dispositions[0].partition(b";") if len(dispositions) == 1 else (b"", b"", b"")
    names = _parameters((semicolon + rest).decode(errors="replace"), "name")
    if kind.strip().lower() != _FORM_DATA or len(names) != 1:
        raise Malformed("a part of the form has no name, or several")
    name = names[0].replace('\\"', '"').replace("%22", '"')
    if "\\" in name:
        raise Malformed("a part of the form has a backslash in its name")
    return name


def _parameters(text: str, name: str) -> list[str]:
    """Return every value of a header's parameter ``name``.

    Raises:
        Malformed: ``text`` is not a list of parameters; or it has ``name*`` or ``name*0``, which some servers read as
            ``name``, and which are forbidden in forms.

    """
    values, at = [], 0
    while (match := _PARAMETER.match(text, at)) is not None:
        at = match.end()
        written, star, _ = match[1].lower().partition("*")
        if written == name:
            if star:
                raise Malformed(f"the form has {name}*, which is not allowed: use {name}")
            values.append(match[2] if match[2] is not None else match[3])
    if text[at:].strip(" \t;"):
        raise Malformed("a header of the form is invalid: is a quote missing?")
    return values


def _written(raw: msgspec.Raw) -> bytes:
    """Return a JSON value in the format of a form: strings without quotes, anything else as JSON."""
    value = msgspec.json.decode(raw)
    return value.encode() if isinstance(value, str) else bytes(raw)
