"""One JSON object of a request whose fields are taken one by one, so that the rest is known to be lost."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.wording import Loss, Malformed, decoded

Object = dict[str, msgspec.Raw]

_NULL = msgspec.Raw(b"null")


class Losses:
    """The losses of one request, in the order of its fields. The same hint is listed once."""

    def __init__(self) -> None:
        self._found: list[Loss] = []

    def add(self, field: str, reason: str, *, hint: bool = False) -> None:
        """Add the loss of ``field``, a path in the client's request."""
        if not (hint and any(loss.reason == reason for loss in self._found)):
            self._found.append(Loss(field, reason, hint))

    def all(self) -> tuple[Loss, ...]:
        """Return all losses."""
        return tuple(self._found)


class Fields:
    """The fields of one object; null counts as missing."""

    def __init__(self, values: Mapping[str, msgspec.Raw], path: str = "") -> None:
        self.path = path
        self._left = {name: raw for name, raw in values.items() if raw != _NULL}

    def named(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def raw(self, name: str) -> msgspec.Raw | None:
        """Take a field as raw JSON, None if it is missing."""
        return self._left.pop(name, None)

    def need(self, name: str) -> msgspec.Raw:
        """Take a field as raw JSON.

        Raises:
            Malformed: it is missing.

        """
        raw = self.raw(name)
        if raw is None:
            raise Malformed(f"Missing required parameter: '{self.named(name)}'.", self.named(name))
        return raw

    def take(self, name: str, type_: Any) -> Any:
        """Take a field as ``type_``, None if it is missing.

        Raises:
            Malformed: it is of another type.

        """
        return decoded(self.raw(name), type_, self.named(name))

    def inner(self, name: str) -> "Fields":
        """Take a field that is an object; an empty object if it is missing.

        Raises:
            Malformed: it is not an object.

        """
        return Fields(self.take(name, Object) or {}, self.named(name))

    def several(self, *names: str) -> Object:
        """Take the given fields as raw JSON, those that exist."""
        return {name: self._left.pop(name) for name in names if name in self._left}

    def holds(self, name: str, value: bytes) -> bool:
        """Whether a field has this JSON value; does not take it."""
        return self._left.get(name) == msgspec.Raw(value)

    def put(self, name: str, raw: msgspec.Raw) -> None:
        """Replace the value of a field."""
        self._left[name] = raw

    def pass_over(self, *names: str) -> None:
        """Take fields that have no effect on the model."""
        for name in names:
            self._left.pop(name, None)

    def lose(self, name: str, losses: Losses, reason: str, *plain: bytes, hint: bool = False) -> None:
        """Note a field as lost, unless it is missing or has one of the ``plain`` JSON values, which are defaults."""
        raw = self.raw(name)
        if raw is not None and not any(raw == msgspec.Raw(value) for value in plain):
            losses.add(self.named(name), reason, hint=hint)

    def lose_rest(self, losses: Losses, reason: str) -> None:
        """Note all fields that were not taken as lost; cache markers are hints."""
        for name in self._left:
            losses.add(self.named(name), reason, hint=name == "cache_control")
        self._left.clear()


def is_string(raw: msgspec.Raw) -> bool:
    """Whether a JSON value is a string, without decoding it."""
    return memoryview(raw)[:1].tobytes() == b'"'


def objects_of(raw: msgspec.Raw | None, path: str) -> list[Fields]:
    """Return a JSON array of objects, each with its path; empty if it is missing or null.

    Raises:
        Malformed: it is not an array of objects.

    """
    values = decoded(raw, list[Object], path) or []
    return [Fields(value, f"{path}[{number}]") for number, value in enumerate(values)]
