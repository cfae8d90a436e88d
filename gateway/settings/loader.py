"""Loads ``Settings`` from file, environment and command line, or reports all problems at once.

The command line takes precedence over the environment, the environment over the file. ``variables`` and ``yaml_file``
read environment and file; these modules are imported only if there is something to read.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from pydantic import SecretStr, ValidationError

from gateway.core.terminal_text import is_text
from gateway.settings.address import Note, read_note
from gateway.settings.checks import OF_KEYS, check
from gateway.settings.document import (
    Complaint,
    ConfigurationError,
    Document,
    Place,
    Problem,
    is_free,
    listed_once,
    nearest,
    validate,
    within,
    written,
)
from gateway.settings.doors import with_names
from gateway.settings.model import ClientSettings, Settings
from gateway.settings.presets import Catalog, complete, usual_key, vendor_of
from gateway.settings.references import References, is_literal, referred, resolve
from gateway.settings.section_checks import unknown_subjects
from gateway.settings.sections import AlertSettings, ClickHouseSettings, SecretSettings, TargetSettings
from providers import load_catalog

# Settings from variables: ``HOLESHOT_PORT``, and ``HOLESHOT_PROVIDERS__GROQ__API_KEY`` with ``__`` for each level.

PREFIX = "HOLESHOT_"
LEVEL = "__"
NOT_SETTINGS = frozenset({"CONFIG", "KEY", "SQL_URL", "URL"})  # used by the command line itself
_TESTS = "TEST_"
# For each service of a namespace, Kubernetes sets variables in every pod (service links). The variables of a service
# called "holeshot" or "holeshot-redis" look like Holeshot's. "PORT" alone is a service's only with a URL.
_SERVICE_LINK = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_PORT = re.compile(r"(\w+_)?PORT")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def from_environment(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the variables' values, nested as in the file and with lower-case names, and the variables' problems."""
    ours = {name: value for name, value in environ.items() if _is_setting(name, value)}
    problems = []
    for name in list(ours):
        top = _top(name)
        if top not in Settings.model_fields:
            problems.append(Problem(f"{name}: no such setting; {nearest(top, Settings.model_fields, _as_variable)}"))
        elif not is_text(ours[name]):
            problems.append(Problem(f"{name}: is not UTF-8 text"))
        else:
            continue
        del ours[name]
    if not ours:
        return {}, problems
    from gateway.settings.variables import SettingsError, read_variables  # noqa: PLC0415 - only where there are some

    values: dict[str, Any] = {}
    for _, names in groupby(sorted(ours, key=_top), _top):
        variables = {name: ours[name] for name in names}
        try:
            values |= read_variables(variables, PREFIX, LEVEL)
            problems += _as_meant(values, variables)
        except SettingsError:  # the message of pydantic's error has no value, and not each variable's name
            words = "a list or a section is written as JSON, and this is none"
            problems.append(Problem(f"{', '.join(variables)}: {words}"))
    return values, problems


def _as_meant(values: dict[str, Any], variables: Mapping[str, str]) -> Iterator[Problem]:
    """Read the parameters of requests among ``values`` as in the file, as they have no type; yield the problems."""
    for variable, text in variables.items():
        *sections, name = place = tuple(variable.removeprefix(PREFIX).lower().split(LEVEL))
        if not is_free(place):
            continue
        inner: Any = values
        for section in sections:
            inner = inner.get(section) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or inner.get(name) != text:
            continue
        from gateway.settings.yaml_file import read_parameter  # noqa: PLC0415 - PyYAML, only where there is one

        inner[name], unclear = read_parameter(text, place)
        if unclear is not None:
            yield Problem(f"{variable}: {unclear}")


def variable_of(place: Place, environ: Mapping[str, str]) -> str | None:
    """Return the variable that set ``place``, or a section around it."""
    for end in range(len(place), 0, -1):
        name = _as_variable(LEVEL.join(map(str, place[:end])))
        if name in environ and _is_setting(name, environ[name]):
            return name
    return None


