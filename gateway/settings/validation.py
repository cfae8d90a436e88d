"""From plain data to typed settings, going on past what is wrong, so that everything wrong is found at once."""

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gateway.settings.explain import explain
from gateway.settings.model import Settings
from gateway.settings.problems import Complaint, Place, within

_ROUNDS = 10  # of leaving out what is wrong to see what else is; nesting is no deeper


def validate(data: Mapping[str, Any], complaints: list[Complaint], broken: set[Place]) -> Settings | None:
    """Return typed settings without the parts that are wrong, which are added to ``complaints`` and ``broken``.

    pydantic stops at the first kind of trouble inside a value; leaving that out and looking again finds the rest.
    """
    remaining = copy.deepcopy(dict(data))
    for place in broken:
        _leave_out(remaining, place)
    for _ in range(_ROUNDS):
        try:
            return Settings(**remaining)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            places: list[Place] = [detail["loc"] for detail in found]
            for detail, place in zip(found, places, strict=True):
                if detail["type"] == "default_factory_not_called" or any(
                    within(p, place) and p != place for p in places
                ):
                    continue  # a consequence of what is wrong beside or inside it
                if not any(within(place, outer) for outer in broken):
                    complaints.append(explain(detail))
                broken.add(place)
                _leave_out(remaining, place)
    return None


# What stands in for an entry that is wrong as a whole, and for a value that must be there: what refers to them by name,
# and what else is wrong beside them, can then still be judged.
_ENTRIES: Mapping[str, Any] = {
    "providers": {},
    "models": {"deployments": ["left/out"]},
    "clients": {"key_sha256": "0" * 64},
}
_VALUES: Mapping[str | int, Any] = {"deployments": ["left/out"], "deployment": "left/out", "key_sha256": "0" * 64}


def _leave_out(data: dict[str, Any], place: Place) -> None:
    """Take what is at ``place`` out of ``data``, or put a valid stand-in where there must be something."""
    container: Any = data
    for depth, step in enumerate(place[:-1], start=1):
        inner = container.get(step) if isinstance(container, dict) else container[step]
        if not isinstance(inner, dict | list):  # pydantic looked into what stands for more, such as a plain deployment
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
        case (*outer, key) if key not in container:  # missing, and nothing can stand in: the section around it goes
            _leave_out(data, tuple(outer))
        case (*_, key):
            del container[key]
