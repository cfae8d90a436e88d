"""LiteLLM's file as the import reads it: field by field, by a table of counterparts, with remarks on the rest."""

import fnmatch
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain, count
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from gateway.settings import ConfigurationError, Place, Problem, read_document, written
from providers import redact


class Notes:
    """Collects remarks. A remark never repeats a configured value: the value may be a secret."""

    def __init__(self, file: str | None, lines: Mapping[Place, int]) -> None:
        self._file = file
        self._lines = lines
        self._places: dict[tuple[str, str], list[Place]] = {}  # by the last part of the place, and the remark
        self.problems: list[Problem] = []  # errors in the file itself

    def add(self, place: Place, remark: str) -> None:
        """Remark on ``place``; the same remark on the same key elsewhere is merged with this one."""
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
        first, *others = sorted(places, key=lambda place: self._line(place) or 0)
        also = ""
        if others:
            lines = sorted({line for place in others if (line := self._line(place)) is not None})
            also = f" (also in line{'' if len(lines) == 1 else 's'} {', '.join(map(str, lines))})" if lines else ""
        message = f"{written(first)}: {remark}{also}" if first else remark + also
        return Problem(message, self._file, self._line(first))

    def _line(self, place: Place) -> int | None:
        return next((self._lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in self._lines), None)


# Converts values for Holeshot's file: keeps references to variables, and turns secrets into references. LiteLLM refers
# to a variable as ``os.environ/NAME``, Holeshot's file as ``${NAME}``. A secret in clear text is never copied: the
# secret becomes a variable, and the remark has only the variable's name.

ENVIRON = "os.environ/"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_WORDS = re.compile(
    r"(?:^|[_-])(?:key|apikey|token|secret|password|passwd|credentials?|authorization|auth|cookie)(?:$|[_-])",
    re.IGNORECASE,
)
_NO_SECRETS = frozenset({"prompt_cache_key", "token_endpoint"})
_MOVED = (
    "a secret in clear text, not copied: put it into the variable {name}, and replace it where you can:"
    " it has been in a file"
)


