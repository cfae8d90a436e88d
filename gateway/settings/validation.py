"""Validates plain data as typed settings, and continues after errors, so that all are found at once."""

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gateway.settings.explain import explain
from gateway.settings.model import Settings
from gateway.settings.problems import Complaint, Place, within

_ROUNDS = 10  # of removing errors to find others; nesting is not deeper


def validate(data: Mapping[str, Any], complaints: list[Complaint], broken: set[Place]) -> Settings | None:
    """Return typed settings without the invalid parts, which are added to ``complaints`` and ``broken``.

    pydantic stops at the first kind of error inside a value; removing it and validating again finds the rest.
    """
    remaining = copy.deepcopy(dict(data))
    for place in broken:
        _leave_out(remaining, place)
    for _ in range(_ROUNDS):
        try:
            return Settings(**remaining)
        except ValidationError as error:
            found = error.errors(include_url=False)
            places: list[Place] = [detail["loc"] for detail in found]
            for detail, place in zip(found, places, strict=True):
                if detail["type"] == "default_factory_not_called" or any(
                    within(p, place) and p != place for p in places
                ):
                    continue  # a consequence of an error besides or inside it
                if not any(within(place, outer) for outer in broken):
                    complaints.append(explain(detail))
                broken.add(place)
                _leave_out(remaining, place)
    return None


# Placeholders for an entry that is invalid as a whole, and for a required value: so references to them, and other
# errors besides them, can still be checked.
_ENTRIES: Mapping[str, Any] = {
    "providers": {},
    "models": {"deployments": ["left/out"]},
    "clients": {"key_sha256": "0" * 64},
}
_VALUES: Mapping[str | int, Any] = {
    "deployments": ["left/out"],
    "deployment": "left/out",
    "key_sha256": "0" * 64,
    "from": ["192.0.2.1/32"],  # nobody's: it is for documentation
}


def _leave_out(data: dict[str, Any], place: Place) -> None:
    """Remove the value at ``place`` from ``data``, or replace it by a valid placeholder if it is required."""
    container: Any = data
    for depth, step in enumerate(place[:-1], start=1):
        inner = container.get(step) if isinstance(container, dict) else container[step]
        if not isinstance(inner, dict | list):  # pydantic looked inside a short form, such as a deployment's name
            _leave_out(data, place[:depth])
            return
        container = inner
    match place:
        case ():
            return
        case (str() as section, name) if section in _ENTRIES:
            container[name] = copy.deepcopy(_ENTRIES[section])
        case (*_, "deployments", int() as index):
            container[index] = "left/out"
        case (*outer, int()):
            _leave_out(data, tuple(outer))
        case (*_, key) if key in _VALUES:
            container[key] = copy.deepcopy(_VALUES[key])
        case (*outer, key) if key not in container:  # required, without a placeholder: remove the section around it
            _leave_out(data, tuple(outer))
        case (*_, key):
            del container[key]
