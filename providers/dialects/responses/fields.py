"""One JSON object of a request, taken apart field by field, so that what nobody took can be told."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.wording import Loss, Malformed, decoded

Object = dict[str, msgspec.Raw]

_NULL = msgspec.Raw(b"null")


class Losses:
    """What is lost of one request, in the order it was met. A hint is told once, however often it is met."""

    def __init__(self) -> None:
        self._found: list[Loss] = []

    def add(self, field: str, reason: str, *, hint: bool = False) -> None:
        """Add the loss of ``field``, a path as the client wrote it."""
        if not (hint and any(loss.reason == reason for loss in self._found)):
            self._found.append(Loss(field, reason, hint))

    def all(self) -> tuple[Loss, ...]:
        """Return them."""
        return tuple(self._found)


class Fields:
    """The fields of one object; a null is a field that is not there."""

    def __init__(self, values: Mapping[str, msgspec.Raw], path: str = "") -> None:
        self.path = path
        self._left = {name: raw for name, raw in values.items() if raw != _NULL}

    def named(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def raw(self, name: str) -> msgspec.Raw | None:
        """Take a field as it is, None where it is missing."""
        return self._left.pop(name, None)

    def need(self, name: str) -> msgspec.Raw:
        """Take a field as it is.

        Raises:
            Malformed: it is missing.

        """
        raw = self.raw(name)
        if raw is None:
            raise Malformed(f"Missing required parameter: '{self.named(name)}'.", self.named(name))
        return raw

    def take(self, name: str, type_: Any) -> Any:
        """Take a field as ``type_``, None where it is missing.

        Raises:
            Malformed: it is of another type.

        """
        return decoded(self.raw(name), type_, self.named(name))

    def inner(self, name: str) -> "Fields":
        """Take a field that is an object, an empty one where it is missing.

        Raises:
            Malformed: it is none.

        """
        return Fields(self.take(name, Object) or {}, self.named(name))

    def several(self, *names: str) -> Object:
        """Take those of the fields that are there, as they are."""
        return {name: self._left.pop(name) for name in names if name in self._left}

    def holds(self, name: str, value: bytes) -> bool:
        """Whether a field has this JSON value; it is not taken."""
        return self._left.get(name) == msgspec.Raw(value)

    def put(self, name: str, raw: msgspec.Raw) -> None:
        """Set a field to what is said in its place."""
        self._left[name] = raw

    def pass_over(self, *names: str) -> None:
        """Take fields that say nothing to the model."""
        for name in names:
            self._left.pop(name, None)

    def lose(self, name: str, losses: Losses, reason: str, *plain: bytes, hint: bool = False) -> None:
        """Take a field as lost, unless it is missing or one of the ``plain`` JSON values, which ask for nothing."""
        raw = self.raw(name)
        if raw is not None and not any(raw == msgspec.Raw(value) for value in plain):
            losses.add(self.named(name), reason, hint=hint)

    def lose_rest(self, losses: Losses, reason: str) -> None:
        """Take all that is left as lost; markers for prompt caches change no answer."""
        for name in self._left:
            losses.add(self.named(name), reason, hint=name == "cache_control")
        self._left.clear()


def is_string(raw: msgspec.Raw) -> bool:
    """Whether a JSON value is a string, told without decoding it."""
    return memoryview(raw)[:1].tobytes() == b'"'


def objects_of(raw: msgspec.Raw | None, path: str) -> list[Fields]:
    """Return a JSON array of objects, each with its own path; empty where it is missing or null.

    Raises:
        Malformed: it is no array of objects.

    """
    values = decoded(raw, list[Object], path) or []
    return [Fields(value, f"{path}[{number}]") for number, value in enumerate(values)]