def _top(variable: str) -> str:
    """Return the setting or section to which a variable belongs."""
    return variable.removeprefix(PREFIX).split(LEVEL)[0].lower()


def _as_variable(key: str) -> str:
    return PREFIX + key.upper()


def _is_setting(name: str, value: str) -> bool:
    key = name.removeprefix(PREFIX)
    return (
        name.startswith(PREFIX)
        and key not in NOT_SETTINGS
        and not key.startswith(_TESTS)
        and not _is_service_link(name, value)
    )


def _is_service_link(name: str, value: str) -> bool:
    key = name.removeprefix(PREFIX)
    if LEVEL in key and _top(name) in Settings.model_fields:  # as for a provider with the name "a_service_host"
        return False
    if _SERVICE_LINK.fullmatch(key):
        return True
    return _SERVICE_PORT.fullmatch(key) is not None and _SERVICE_URL.match(value) is not None


# Parts of the configuration for commands that need no provider's key.


class LoadedTargets(msgspec.Struct, frozen=True):
    """The settings for commands about targets."""

    database_url: SecretStr
    slo: Mapping[str, TargetSettings]
    burn_least_bad: int  # of ``alerts``


class LoadedNames(msgspec.Struct, frozen=True):
    """The store of keys, and the models, providers and teams that clients may name.

    None of the first two: the configuration has no such section, so any name is allowed.
    """

    is_database: bool
    database_url: SecretStr
    clients: Mapping[str, ClientSettings]
    models: Collection[str] | None
    providers: Collection[str] | None
    teams: Collection[str]


def deployed(models: Any) -> Iterator[str]:
    """Yield the providers named by the deployments of ``models``; malformed deployments are skipped."""
    for model in models.values() if isinstance(models, dict) else ():
        deployments = model.get("deployments") if isinstance(model, dict) else None
        for each in deployments if isinstance(deployments, list) else ():
            named = each.get("deployment") if isinstance(each, dict) else each
            yield str(named).partition("/")[0]


DEFAULT_PATH = Path("config/gateway.yaml")
_NOTHING: Mapping[str, object] = {}
_LITELLM = "model_list"  # the one section that every configuration of a LiteLLM proxy has
_SHORTEST_KEY = 8  # characters; shorter keys, like "none", are placeholders for servers that accept any key


def locate(option: Path | None, environ: Mapping[str, str], default: Path = DEFAULT_PATH) -> Path | None:
    """Return the file to read: ``--config``, else ``HOLESHOT_CONFIG``, else ``default`` if it exists, else None."""
    if option is not None:
        return option
    if variable := environ.get("HOLESHOT_CONFIG"):
        return Path(variable)
    return default if default.exists() else None


def load(
    path: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] = _NOTHING,
    *,
    catalog: Catalog | None = None,
    references: References | None = None,
) -> Settings:
    """Return the configuration from the file at ``path``, if any, ``environ`` and the command line's ``overrides``.

    Overrides that are None were not given. If no providers are configured, all vendors with a set key variable are
    used; without any such vendor, ``settings.providers`` is empty. For a reload, pass the same ``references``.

    Raises:
        ConfigurationError: there are problems; the error has all of them.

    """
    try:
        inputs = _read(path, environ, overrides)
    except ConfigurationError:
        if references is not None:
            references.postpone()
        raise
    known = load_catalog() if catalog is None else catalog
    data, complaints = _resolved(inputs.merged, inputs, references)
    broken = {complaint.place for complaint in complaints}
    settings = validate(data, complaints, broken)
    if settings is not None and not broken & {("providers",), ("models",), ("clients",)}:
        settings = with_names(complete(settings, environ, known), known)
        complaints += (found for found in check(settings, known) if not _touches(found.place, broken))
    if inputs.problems or complaints or settings is None:
        raise ConfigurationError(inputs.sorted_problems(complaints))
    return settings


