"""Converts pydantic's errors to sentences that say what to write instead. Values are never repeated."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from gateway.settings.model import NO_DIGEST, Settings
from gateway.settings.problems import Complaint, Place

_ALIKE = 0.6  # difflib's ratio above which two words are thought to be meant as one


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
        message = f"unknown key; {nearest(str(place[-1]), known_keys(place[:-1]))}"
    elif kind == "value_error":
        message = str(error["ctx"]["error"])
    elif kind == "string_pattern_mismatch" and "key_sha256" in place:
        message = NO_DIGEST
    else:
        message = _SENTENCES.get(kind) or error["msg"].replace("Input should be", "must be")
    return Complaint(place, message)


def nearest(word: str, known: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """Return "did you mean ...?" with the nearest of ``known``, or list all; ``spell`` formats a name."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=_ALIKE)
    if near:
        return f"did you mean '{spell(near[0])}'?"
    return f"known: {', '.join(map(spell, names)) or 'none'}"


def known_keys(place: Place) -> list[str]:
    """Return the keys that the section at ``place`` may have."""
    annotation: Any = Settings
    for step in place:
        annotation = _inside(annotation, step)
    return list(_fields(annotation))


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
