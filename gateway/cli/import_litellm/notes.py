"""The remarks of an import: the work that is left, each with its place in the original file."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.settings import ConfigurationError, Place, Problem, read_document, written
from providers import redact


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


def is_set(value: object) -> bool:
    """Whether ``value`` sets anything: null, false and empty values do not."""
    return value is not None and value is not False and value not in ("", [], {})


# Converts values for our file: keeps references to variables, and turns secrets into references. LiteLLM refers to a
# variable as ``os.environ/NAME``, our file as ``${NAME}``. A secret in clear text is never copied: it becomes a
# variable, and the remark about it has only the variable's name.

_ENVIRON = "os.environ/"
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
    """Converts values to those of our file, and records the variables that it needs."""

    def __init__(self, data: Mapping[str, Any], environ: Mapping[str, str], notes: Notes) -> None:
        own = data.get("environment_variables")
        self._own = {str(name): value for name, value in own.items()} if isinstance(own, dict) else {}
        self._environ = environ
        self._notes = notes
        self._taken = set(_mentioned(data)) | set(self._own)
        self._moved: dict[str, str] = {}  # secret in clear text → its new variable
        self.used: list[str] = []  # in the order of their first use

    def plain(self, value: Any, place: Place) -> Any:
        """Return the converted value of a field whose name is no secret's; a secret in it still becomes a variable."""
        if isinstance(value, dict):
            return {str(key): self.named(str(key), item, (*place, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [self.plain(item, (*place, index)) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        if value.startswith(_ENVIRON):
            return self._use(value.removeprefix(_ENVIRON))
        if _holds_password(value) or redact(value) != value:  # may look like a key anywhere
            return self.secret(value, place, _variable(str(place[-1])))
        return value.replace("${", "$${")

    def named(self, name: str, value: Any, place: Place) -> Any:
        """Return the value of a field called ``name``, converted as a secret if the name is a secret's."""
        if isinstance(value, str) and is_secret(name):
            return self.secret(value, place, _variable(name))
        return self.plain(value, place)

    def secret(self, value: Any, place: Place, name: str) -> str:
        """Return a reference to a secret; one in clear text becomes the variable ``name``, or a similar name."""
        if isinstance(value, str) and value.startswith(_ENVIRON):
            return self._use(value.removeprefix(_ENVIRON))
        text = str(value)
        if text not in self._moved:
            self._moved[text] = self._unused(name)
        self._notes.add(place, _MOVED.format(name=self._moved[text]))
        return self._use(self._moved[text])

    def value_of(self, value: Any) -> str | None:
        """Return the value, or that of the variable it refers to; None if that is not set."""
        if not isinstance(value, str) or not value.startswith(_ENVIRON):
            return None if value is None else str(value)
        name = value.removeprefix(_ENVIRON)
        found = self._environ.get(name) or self._own.get(name)
        return str(found) if found else None

    def default(self, *names: str) -> str | None:
        """Return a reference to the first of ``names`` that LiteLLM's file sets; None if it sets none."""
        name = next((name for name in names if self._own.get(name)), None)
        return None if name is None else self._use(name)

    def remark_on_own(self) -> None:
        """Remark on the ``environment_variables``, which must be set elsewhere from now on."""
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

    def _unused(self, name: str) -> str:
        free, number = name, 2
        while free in self._taken:
            free, number = f"{name}_{number}", number + 1
        self._taken.add(free)
        return free


def is_secret(name: str) -> bool:
    """Whether a field called ``name`` contains a secret."""
    return name not in _NO_SECRETS and _SECRET_WORDS.search(name) is not None


def is_reference(value: object) -> bool:
    """Whether ``value``, as in our file, depends on variables."""
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
    return [value.removeprefix(_ENVIRON)] if isinstance(value, str) and value.startswith(_ENVIRON) else []


# Reads LiteLLM's file, the files it includes and the credentials it names, with the lines of its keys.


class NotedFile(msgspec.Struct, frozen=True):
    """The content of the file, and the collector of remarks on it."""

    data: dict[str, Any]
    notes: Notes


# One of them is in every configuration of a LiteLLM proxy.
_OWN_SECTIONS = frozenset(
    {
        "model_list",
        "include",
        "router_settings",
        "litellm_settings",
        "general_settings",
        "environment_variables",
        "credential_list",
    }
)


def read_source(path: Path) -> NotedFile:
    """Read the file at ``path``.

    Raises:
        ConfigurationError: it cannot be read, is not YAML, or not a LiteLLM configuration.

    """
    document = read_document(path)
    if document.problems and not document.data:
        raise ConfigurationError(document.problems)
    if document.data and _OWN_SECTIONS.isdisjoint(document.data):
        words = f"is not a LiteLLM configuration: it has none of {', '.join(sorted(_OWN_SECTIONS))}"
        raise ConfigurationError([*document.problems, Problem(words, str(path))])
    notes = Notes(str(path), document.lines)
    notes.problems.extend(document.problems)
    data = dict(document.data)
    for index, name in enumerate(items(data.pop("include", None), ("include",), notes)):
        _include(data, path.parent / str(name), ("include", index), notes)
    return NotedFile(_with_credentials(data, notes), notes)


def _include(data: dict[str, Any], path: Path, place: tuple[str, int], notes: Notes) -> None:
    """Merge the file at ``path`` into ``data`` as LiteLLM does: append lists, merge sections, replace the rest."""
    if path.exists() and not path.is_file():  # reading a device may never end
        notes.add(place, "is not a file: its settings are missing here")
        return
    document = read_document(path)
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


def _with_credentials(data: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return ``data`` with every ``litellm_credential_name`` replaced by that credential's values."""
    named: dict[str, dict[str, Any]] = {}
    for index, item in enumerate(items(data.get("credential_list"), ("credential_list",), notes)):
        place = ("credential_list", index)
        credential = section(item, place, notes)
        values = section(credential.get("credential_values"), (*place, "credential_values"), notes)
        if isinstance(name := credential.get("credential_name"), str):
            named[name] = values
    entries = items(data.get("model_list"), ("model_list",), notes)
    replaced = []
    for index, entry in enumerate(entries):
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        if not isinstance(params, dict) or (name := params.get("litellm_credential_name")) is None:
            replaced.append(entry)
            continue
        if name not in named:
            notes.add(
                ("model_list", index, "litellm_params", "litellm_credential_name"),
                "names a credential that is not in credential_list: give the provider its api_key",
            )
        own = {key: value for key, value in params.items() if key != "litellm_credential_name"}
        replaced.append({**entry, "litellm_params": {**named.get(name, {}), **own}})
    return {**data, "model_list": replaced} if "model_list" in data else data