def keys_in_clear(path: Path | None) -> list[str]:
    """Return a note for each provider's key that is in the file in clear text; no note shows the key."""
    document = _document(path)
    notes = []
    for place, value in _keys(document.data):
        if isinstance(value, str) and len(value) >= _SHORTEST_KEY and is_literal(value):
            words = "is in the file itself, where everyone who can read the file sees it: write ${NAME}, or file:PATH"
            notes.append(str(Problem(f"{written(place)} {words}", document.file, document.lines.get(place))))
    return notes


def key_sources(
    path: Path | None, environ: Mapping[str, str], settings: Settings, catalog: Catalog
) -> dict[str, list[str]]:
    """Return where each provider's keys come from, in the order of its keys; never a key.

    ``GROQ_API_KEY (config/gateway.yaml:3: providers.groq.api_key)``, or only the variable if the file has no key.
    """
    document = _document(path)
    written_keys = dict(_keys(document.data))
    found: dict[str, list[str]] = {}
    for name, provider in settings.providers.items():
        several: list[Place] = [("providers", name, "api_keys", step) for step in provider.api_keys]
        places: list[Place] = several or [("providers", name, "api_key")] * len(provider.keys)
        vendor = vendor_of(name, provider, catalog)
        usual = None if vendor is None else usual_key(vendor, environ)
        for place in places:
            value = written_keys.get(place)
            source = variable_of(place, environ) or (usual if value is None else None)
            if source is None:
                where = str(Problem(written(place), document.file, document.lines.get(place)))
                variables = referred(value) if isinstance(value, str) else ""
                source = f"{variables} ({where})" if variables else where
            found.setdefault(name, []).append(source)
    return found


def _document(path: Path | None) -> Document:
    if path is None:
        return Document()
    from gateway.settings.yaml_file import read_document  # noqa: PLC0415 - PyYAML, only where there is a file

    return read_document(path)


