"""A configuration as plain data, its problems and their messages, and its conversion to typed settings."""

import copy
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.settings.model import NO_DIGEST, Settings

# Problems of a configuration: each a sentence with the file and the line of the problem.

Place = tuple[str | int, ...]  # the path to a value: ("models", "llama-70b", "deployments", 0)


class Complaint(msgspec.Struct, frozen=True):
    """A problem at a place in the configuration, whatever its source."""

    place: Place
    message: str


class Problem(msgspec.Struct, frozen=True):
    """One thing to correct. Never contains a configured value that may be a secret."""

    message: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """``config/gateway.yaml:12: providers.groq: unknown key 'api_kye'; did you mean 'api_key'?``."""
        where = [str(part) for part in (self.file, self.line) if part is not None]
        return ": ".join((":".join(where), self.message)) if where else self.message


class ConfigurationError(Exception):
    """The configuration cannot be used. ``problems`` has all problems, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def written(place: Place) -> str:
    """Return ``place`` as text: ``models.llama-70b.deployments[0]``; invisible characters are escaped."""
    text = ""
    for step in place:
        shown = step if isinstance(step, int) or step.isprintable() else ascii(step)[1:-1]
        text += f"[{shown}]" if isinstance(step, int) else f".{shown}" if text else str(shown)
    return text


def within(place: Place, outer: Place) -> bool:
    """Whether ``place`` is ``outer`` or inside it."""
    return place[: len(outer)] == outer


class Document(msgspec.Struct, frozen=True):
    """The content of a file. ``lines`` count from 1: the lines of keys and of list items."""

    file: str | None = None
    data: dict[str, Any] = {}
    lines: dict[Place, int] = {}
    problems: tuple[Problem, ...] = ()


# Converts pydantic's errors to sentences that say what to write instead. The sentences quote only values that cannot be
# secrets: numbers, and single short words.

_ALIKE = 0.6  # difflib's ratio above which a word is suggested
_REPEATABLE = re.compile(r"[A-Za-z]{1,12}|-?[\d.,_]{1,12} ?[A-Za-z%]{0,3}")  # "soon", "10s": no key looks like this
_KNOWN = "known: "
_LONG_LIST = 8  # commas
_NEARLY = 0.8  # ratio above which a word is a misspelt key of its own section, rather than a key of another section
_SEVERAL = (Annotated, Union, UnionType)  # types that contain other types
_MOST_LONGER = 2  # how many names are suggested that have a key's words and more
_MOST_BEGIN_SO = 5
_MOST_PLACES = 2  # how many places are suggested for a key of other sections; with more places, none is

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
_ENUM = re.compile(
    r"<[\w.]+: ('[^']*')>"
)  # a member of an enumeration in pydantic's words: <ClientRole.VIEWER: 'viewer'>
_FORMS: Mapping[str, str] = {  # by the pattern of a text
    "^https?://[^/]": "must begin with http:// or https://",
    "^[A-Za-z0-9-]+$": "must consist of letters, digits and hyphens",
    "^[A-Za-z0-9_.:-]{1,64}$": "must be 1 to 64 letters, digits, dots, colons, hyphens or underscores",
}
_NO_SECTION = "must be a section of keys and values"
_SENTENCES: Mapping[str, str] = {
    "missing": "is missing",
    "string_type": "must be text; put it in quotes",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
    "dict_type": _NO_SECTION,
    "model_type": _NO_SECTION,
    "model_attributes_type": _NO_SECTION,
}


def explain(error: ErrorDetails) -> Complaint:
    """Convert pydantic's error to a complaint about its place."""
    place: Place = error["loc"]
    kind = error["type"]
    if kind == "extra_forbidden":
        message = f"unknown key; {_suggestion(place)}"
    elif kind == "value_error":
        message = str(error["ctx"]["error"])
    elif kind == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        message = NO_DIGEST if "key_sha256" in place else _FORMS.get(pattern, f"must match {pattern}")
    elif kind in _LIMITS:
        limits = {name: _ENUM.sub(r"\1", _plain(value)) for name, value in error.get("ctx", {}).items()}
        message = _LIMITS[kind].format(**limits) + _instead_of(error.get("input"))
    else:
        said = (
            error["msg"].removeprefix("value ").replace("Input should be", "must be")
        )  # "value is not a valid IPv4 …"
        message = _SENTENCES.get(kind) or said
        given = str(error.get("input"))
        key, colon, _ = given.partition(":")  # "rpm:60" is a text to YAML
        if message == _NO_SECTION and colon and key in known_keys(place):
            message += f"; {spaced(key)}"
        elif message == _NO_SECTION and (field := _field_that_takes(place, given)) is not None:
            message += f"; write `{place[-1]}: {{{field}: {given}}}`"
    return Complaint(place, message)


