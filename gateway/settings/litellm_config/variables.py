"""Converts values for our file: keeps references to variables, and turns secrets into references.

LiteLLM refers to a variable as ``os.environ/NAME``, our file as ``${NAME}``. A secret in clear text is never copied: it
becomes a variable, and the remark about it has only the variable's name.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gateway.settings.litellm_config.notes import Notes
from gateway.settings.problems import Place
from providers.redaction import redact

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
    """Converts values to what our file has, and records the variables that it needs."""

    def __init__(self, data: Mapping[str, Any], environ: Mapping[str, str], notes: Notes) -> None:
        own = data.get("environment_variables")
        self._own = {str(name): value for name, value in own.items()} if isinstance(own, dict) else {}
        self._environ = environ
        self._notes = notes
        self._taken = set(_mentioned(data)) | set(self._own)
        self._moved: dict[str, str] = {}  # secret in clear text → its new variable
        self.used: list[str] = []  # in the order of their first use

    def plain(self, value: Any, place: Place) -> Any:
        """Return a value whose name is not a secret's; a secret inside it becomes a variable all the same."""
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
            self._moved[text] = self._free(name)
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
        """Remark on those of ``environment_variables`` that must be set elsewhere from now on."""
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

    def _free(self, name: str) -> str:
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
