"""The remarks of an import: what is left to do, with its place in the original file."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.settings.problems import Place, Problem, written


class Notes:
    """Collects remarks. A remark never repeats a configured value, which may be a secret."""

    def __init__(self, file: str | None, lines: Mapping[Place, int]) -> None:
        self._file = file
        self._lines = lines
        self._places: dict[tuple[str, str], list[Place]] = {}  # by the last part of the place, and the remark
        self.problems: list[Problem] = []  # errors in the file itself

    def add(self, place: Place, remark: str) -> None:
        """Remark on ``place``; the same remark on the same key elsewhere is merged with it."""
        word = str(place[-1]) if place else ""
        self._places.setdefault((word, remark), []).append(place)

    def no_section(self, place: Place, value: object) -> None:
        """Remark that a value is not the section, or list, that is expected."""
        kind = "list" if isinstance(value, list) else "section" if isinstance(value, dict) else "single value"
        self.add(place, f"is a {kind}, which has no meaning here: left out")

    def listed(self) -> list[Problem]:
        """Return the remarks in the order of the file, each with its first place."""
        found = [self._problem(places, remark) for (_, remark), places in self._places.items()]
        return sorted([*self.problems, *found], key=lambda problem: problem.line or 0)

    def _problem(self, places: Sequence[Place], remark: str) -> Problem:
        first, *others = places
        also = ""
        if others:
            lines = sorted({line for place in others if (line := self._line(place)) is not None})
            also = f" (also in line{'' if len(lines) == 1 else 's'} {', '.join(map(str, lines))})" if lines else ""
        message = f"{written(first)}: {remark}{also}" if first else remark + also
        return Problem(message, self._file, self._line(first))

    def _line(self, place: Place) -> int | None:
        return next((self._lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in self._lines), None)


def section(value: Any, place: Place, notes: Notes) -> dict[str, Any]:
    """Return ``value`` if it is a section, else an empty one, with a remark."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        notes.no_section(place, value)
        return {}
    return value


def items(value: Any, place: Place, notes: Notes) -> list[Any]:
    """Return ``value`` if it is a list, else an empty one, with a remark."""
    if value is None:
        return []
    if not isinstance(value, list):
        notes.no_section(place, value)
        return []
    return value


def is_said(value: object) -> bool:
    """Whether ``value`` sets anything: null, false and empty values do not."""
    return value is not None and value is not False and value not in ("", [], {})
