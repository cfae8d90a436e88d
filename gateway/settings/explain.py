"""Converts pydantic's errors to sentences that say what to write instead.

Of values only those are repeated that cannot be secrets: numbers, and single short words.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from gateway.settings.model import NO_DIGEST, Settings
from gateway.settings.problems import Complaint, Place, written

_ALIKE = 0.6  # difflib's ratio above which two words are thought to be meant as one
_REPEATABLE = re.compile(r"[A-Za-z]{1,12}|-?[\d.,_]{1,12} ?[A-Za-z%]{0,3}")  # "soon", "10s": no key looks like this
_KNOWN = "known: "
_LONG_LIST = 8  # commas
_NEARLY = 0.8  # above which a word is a misspelt key beside it, rather than a key of another section
_MOST_PLACES = 2  # of a key that another section has: more say nothing

# By pydantic's type of error; the value follows.
_LIMITS: Mapping[str, str] = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
}
_SENTENCES: Mapping[str, str] = {
    "missing": "is missing",
    "string_type": "must be text; put it in quotes",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
    "dict_type": "must be a section of keys and values",
    "model_type": "must be a section of keys and values",
    "model_attributes_type": "must be a section of keys and values",
}


def explain(error: ErrorDetails) -> Complaint:
    """Convert pydantic's error to a complaint about its place."""
    place: Place = error["loc"]
    kind = error["type"]
    if kind == "extra_forbidden":
        message = f"unknown key; {_meant(place)}"
    elif kind == "value_error":
        message = str(error["ctx"]["error"])
    elif kind == "string_pattern_mismatch" and "key_sha256" in place:
        message = NO_DIGEST
    elif kind in _LIMITS:
        limits = {name: _plain(value) for name, value in error.get("ctx", {}).items()}
        message = _LIMITS[kind].format(**limits) + _instead_of(error.get("input"))
    else:
        message = _SENTENCES.get(kind) or error["msg"].replace("Input should be", "must be")
    return Complaint(place, message)


def _instead_of(value: object) -> str:
    """Return ", not 99999" for a value that cannot be a secret."""
    if isinstance(value, bool):
        return f", not {str(value).lower()}"
    if isinstance(value, int | float):
        return f", not {_plain(value)}"
    return f", not {value!r}" if isinstance(value, str) and _REPEATABLE.fullmatch(value) else ""


def _plain(value: object) -> str:
    """Return a limit or a number as text: 0.0 as "0"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _meant(place: Place) -> str:
    """Return where an unknown key belongs, or which one was meant."""
    key = str(place[-1])
    beside = known_keys(place[:-1])
    elsewhere = [where for where, keys in _sections(place) if key in keys]
    near = [where for where in elsewhere if where.startswith(f"{_general(place[:-1])}.")] or elsewhere
    if not difflib.get_close_matches(key, beside, n=1, cutoff=_NEARLY) and 0 < len(near) <= _MOST_PLACES:
        return f"it belongs in {' or '.join(near)}"
    return nearest(key, beside)


def nearest(word: str, known: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """Return "did you mean ...?" with the nearest of ``known``, or list all; ``spell`` formats a name."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=_ALIKE)
    if near:
        return f"did you mean '{spell(near[0])}'?"
    return f"{_KNOWN}{', '.join(map(spell, names)) or 'none'}"


def listed_once(messages: Iterable[str]) -> list[str]:
    """Return ``messages`` without long lists of what is known that an earlier one has."""
    said: set[str] = set()
    result = []
    for message in messages:
        words, known, names = message.rpartition(f"; {_KNOWN}")
        if known and names.count(",") >= _LONG_LIST:
            result.append(f"{words}; {_KNOWN}the same as above" if names in said else message)
            said.add(names)
        else:
            result.append(message)
    return result


def known_keys(place: Place) -> list[str]:
    """Return the keys that the section at ``place`` may have."""
    annotation: Any = Settings
    for step in place:
        annotation = _inside(annotation, step)
    return list(_fields(annotation))


def _sections(place: Place) -> Iterator[tuple[str, Collection[str]]]:
    """Yield the sections of providers, models and clients, with their keys; those of ``place`` by its own names."""
    for top in ("providers", "models", "clients"):
        yield from _sections_in(_inside(_fields(Settings)[top], ""), f"{top}.{_own(place, top)}")


def _own(place: Place, top: str) -> str:
    return written(place[1:2]) if len(place) > 2 and place[0] == top else "NAME"  # noqa: PLR2004 - a key inside an entry


def _general(place: Place) -> str:
    """Return ``place`` as sections are named: items of lists have no number."""
    return re.sub(r"\[\d+\]", "[]", written(place))


def _sections_in(annotation: Any, where: str) -> Iterator[tuple[str, Collection[str]]]:
    fields = _fields(annotation)
    if fields:
        yield where, fields
    for name, inner in fields.items():
        if get_origin(inner) is tuple:
            yield from _sections_in(_inside(inner, 0), f"{where}.{name}[]")
        else:
            yield from _sections_in(inner, f"{where}.{name}")


def _inside(annotation: Any, step: str | int) -> Any:
    """Return the type at ``step`` in a value of type ``annotation``; None if there is none."""
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0]
    return _fields(annotation).get(str(step))


def _fields(annotation: Any) -> Mapping[str, Any]:
    """Return the fields of a section, which may be optional, by their names in the file."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return {field.alias or name: field.annotation for name, field in part.model_fields.items()}
    return {}