class Variables:
    """Converts values to those of Holeshot's file, and records the variables that the file needs."""

    def __init__(self, data: Mapping[str, Any], environ: Mapping[str, str], notes: Notes) -> None:
        own = data.get("environment_variables")
        self._own = {str(name): value for name, value in own.items()} if isinstance(own, dict) else {}
        self._environ = environ
        self._notes = notes
        self._taken = set(_mentioned(data)) | set(self._own)
        self._moved: dict[str, str] = {}  # secret in clear text → its new variable
        self.used: list[str] = []  # in the order of their first use

    def plain(self, value: Any, place: Place) -> Any:
        """Return the converted value of a field that is no secret by name; a secret in the value becomes a variable."""
        if isinstance(value, dict):
            return {str(key): self.named(str(key), item, (*place, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [self.plain(item, (*place, index)) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        if value.startswith(ENVIRON):
            return self._use(value.removeprefix(ENVIRON))
        if _holds_password(value) or redact(value) != value:  # a value may look like a key anywhere
            return self.secret(value, place, _variable(str(place[-1])))
        return value.replace("${", "$${")

    def named(self, name: str, value: Any, place: Place) -> Any:
        """Return the value of a field called ``name``, converted as a secret if the name is a secret's."""
        if isinstance(value, str) and is_secret(name):
            return self.secret(value, place, _variable(name))
        return self.plain(value, place)

    def secret(self, value: Any, place: Place, name: str) -> str:
        """Return a reference to a secret; a secret in clear text becomes the variable ``name``, or a similar name."""
        if isinstance(value, str) and value.startswith(ENVIRON):
            return self._use(value.removeprefix(ENVIRON))
        text = str(value)
        if text not in self._moved:
            self._moved[text] = unused(name, self._taken, "_")
            self._taken.add(self._moved[text])
        self._notes.add(place, _MOVED.format(name=self._moved[text]))
        return self._use(self._moved[text])

    def value_of(self, value: Any) -> str | None:
        """Return the value, or the value of the variable to which it refers; None if the variable is not set."""
        if not isinstance(value, str) or not value.startswith(ENVIRON):
            return None if value is None else str(value)
        name = value.removeprefix(ENVIRON)
        found = self._environ.get(name) or self._own.get(name)
        return str(found) if found else None

    def default(self, *names: str) -> str | None:
        """Return a reference to the first of ``names`` that LiteLLM's file sets; None if the file sets none of them."""
        name = next((name for name in names if self._own.get(name)), None)
        return None if name is None else self._use(name)

    def remark_on_own(self) -> None:
        """Remark on the ``environment_variables``: these must be set elsewhere from now on."""
        for name in self._own:
            if name in self.used:
                self._notes.add(
                    ("environment_variables", name),
                    "a configuration cannot set variables: set it in the gateway's environment",
                )
            else:
                self._notes.add(("environment_variables", name), "not used here: left out")

    def _use(self, name: str) -> str:
        if name not in self.used:
            self.used.append(name)
        return f"${{{name}}}"


def unused(name: str, taken: Container[str], between: str = "-") -> str:
    """Return ``name``, with a number if the name is taken."""
    numbered = (f"{name}{between}{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


def is_secret(name: str) -> bool:
    """Whether a field called ``name`` contains a secret."""
    return name not in _NO_SECRETS and _SECRET_WORDS.search(name) is not None


def is_reference(value: object) -> bool:
    """Whether ``value``, as in Holeshot's file, depends on variables."""
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def _variable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "SECRET"


def _holds_password(text: str) -> bool:
    """Whether ``text`` is a URL with a password, or with a key in its query."""
    if "://" not in text:
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.password) or any(is_secret(pair.partition("=")[0]) for pair in parts.query.split("&"))


def _mentioned(value: Any) -> list[str]:
    """Return the names of all variables to which ``value`` refers."""
    if isinstance(value, dict):
        return [name for item in value.values() for name in _mentioned(item)]
    if isinstance(value, list):
        return [name for item in value for name in _mentioned(item)]
    return [value.removeprefix(ENVIRON)] if isinstance(value, str) and value.startswith(ENVIRON) else []


# The table of LiteLLM's fields, ``fields.toml``, and the walk through a section of the file by it.

_Reader = TypeVar("_Reader")
Function = Callable[[_Reader, "LiteLlmSection", str, str], None]  # takes the field, and may have a remark to make
ELSEWHERE = "left out: another field says otherwise"
_MTOK_DIGITS = 6


class FieldRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of a field: the field ``to`` of Holeshot's, or what the function ``by`` makes of it, or a remark."""

    to: str = ""
    is_: Any = msgspec.field(name="is", default=None)  # what ``true`` becomes
    times: float = 0.0
    by: str = ""
    remark: str = ""
    off: bool = False  # whether false asks for something, too


class Vendors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """LiteLLM's prefixes of models, besides the catalog's prefixes."""

    own_servers: frozenset[str]
    litellm_only: frozenset[str]
    aliases: dict[str, str]
    bare: dict[str, str]
    prefix_apis: dict[str, tuple[str, ...]]
    infixes: dict[str, dict[str, tuple[str, ...]]]


class LiteLlmTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the import knows of LiteLLM's words."""

    texts: dict[str, str]
    also: dict[str, str]
    fields: dict[str, dict[str, str | FieldRow]]
    requests: tuple[str, ...]
    apis: dict[str, tuple[str, ...]]
    strategies: dict[str, dict[str, Any]]
    vendors: Vendors
    comments: dict[str, str]


@cache
def table() -> LiteLlmTable:
    """Return the table."""
    text = files("gateway.cli.import_litellm").joinpath("fields.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=LiteLlmTable)


@cache
def rows(section: str) -> Mapping[str, FieldRow]:
    """Return the rows of a section by field, in the order of reading: rows with stars last, the longest first."""
    known = table()
    found = known.fields[section] | known.fields.get(known.also.get(section, ""), {})
    if section == "litellm_params":
        found |= dict.fromkeys(known.requests, FieldRow(by="default"))
    ordered = sorted(found, key=lambda field: ("*" in field, -len(field) * ("*" in field)))
    return {field: _row(found[field], known.texts) for field in ordered}


def _row(said: str | FieldRow, texts: Mapping[str, str]) -> FieldRow:
    row = said if isinstance(said, FieldRow) else FieldRow(remark=said)
    return msgspec.structs.replace(row, remark=texts.get(row.remark, row.remark))


class LiteLlmSection:
    """A section of LiteLLM's file. Its fields are taken one after the other."""

    def __init__(self, value: Any, place: Place, notes: Notes, variables: "Variables") -> None:
        self._values = {str(key): item for key, item in contents(value, place, notes).items()}
        self._place = place
        self.notes = notes
        self.variables = variables

    @property
    def fields(self) -> list[str]:
        """The fields that were not taken yet."""
        return list(self._values)

    def at(self, *field: str | int) -> Place:
        """Return the place of a field."""
        return (*self._place, *field)

    def remark(self, remark: str, *field: str | int) -> None:
        """Remark on a field, or on the whole section."""
        self.notes.add(self.at(*field), remark)

    def get(self, field: str) -> Any:
        """Return the value of a field, unconverted; the field stays."""
        return self._values.get(field)

    def take(self, field: str) -> Any:
        """Remove a field and return its value, unconverted; None if there is no such field."""
        return self._values.pop(field, None)

    def plain(self, field: str) -> Any:
        """Remove a field and return its value, converted for Holeshot's file."""
        return self.variables.plain(self.take(field), self.at(field))

    def named(self, field: str) -> Any:
        """Remove a field and return its value, converted as a secret if the field's name is a secret's."""
        return self.variables.named(field, self.take(field), self.at(field))

    def secret(self, field: str, name: str) -> str:
        """Remove a secret and return a reference; clear text becomes the variable ``name``, or a similar one."""
        return self.variables.secret(self.take(field), self.at(field), name)

    def number(self, field: str) -> float | None:
        """Remove a field and return its number; None, with a remark, if the value is no number."""
        if (value := self.take(field)) is None:
            return None
        try:
            number = inf if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = inf
        if not isfinite(number):
            self.remark("must be a number here, not a variable: left out", field)
            return None
        return number

    def within(self, field: str) -> "LiteLlmSection":
        """Remove and return a section of this one; an empty section, with a remark, if the value is no section."""
        return LiteLlmSection(self._values.pop(field, None), self.at(field), self.notes, self.variables)

    def items(self, field: str) -> list[Any]:
        """Remove and return a list; an empty list, with a remark, if the value is no list."""
        return items(self.take(field), self.at(field), self.notes)


def walk(
    name: str,
    section: LiteLlmSection,
    ours: dict[str, Any],
    reader: _Reader,
    functions: Mapping[str, Function[_Reader]],
) -> None:
    """Read the fields of ``section`` as the table ``name`` says: into ``ours``, by ``functions``, or with a remark."""
    for pattern, row in rows(name).items():
        for field in fnmatch.filter(section.fields, pattern):
            if field not in section.fields:  # a function took it with another field
                continue
            if row.by:
                functions[row.by](reader, section, field, row.remark)
            elif not row.to:
                remark_if_set(section, field, row.remark, off=row.off)
            elif (value := _converted(section, field, row)) is not None:
                if not put(ours, row.to, value):
                    section.remark(ELSEWHERE, field)
                elif row.remark:
                    section.remark(row.remark, field)


def put(ours: dict[str, Any], path: str, value: Any) -> bool:
    """Set the field ``path`` unless it is set; return whether the field has this value now."""
    *sections, field = path.split(".")
    for each in sections:
        ours = ours.setdefault(each, {})
    return bool(ours.setdefault(field, value) == value)


def remark_if_set(section: LiteLlmSection, field: str, remark: str, *, off: bool = False) -> None:
    """Remove a field, and remark on it unless its value sets nothing; with ``off``, false sets something."""
    value = section.take(field)
    if is_set(value) or (off and value is False):
        section.remark(remark, field)


def _converted(section: LiteLlmSection, field: str, row: FieldRow) -> Any:
    if row.times:
        number = section.number(field)
        return None if number is None else round(number * row.times, _MTOK_DIGITS)
    if row.is_ is None:
        return section.plain(field)
    if section.get(field) is True:
        section.take(field)
        return row.is_
    remark_if_set(section, field, "is neither true nor false here: left out")
    return None


def contents(value: Any, place: Place, notes: Notes) -> dict[str, Any]:
    """Return ``value`` if it is a section; else an empty section, with a remark."""
    if value is not None and not isinstance(value, dict):
        notes.no_section(place, value)
    return value if isinstance(value, dict) else {}


def items(value: Any, place: Place, notes: Notes) -> list[Any]:
    """Return ``value`` if it is a list; else an empty list, with a remark."""
    if value is not None and not isinstance(value, list):
        notes.no_section(place, value)
    return value if isinstance(value, list) else []


def is_set(value: object) -> bool:
    """Whether ``value`` sets anything: null, false and empty values do not."""
    return value is not None and value is not False and value not in ("", [], {})


_TEXTS = frozenset(
    {"model_name", "model", "base_model", "api_version", "organization", "team_id", "user_id", "key_alias"}
)


# Reads LiteLLM's file, the files it includes and the credentials it names, with the lines of its keys.


def read_source(path: Path, environ: Mapping[str, str]) -> LiteLlmSection:
    """Read the file at ``path``.

    Raises:
        ConfigurationError: the file cannot be read, is not YAML, or not a LiteLLM configuration.

    """
    document = read_document(path, _TEXTS)
    if document.problems and not document.data:
        raise ConfigurationError(document.problems)
    sections = sorted(name for name, row in rows("file").items() if row.by)  # each of LiteLLM's files has one of these
    if document.data and document.data.keys().isdisjoint(sections):
        words = f"is not a LiteLLM configuration: it has none of {', '.join(sections)}"
        raise ConfigurationError([*document.problems, Problem(words, str(path))])
    notes = Notes(str(path), document.lines)
    notes.problems.extend(document.problems)
    data = dict(document.data)
    for index, name in enumerate(items(data.pop("include", None), ("include",), notes)):
        _include(data, path.parent / str(name), ("include", index), notes)
    _insert_credentials(data, notes)
    return LiteLlmSection(data, (), notes, Variables(data, environ, notes))


def _include(data: dict[str, Any], path: Path, place: Place, notes: Notes) -> None:
    """Merge the file at ``path`` into ``data`` as LiteLLM does: append lists, merge sections, replace the rest."""
    if path.exists() and not path.is_file():  # reading a device may never end
        notes.add(place, "is not a file: its settings are missing here")
        return
    document = read_document(path, _TEXTS)
    notes.problems.extend(document.problems)
    if document.problems and not document.data:
        notes.add(place, "could not be included: its settings are missing here")
    for key, value in document.data.items():
        old = data.get(key)
        if isinstance(value, list) and isinstance(old, list):
            data[key] = [*old, *value]
        elif isinstance(value, dict) and isinstance(old, dict):
            data[key] = {**old, **value}
        else:
            data[key] = value


def _insert_credentials(data: dict[str, Any], notes: Notes) -> None:
    """Replace every ``litellm_credential_name`` by that credential's values."""
    named: dict[str, dict[str, Any]] = {}
    places: dict[str, Place] = {}  # places of credentials that no entry has used
    for index, item in enumerate(items(data.get("credential_list"), ("credential_list",), notes)):
        place: Place = ("credential_list", index)
        credential = contents(item, place, notes)
        if isinstance(name := credential.get("credential_name"), str):
            named[name] = contents(credential.get("credential_values"), (*place, "credential_values"), notes)
            places[name] = place
    entries = items(data.get("model_list"), ("model_list",), notes)
    for index, entry in enumerate(entries):
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        if not isinstance(params, dict) or not (name := str(params.get("litellm_credential_name") or "")):
            continue
        own = {field: value for field, value in params.items() if field != "litellm_credential_name"}
        entries[index] = {**entry, "litellm_params": {**named.get(name, {}), **own}}
        places.pop(name, None)
        if name not in named:
            notes.add(
                ("model_list", index, "litellm_params", "litellm_credential_name"),
                "names a credential that is not in credential_list: give the provider its api_key",
            )
    data["model_list"] = entries
    for place in places.values():
        notes.add(place, "no entry uses this credential: left out")
