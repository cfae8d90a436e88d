"""Settings from variables: ``HOLESHOT_PORT``, and ``HOLESHOT_PROVIDERS__GROQ__API_KEY`` with ``__`` for each level."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic_settings import EnvSettingsSource, SettingsError

from gateway.settings.explain import nearest
from gateway.settings.model import Settings
from gateway.settings.problems import Place, Problem

PREFIX = "HOLESHOT_"
LEVEL = "__"
NOT_SETTINGS = frozenset({"CONFIG", "KEY", "SQL_URL", "URL"})  # used by the command line itself
_TESTS = "TEST_"
# For a service called "holeshot", Kubernetes sets variables in every pod that look like ours.
_SERVICE_LINK = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def from_environment(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the variables' values, nested as in the file and with lower-case names, and the problems with them."""
    ours = {name: value for name, value in environ.items() if _is_setting(name, value)}
    problems = []
    for name in list(ours):
        top = name.removeprefix(PREFIX).split(LEVEL)[0].lower()
        if top not in Settings.model_fields:
            problems.append(Problem(f"{name}: no such setting; {nearest(top, Settings.model_fields, _as_variable)}"))
            del ours[name]
    try:
        return _Variables(ours)(), problems
    except SettingsError as error:
        # pydantic-settings names the field but not the value
        return {}, [*problems, Problem(f"{PREFIX}*: {error}; lists and sections are written as JSON")]


def variable_of(place: Place, environ: Mapping[str, str]) -> str | None:
    """Return the variable that set ``place``, or a section around it."""
    for end in range(len(place), 0, -1):
        name = _as_variable(LEVEL.join(map(str, place[:end])))
        if name in environ:
            return name
    return None


def _as_variable(key: str) -> str:
    return PREFIX + key.upper()


def _is_setting(name: str, value: str) -> bool:
    key = name.removeprefix(PREFIX)
    return (
        name.startswith(PREFIX)
        and key not in NOT_SETTINGS
        and not key.startswith(_TESTS)
        and not _SERVICE_LINK.fullmatch(key)
        and not (key == "PORT" and _SERVICE_URL.match(value))
    )


class _Variables(EnvSettingsSource):
    """pydantic-settings' source of variables, reading a given mapping instead of the process's environment."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = {name.lower(): value for name, value in variables.items()}
        super().__init__(Settings, env_prefix=PREFIX, env_nested_delimiter=LEVEL)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._variables