def _field_that_takes(place: Place, word: str) -> str | None:
    """Return the field at ``place`` that has ``word`` among its allowed values; None: no field has ``word``."""
    annotation: Any = Settings
    for step in place:
        annotation = _inside(annotation, step)
    for name, field in _fields(annotation).items():
        if isinstance(field, type) and issubclass(field, Enum) and word in {each.value for each in field}:
            return name
    return None


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


def _suggestion(place: Place) -> str:
    """Return a hint: where an unknown key belongs, or which key was meant."""
    key = str(place[-1])
    beside = known_keys(place[:-1])
    before, colon, _ = key.partition(":")
    if colon and before in beside:
        return spaced(before)
    elsewhere = [where for where, keys in _sections(place) if _folded(key) in keys]
    near = [where for where in elsewhere if where.startswith(f"{_general(place[:-1])}.")] or elsewhere
    if not _nearly(key, beside) and 0 < len(near) <= _MOST_PLACES:
        return f"it belongs in {' or '.join(near)}{'' if key == _folded(key) else f' as {_folded(key)}'}"
    return nearest(key, beside)


def nearest(word: str, known: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """Return "did you mean ...?" with the nearest of ``known``, or list all; ``spell`` formats a name."""
    names = list(known)
    near = _nearly(word, names) or _alike(word, names, _ALIKE)
    if near:
        quoted = [f"'{spell(name)}'" for name in near]
        return f"did you mean {' or '.join(quoted)}?"
    return f"{_KNOWN}{', '.join(map(spell, names)) or 'none'}"


def _nearly(word: str, names: Iterable[str]) -> Sequence[str]:
    """Return the name in ``names`` that is spelt nearly like ``word``, else one or two names of more words."""
    known = list(names)
    return _alike(word, known, _NEARLY) or _longer(word, known)


def _alike(word: str, names: Iterable[str], at_least: float) -> Sequence[str]:
    """Return the name most like ``word``, in a list that may be empty. Cases, hyphens and underscores are alike."""
    folded = {_folded(name): name for name in reversed(list(names))}
    return [folded[each] for each in difflib.get_close_matches(_folded(word), folded, n=1, cutoff=at_least)]


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


def _longer(word: str, names: Iterable[str]) -> Sequence[str]:
    """Return names that have all words of ``word`` and more, as ``key_sha256`` has of ``key``; none if many have."""
    asked = _words(_folded(word))
    found = [name for name in names if "_" in name and asked <= _words(name)]
    found = [name for name in found if name.endswith(f"_{word}")] or found
    if begin_so := [name for name in found if name.startswith(f"{word}_")]:
        return begin_so if len(begin_so) <= _MOST_BEGIN_SO else []
    return found if len(found) <= _MOST_LONGER else []


def _words(name: str) -> frozenset[str]:
    """Return the words of a key; plurals are as the singular."""
    return frozenset(part.removesuffix("s") for part in name.split("_") if part)


def listed_once(messages: Iterable[str]) -> list[str]:
    """Return ``messages``; a long list of known names is left out if an earlier message has the list."""
    listed: set[str] = set()
    result = []
    for message in messages:
        words, known, names = message.rpartition(f"; {_KNOWN}")
        if known and names.count(",") >= _LONG_LIST:
            result.append(f"{words}; {_KNOWN}the same as above" if names in listed else message)
            listed.add(names)
        else:
            result.append(message)
    return result


def known_keys(place: Place) -> list[str]:
    """Return the keys that the section at ``place`` may have."""
    annotation: Any = Settings
    for step in place:
        annotation = _inside(annotation, step)
    return [] if get_origin(annotation) is dict else list(_fields(annotation))  # a mapping's keys are names


def is_free(place: Place) -> bool:
    """Whether the value at ``place`` may be any JSON, like a parameter of requests: no type says what is meant."""
    annotation: Any = Settings
    for step in place:
        annotation = _inside(annotation, step)
        if annotation is object:
            return True
    return False


def is_number(place: Place) -> bool:
    """Whether the value at ``place`` must be a number, or may be a number and no text."""
    annotation: Any = Settings
    for step in place:
        annotation = _inside(annotation, step)
    kinds = set(_kinds(annotation))
    return not kinds.isdisjoint({int, float}) and str not in kinds


def _kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in _SEVERAL:
        for each in get_args(annotation):
            yield from _kinds(each)
    else:
        yield annotation


def spaced(key: str) -> str:
    """Return what to do about a colon without a space after it; to YAML the colon is part of ``key``, or of a text."""
    return f"YAML needs a space after the colon: write `{key}: …`"


def _sections(place: Place) -> Iterator[tuple[str, Collection[str]]]:
    """Yield the sections of providers, models and clients, with their keys; at ``place`` by its own names."""
    for top in ("providers", "models", "clients"):
        yield from _sections_in(_inside(_fields(Settings)[top], ""), f"{top}.{_own(place, top)}")


def _own(place: Place, top: str) -> str:
    return written(place[1:2]) if len(place) > 2 and place[0] == top else "NAME"  # noqa: PLR2004 - a key inside an entry


def _general(place: Place) -> str:
    """Return ``place`` as text without the indices of list items."""
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
    """Return the type at ``step`` in a value of type ``annotation``; None: there is no such type."""
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


# Validates plain data as typed settings, and continues after errors, so that one run finds all errors.

_ROUNDS = 10  # rounds of removing errors to find others; nesting is not deeper


def validate(data: Mapping[str, Any], complaints: list[Complaint], broken: set[Place]) -> Settings | None:
    """Return typed settings without the invalid parts, which are added to ``complaints`` and ``broken``.

    pydantic stops at the first kind of error inside a value. The error is removed, and the rest validated again.
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
                    continue  # a consequence of an error beside or inside this value
                if not any(within(place, outer) for outer in broken):
                    complaints.append(explain(detail))
                broken.add(place)
                _leave_out(remaining, place)
    return None


# Placeholders for an entry that is invalid as a whole, and for a required value. So references to such entries, and
# other errors beside them, can still be checked.
_ENTRIES: Mapping[str, Any] = {
    "providers": {},
    "models": {"deployments": ["left/out"]},
    "clients": {"key_sha256": "0" * 64},
    "issuers": {"issuer": "https://left.out", "audience": ["left-out"]},
}
_VALUES: Mapping[str | int, Any] = {
    "deployments": ["left/out"],
    "deployment": "left/out",
    "key_sha256": "0" * 64,
    "issuer": "https://left.out",
    "audience": ["left-out"],
    "client_id": "left-out",
    "secret": "whsec_" + "A" * 32,  # a webhook without any would be a second complaint
    "from": ["192.0.2.1/32"],  # reserved for documentation
}


def _leave_out(data: dict[str, Any], place: Place) -> None:
    """Remove the value at ``place`` from ``data``; a required value is replaced by a valid placeholder."""
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