def _keys(data: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    """Yield the places of providers' keys, with their values."""
    for name, provider in _section(data.get("providers")).items():
        place: Place = ("providers", name)
        provided = _section(provider)
        yield (*place, "api_key"), provided.get("api_key")
        keys = provided.get("api_keys")
        for step, key in enumerate(keys) if isinstance(keys, list) else _section(keys).items():
            yield (*place, "api_keys", step), key
        for header, value in _section(provided.get("headers")).items():
            if OF_KEYS.search(header):
                yield (*place, "headers", header), value
    for name, client in _section(data.get("clients")).items():
        for provider, key in _section(_section(client).get("provider_keys")).items():
            yield ("clients", name, "provider_keys", provider), key


def load_database_url(path: Path | None, environ: Mapping[str, str], *, for_reports: bool = False) -> SecretStr:
    """Return only ``database_url``, for commands that need no provider's key.

    ``for_reports``: ``reports_database_url`` instead, if there is one.

    Raises:
        ConfigurationError: the file is not YAML, or this setting is invalid.

    """
    names = ("database_url", "reports_database_url") if for_reports else ("database_url",)
    settings = _part(_read(path, environ, _NOTHING), names)
    return settings.reports_database_url or settings.database_url


def load_address(path: Path | None, environ: Mapping[str, str]) -> str:
    """Return the URL at which programs of this machine reach the gateway, for commands that ask the gateway.

    Raises:
        ConfigurationError: the file is not YAML, or one of these settings is invalid.

    """
    settings = _part(_read(path, environ, _NOTHING), ("host", "port", "tls"))
    return local_url(settings.host, settings.port, has_tls=settings.tls is not None)


def load_note(path: Path | None, environ: Mapping[str, str]) -> Note | None:
    """Return the note of its address that a gateway of this configuration has left; None without a note.

    If the environment states the port, the result is None too: then that port is asked.

    Raises:
        ConfigurationError: the file is not YAML, or ``spool_dir`` is invalid.

    """
    if _as_variable("port") in environ:
        return None
    return read_note(_part(_read(path, environ, _NOTHING), ("spool_dir",)).spool_dir)


def local_url(host: str, port: int, *, has_tls: bool) -> str:
    """Return the URL at which programs of this machine reach a gateway that listens at ``host`` and ``port``."""
    host = _LOCAL_OF.get(host, host)
    return f"http{'s' * has_tls}://{f'[{host}]' if ':' in host else host}:{port}"


_LOCAL_OF: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - what listens everywhere


def load_clickhouse(path: Path | None, environ: Mapping[str, str]) -> ClickHouseSettings | None:
    """Return only ``ledger.clickhouse``, for commands that need no provider's key.

    Raises:
        ConfigurationError: the file is not YAML, or a setting in ``ledger`` is invalid.

    """
    return _part(_read(path, environ, _NOTHING), ("ledger",)).ledger.clickhouse


def load_installation(path: Path | None, environ: Mapping[str, str]) -> LoadedNames:
    """Return the settings for commands about keys, which need no provider's key.

    Raises:
        ConfigurationError: the file is not YAML, or one of these settings is invalid.

    """
    inputs = _read(path, environ, _NOTHING)
    settings = _part(inputs, ("database_url", "keys", "clients"))
    models, providers, teams = (inputs.merged.get(name) for name in ("models", "providers", "teams"))
    return LoadedNames(
        is_database=settings.keys == "database",
        database_url=settings.database_url,
        clients=settings.clients,
        models=frozenset(models) if isinstance(models, dict) else None,
        providers=frozenset(providers).union(deployed(models)) if isinstance(providers, dict) else None,
        teams=frozenset(teams) if isinstance(teams, dict) else frozenset(),
    )


def load_targets(path: Path | None, environ: Mapping[str, str]) -> LoadedTargets:
    """Return the settings for commands about targets, which need no provider's key.

    Raises:
        ConfigurationError: the file is not YAML, or one of these settings is invalid.

    """
    inputs = _read(path, environ, _NOTHING)
    settings = _part(inputs, ("database_url", "slo"))
    models, providers, clients = (_section(inputs.merged.get(name)) for name in ("models", "providers", "clients"))
    in_file = inputs.merged.get("keys", "file") == "file"
    unknown = list(unknown_subjects(settings.slo, models or None, clients if in_file else None, providers))
    twice = [each for each in inputs.problems if each.message.startswith(("slo.", "slo ", "database_url "))]
    if unknown or twice:
        raise ConfigurationError(inputs.sorted_problems(unknown))
    # Not the whole section: the section's webhooks may need variables that are set only for the gateway.
    least_bad = _section(inputs.merged.get("alerts")).get("burn_least_bad")
    return LoadedTargets(
        settings.database_url, settings.slo, least_bad if isinstance(least_bad, int) else AlertSettings().burn_least_bad
    )


def through_litellm(path: Path | None, environ: Mapping[str, str], *, catalog: Catalog | None = None) -> list[str]:
    """Return the names of providers that are called through litellm, whether litellm is installed or not.

    Raises:
        ConfigurationError: the file is not YAML.

    """
    merged = _read(path, environ, _NOTHING).merged
    known = load_catalog() if catalog is None else catalog
    implied = () if "providers" in merged else (name for name, row in known.items() if usual_key(row, environ))
    providers = {
        **dict.fromkeys([*implied, *deployed(merged.get("models"))], _NOTHING),
        **_section(merged.get("providers")),
    }

    def kind(name: str) -> object:
        section = _section(providers[name])
        vendor = known.get(str(section.get("preset") or name))
        return section.get("kind") or (vendor.kind if vendor is not None else None)

    return sorted(name for name in providers if kind(name) == "litellm")


def _part(inputs: "_Inputs", names: Sequence[str]) -> Settings:
    """Return settings of which only ``names`` are read; clients may still lack the hashes of their keys."""
    part = {name: inputs.merged.get(name) for name in names}
    data, unresolved = _resolved(part, inputs)
    broken = {complaint.place for complaint in unresolved}
    complaints = [complaint for complaint in unresolved if complaint.place[0] != "clients"]
    unread = tuple(map(_as_variable, names))
    if problems := [each for each in inputs.problems if each.file is None and each.message.startswith(unread)]:
        raise ConfigurationError(problems)
    settings = validate(data, complaints, broken)
    complaints = [each for each in complaints if (each.place[0], each.place[-1]) != ("clients", "key_sha256")]
    if settings is not None and not complaints:
        urls = {("database_url",), ("reports_database_url",)}
        complaints += (found for found in check(settings, {}) if found.place in urls)
    if complaints or settings is None:
        raise ConfigurationError(inputs.sorted_problems(complaints))
    return settings


def _resolved(part: Mapping[str, Any], inputs: "_Inputs", references: References | None = None) -> Any:
    """Return ``part`` with its references replaced, and the complaints; programs run only if ``secrets`` allows it."""
    read = references or References()
    secrets, _ = resolve(inputs.merged.get("secrets") or {}, inputs.environ, inputs.folder)
    try:
        read.begin(SecretSettings.model_validate(secrets))
    except ValidationError:  # reported with all other settings
        read.begin(SecretSettings())
    found = resolve(part, inputs.environ, inputs.folder, read)
    read.end()
    return found


class _Inputs(msgspec.Struct, frozen=True):
    """The values of the three sources, and their combination."""

    document: Document
    environ: Mapping[str, str]
    overrides: Mapping[str, object]
    merged: Mapping[str, Any]
    folder: Path
    problems: tuple[Problem, ...]

    def sorted_problems(self, complaints: Iterable[Complaint]) -> list[Problem]:
        """Return all problems without duplicates, the problems of the file in the file's order."""
        located = dict.fromkeys([*self.problems, *map(self._located, complaints)])
        found = sorted(located, key=lambda problem: problem.line or 0)
        messages = listed_once(problem.message for problem in found)
        return [msgspec.structs.replace(each, message=message) for each, message in zip(found, messages, strict=True)]

    def _located(self, complaint: Complaint) -> Problem:
        """Add the source of a complaint: an option, a variable, or a line of the file."""
        place = complaint.place
        message = f"{written(place)}: {complaint.message}" if place else complaint.message
        if place and place[0] in self.overrides:
            if isinstance(
                self.overrides[str(place[0])], dict
            ):  # a whole section can only be an argument of ``Racer``, not an option
                return Problem(message)
            return Problem(f"--{str(place[0]).replace('_', '-')}: {complaint.message}")
        if variable := variable_of(place, self.environ):
            return Problem(
                f"{variable}: {complaint.message}"
                if variable.count("__") >= len(place) - 1
                else f"{variable}: {message}"
            )
        line = next(
            (
                self.document.lines[place[:end]]
                for end in range(len(place), 0, -1)
                if place[:end] in self.document.lines
            ),
            None,
        )
        return Problem(message, self.document.file, line)


def _read(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, object]) -> _Inputs:
    document = _document(path)
    if document.problems and not document.data:
        raise ConfigurationError(document.problems)
    if _LITELLM in document.data and path is not None:
        words = f"this is a LiteLLM file: convert it with `holeshot import litellm {path}`"
        raise ConfigurationError([Problem(words, document.file, document.lines[_LITELLM,])])
    variables, problems = from_environment(environ)
    given = {key: value for key, value in overrides.items() if value is not None}
    return _Inputs(
        document=document,
        environ=environ,
        overrides=given,
        merged=_merged(_merged(document.data, variables), given),
        folder=path.parent if path is not None else Path(),
        problems=(*document.problems, *problems),
    )


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``upper`` over ``lower``: sections are merged, everything else is replaced."""
    result = dict(lower)
    for key, value in upper.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def _section(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _NOTHING


def _touches(place: Place, broken: set[Place]) -> bool:
    """Whether ``place`` is part of something already reported, or contains it."""
    return any(within(place, outer) or within(outer, place) for outer in broken)
