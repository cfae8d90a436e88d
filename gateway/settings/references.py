"""Resolves references, which keep secrets out of the file: ``${NAME}``, ``os.environ/NAME``, ``file:/path``.

``${NAME}`` and ``${NAME:-default}`` may be anywhere in a string, the other two are whole strings; ``$${`` is a literal
``${``. A bare ``$NAME`` is refused, as it would be taken as it stands. An empty variable counts as not set, as in the
shell's ``:-``. Resolved values are not resolved again.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.settings.problems import Complaint, Place

_EXPRESSION = re.compile(r"\$\$(?=\{)|\$\{([^{}]*)\}|\$\{")
_NAMED = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_BARE = re.compile(
    r"(?:.*\s)?\$(?P<name>[A-Z_][A-Z0-9_]*)", re.DOTALL
)  # the whole value, or its last word: "Bearer $KEY"
_FREE = frozenset({"defaults", "extra_body", "system_prefix"})  # requests' own text, which may have a dollar sign
_ENVIRON = "os.environ/"
_FILE = ("file:/", "file:./", "file:../")


def resolve(data: Any, environ: Mapping[str, str], folder: Path) -> tuple[Any, list[Complaint]]:
    """Return ``data`` with its references replaced, and a complaint for each that cannot be resolved.

    Relative ``file:`` references start at ``folder``. An unresolved reference becomes an empty string.
    """
    complaints: list[Complaint] = []

    def walk(value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return {key: walk(entry, (*place, key)) for key, entry in value.items()}
        if isinstance(value, list):
            return [walk(entry, (*place, index)) for index, entry in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            return _resolve_text(value, environ, folder, may_be_bare=not _FREE.isdisjoint(place))
        except _UnresolvedError as error:
            complaints.append(Complaint(place, f"{error}; {_way_out(place)}" if error.missing else str(error)))
            return ""

    return walk(data, ()), complaints


def is_literal(text: str) -> bool:
    """Whether ``text`` has no reference."""
    return not text.startswith((_ENVIRON, *_FILE)) and not _EXPRESSION.search(text)


class _UnresolvedError(Exception):
    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


def _resolve_text(text: str, environ: Mapping[str, str], folder: Path, *, may_be_bare: bool) -> str:
    if not may_be_bare and (bare := _BARE.fullmatch(text)):
        raise _UnresolvedError(f"${bare['name']} is not a reference: write ${{{bare['name']}}}", missing=False)
    if text.startswith(_ENVIRON):
        return _variable(text.removeprefix(_ENVIRON), environ)
    if text.startswith(_FILE):
        return _content(folder / text.removeprefix("file:"))

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        named = _NAMED.fullmatch(match[1] or "")
        if named is None:
            raise _UnresolvedError(
                "write a reference as ${NAME} or ${NAME:-default}, and a literal ${ as $${", missing=False
            )
        if named["default"] is not None:
            return environ.get(named["name"]) or named["default"]
        return _variable(named["name"], environ)

    return _EXPRESSION.sub(replace, text)


def _variable(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name)
    if value:
        return value
    raise _UnresolvedError(f"{name} is {'not set' if value is None else 'empty'}", missing=True)


def _content(path: Path) -> str:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise _UnresolvedError(f"{path} cannot be read ({error.strerror})", missing=False) from None
    except UnicodeDecodeError:
        raise _UnresolvedError(f"{path} is not UTF-8 text", missing=False) from None
    if not value:
        raise _UnresolvedError(f"{path} is empty", missing=False)
    return value


def _way_out(place: Place) -> str:
    match place:
        case ("providers", str(name), *_):
            return f"set it or remove provider '{name}'"
        case ("clients", str(name), *_):
            return f"set it or remove client '{name}'"
        case _:
            return "set it, or write a default: ${NAME:-default}"
