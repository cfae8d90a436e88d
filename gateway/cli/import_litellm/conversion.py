"""Converts a LiteLLM proxy's file to the text of Holeshot's, with remarks on the work that is left."""

import textwrap
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gateway.cli.import_litellm.accounts import CLIENT, SIGNING_KEY, Accounts, client
from gateway.cli.import_litellm.deployments import ModelListEntry, ProviderAddresses, clocks, read_entry
from gateway.cli.import_litellm.source import (
    ELSEWHERE,
    ENVIRON,
    Function,
    LiteLlmSection,
    items,
    put,
    read_source,
    remark_if_set,
    table,
    walk,
)
from gateway.settings import Catalog, Cause, Place, Problem, must_be_quoted
from providers import DatasheetTable

# The settings of the router and the proxy.

LEDGER = "LEDGER_DATABASE_URL"  # not HOLESHOT_…: such variables are settings themselves
_DEFAULT_LEDGER = "sqlite:///var/holeshot.db"
_SHUFFLE = "simple-shuffle"  # LiteLLM's default strategy
_MOST_WEIGHT = 1000.0
_ANY = "*"
_CAUSES: Mapping[str, Cause] = {
    "fallbacks": Cause.FAILED,
    "context_window_fallbacks": Cause.CONTEXT,
    "content_policy_fallbacks": Cause.CONTENT_FILTER,
    "default_fallbacks": Cause.FAILED,
}


class _Settings(msgspec.Struct):
    """What the settings say."""

    config: dict[str, Any] = {}  # as Holeshot's file has it, without providers and models
    strategy: str = _SHUFFLE
    aliases: list[tuple[str, Any, Place]] = []  # another name, a model's name, and the place of the setting
    fallbacks: dict[str, list[tuple[str, Any, Place]]] = {}  # by field: model, its fallbacks, and their place


def _strategy(settings: _Settings, section: LiteLlmSection, field: str, _remark: str) -> None:
    settings.strategy = str(section.take(field) or _SHUFFLE)
    if settings.strategy != _SHUFFLE:
        section.remark("the leaderboard decides: latency, load and rate limits count, under `race.objective`", field)


def _aliases(settings: _Settings, section: LiteLlmSection, field: str, _remark: str) -> None:
    aliases = section.within(field)
    for name in aliases.fields:
        of = aliases.take(name)
        if isinstance(of, dict) and of.get("hidden"):
            aliases.remark("no counterpart: clients see it among the models", name, "hidden")
        settings.aliases.append((name, of.get("model") if isinstance(of, dict) else of, aliases.at(name)))


def _fallbacks(settings: _Settings, section: LiteLlmSection, field: str, _remark: str) -> None:
    """Keep the lists of the section that is read first."""
    if not section.get(field):
        section.take(field)
    elif field in settings.fallbacks:
        remark_if_set(section, field, ELSEWHERE)
    elif field == "default_fallbacks":
        settings.fallbacks[field] = [(_ANY, section.take(field), section.at(field))]
    else:
        found = settings.fallbacks[field] = []
        for index, item in enumerate(section.items(field)):
            by_model = LiteLlmSection(item, section.at(field, index), section.notes, section.variables)
            found += [(model, by_model.take(model), by_model.at(model)) for model in by_model.fields]


def _redis(settings: _Settings, section: LiteLlmSection, field: str, _remark: str) -> None:
    if not section.get(field) or "redis_url" in settings.config or field not in ("redis_url", "redis_host"):
        remark_if_set(section, field, "left out: redis_url says it, or there is no redis_host")
        return
    if field == "redis_url":
        settings.config["redis_url"] = str(section.plain(field))
        return
    host, port, user, database = (section.plain(f"redis_{part}") for part in ("host", "port", "username", "db"))
    tls = section.take("redis_ssl") or False
    encrypted = {"true": True, "false": False}.get(str(tls).lower())
    if encrypted is None:
        section.remark("is neither true nor false here: if it is on, write rediss:// instead of redis://", "redis_ssl")
    login = f"{user}@" if user else ""
    if section.get("redis_password"):
        login = f"{user or ''}:{section.secret('redis_password', 'REDIS_PASSWORD')}@"
        section.remark("part of a URL now: percent-encode all characters except letters and digits", "redis_password")
    scheme = "rediss" if encrypted else "redis"
    path = "" if database in (None, "") else f"/{database}"
    settings.config["redis_url"] = f"{scheme}://{login}{host}:{port or 6379}{path}"


def _all_clocks(settings: _Settings, section: LiteLlmSection, field: str, _remark: str) -> None:
    if (found := clocks(section)) and not put(settings.config, "timeouts", found):
        section.remark(ELSEWHERE, field)


def _master_key(settings: _Settings, section: LiteLlmSection, field: str, _remark: str) -> None:
    if section.get(field):
        entry = client(section, field)
        settings.config |= {"host": "0.0.0.0", "clients": {CLIENT: entry}}  # noqa: S104 - as LiteLLM, as keys are required


def _ledger(settings: _Settings, section: LiteLlmSection, field: str, _remark: str) -> None:
    """Read whether LiteLLM had a database. Its own is not used: LiteLLM's migrations may drop unknown tables."""
    if section.take(field):
        section.remark(
            "LiteLLM's database has its own tables: make another one for the ledger, put its postgresql:// URL into"
            f" {LEDGER}, and run `holeshot migrate`; without it the ledger is in"
            f" {_DEFAULT_LEDGER.removeprefix('sqlite:///')}",
            field,
        )
        settings.config["database_url"] = f"${{{LEDGER}:-{_DEFAULT_LEDGER}}}"


_OF_SETTINGS: Mapping[str, Function[_Settings]] = {
    "aliases": _aliases,
    "fallbacks": _fallbacks,
    "ledger": _ledger,
    "master_key": _master_key,
    "redis": _redis,
    "strategy": _strategy,
    "timeouts": _all_clocks,
}


class ConvertedConfiguration(msgspec.Struct, frozen=True):
    """A LiteLLM configuration as one of Holeshot's."""

    text: str  # of the file
    notes: tuple[Problem, ...]  # fields that have no counterpart or need work by hand, in the order of LiteLLM's file
    variables: tuple[str, ...]  # variables in the text, in the order of their first use
    providers: tuple[str, ...]
    models: tuple[str, ...]


def convert(
    path: Path, environ: Mapping[str, str], catalog: Catalog, sheets: DatasheetTable, accounts: Sequence[Path] = ()
) -> ConvertedConfiguration:
    """Convert the file at ``path``; ``sheets`` know which models have a price, for routing by cost.

    ``accounts``: answers of LiteLLM's API about its keys, teams, users and customers. Only the master key is read from
    ``environ``; the master key's digest is written.

    Raises:
        ConfigurationError: a file cannot be read, or is not YAML, or JSON.

    """
    file = read_source(path, environ)
    settings = _Settings()
    for name in ("router_settings", "litellm_settings", "general_settings"):
        walk(name, file.within(name), settings.config, settings, _OF_SETTINGS)
    config, conversion = settings.config, _Conversion(file, settings, catalog, sheets)
    config["models"] = models = conversion.models()
    config["providers"] = providers = conversion.addresses.providers
    found = Accounts(models)
    for each in accounts:
        found.read(each)
    found.convert()
    if found.clients:
        config |= {"host": "0.0.0.0", "clients": {**config.get("clients", {}), **found.clients}}  # noqa: S104 - as above
    config |= {"teams": found.teams, "end_users": found.end_users}
    if found.end_users:  # end users' names are kept as keyed hashes
        config["page"] = {"signing_key": file.variables.plain(f"{ENVIRON}{SIGNING_KEY}", ("page", "signing_key"))}
    file.variables.remark_on_own()
    walk("file", file, {}, None, {"section": lambda _reader, section, field, _remark: section.take(field)})
    notes = (*file.notes.listed(), *found.notes)
    return ConvertedConfiguration(
        written_file(config, path.name, notes), notes, tuple(file.variables.used), tuple(providers), tuple(models)
    )


class _Conversion:
    """The conversion of ``model_list`` to models and providers."""

    def __init__(self, file: LiteLlmSection, settings: _Settings, catalog: Catalog, sheets: DatasheetTable) -> None:
        self._file = file
        self._notes = file.notes
        self._settings = settings
        self._drop_params = settings.config.pop("drop_params", False)
        self._catalog = catalog
        self._sheets = sheets
        self._models: dict[str, dict[str, Any]] = {}
        self._later: dict[str, list[str]] = {}  # models made from deployments with a later ``order``, by the first
        self._aliased: dict[str, str] = {}
        self.addresses = ProviderAddresses(catalog)

    def models(self) -> dict[str, dict[str, Any]]:
        """Return ``models:``, after their providers have names."""
        raw = items(self._file.take("model_list"), ("model_list",), self._notes)
        sections = [
            LiteLlmSection(each, ("model_list", index), self._notes, self._file.variables)
            for index, each in enumerate(raw)
        ]
        read = [read_entry(each, self.addresses, drop_params=self._drop_params) for each in sections]
        found = [entry for entry in read if entry is not None]
        # Providers of wildcards come first: clients use these providers' names, so these must not get numbers.
        for entry in sorted(found, key=lambda each: not each.is_wildcard):
            if entry.is_wildcard:
                self._open_to_any_model(entry)
            self.addresses.add_use(entry.address, entry.key, entry.same)
        self.addresses.name_all()
        by_name: dict[str, list[ModelListEntry]] = {}
        for entry in found:
            if not entry.is_wildcard:
                by_name.setdefault(entry.name, []).append(entry)
        for name, entries in by_name.items():
            self._add(name, entries)
        for name, of, place in self._settings.aliases:
            self._alias(name, str(of), place)
        self._add_fallbacks()
        if alone := [name for name, model in self._models.items() if _is_alone(model)]:
            self._notes.add(
                ("model_list",),
                f"one deployment and no fallback for failures: {', '.join(alone)}; nobody else answers while it"
                " hangs or fails: add a deployment, or `fallbacks`",
            )
        return self._models

    def _open_to_any_model(self, entry: ModelListEntry) -> None:
        """Convert a wildcard to a provider whose models clients name themselves, with the prefix that clients know."""
        if CLIENT in (clients := self._settings.config.get("clients", {})):
            clients[CLIENT]["adhoc"] = True
        prefix, slash, rest = entry.name.partition("/")
        said = (
            "a star stands at the end of a name, behind how it begins: clients with `adhoc: true` write PROVIDER/MODEL;"
            " or add `models`"
        )
        if slash and "*" not in prefix and rest == "*":
            self.addresses.prefer(entry.address, entry.key, prefix)
            said = f"became provider {prefix!r}: clients with `adhoc: true` name any model, {prefix}/MODEL"
        self._notes.add((*entry.place, "model_name"), said)
        if entry.deployment.keys() - {"drop_params"} or entry.params:
            self._notes.add(
                entry.place, "models that clients name have no settings: the pattern's settings are left out"
            )

    def _add(self, name: str, entries: Sequence[ModelListEntry]) -> None:
        """Add a model, and another model for each further ``order``: each is a fallback of the model before."""
        public = name.replace(",", "-")
        if public != name:
            self._notes.add((*entries[0].place, "model_name"), f"a model's name has no comma: called {public!r}")
        weights = self._weights(entries)
        ranks: dict[float, list[tuple[ModelListEntry, float | None]]] = {}
        for entry, weight in zip(entries, weights, strict=True):
            is_spare = weight == 0 and any(each != 0 for each in weights)
            ranks.setdefault(inf if is_spare else entry.order, []).append((entry, weight))
        models = [model for rank in sorted(ranks) if (model := self._model(ranks[rank])) is not None]
        if public.endswith("*") and len(models) > 1:
            self._notes.add((*entries[0].place, "litellm_params"), "a pattern has one `order`: only the first is kept")
            del models[1:]
        later = [f"{public}-order-{number}" for number in range(2, len(models) + 1)]
        self._models |= zip((public, *later), models, strict=False)
        if later:
            self._later[public] = later
            self._notes.add(
                (*entries[0].place, "litellm_params"),
                f"`order` and weight 0 became fallbacks: {', '.join(later)}, used when all of {public} failed,"
                " or beside them when they are late",
            )

    def _weights(self, entries: Sequence[ModelListEntry]) -> list[float | None]:
        """Return LiteLLM's weights, by weight, else by rpm or tpm; None for each entry if all are equal."""
        if any("weight" in entry.numbers for entry in entries):
            return [min(_MOST_WEIGHT, entry.numbers.get("weight", 0.0)) for entry in entries]
        known = [entry.rate for entry in entries if entry.rate]
        if self._settings.strategy != _SHUFFLE or len(known) < len(entries) or len(set(known)) == 1:
            return [None] * len(entries)
        self._notes.add((*entries[0].place, "litellm_params"), "rpm or tpm became weights, as in LiteLLM's shuffle")
        return [round(rate / max(known), 3) or None for rate in known]

    def _model(self, group: Sequence[tuple[ModelListEntry, float | None]]) -> dict[str, Any] | None:
        found: list[tuple[ModelListEntry, dict[str, Any]]] = []
        for entry, weight in group:
            provider = self.addresses.name_of(entry.address, entry.key)
            if provider is None:
                self._notes.add(entry.place, "litellm knows this vendor by one name only: a second address is left out")
                continue
            row = {"deployment": f"{provider}/{entry.model}", **entry.deployment}
            if weight is not None and weight not in (0, 1):
                row["weight"] = weight
            found.append((entry, row))
        if not found:
            return None
        settings = self._shared(found)
        deployments = _named_apart([row for _, row in found])
        model: dict[str, Any] = {"deployments": [row["deployment"] if len(row) == 1 else row for row in deployments]}
        if len(deployments) > 1:
            model["race"] = {"mode": "auto", "budget": 1.0}
        race = table().strategies.get(self._settings.strategy)
        if race and any(self._is_priced(entry) for entry, _ in found):
            model["race"] = dict(race)
        return model | settings

    def _shared(self, found: Sequence[tuple[ModelListEntry, dict[str, Any]]]) -> dict[str, Any]:
        """Return the settings of the model; settings that its deployments do not share stay with each deployment."""
        shared: dict[str, Any] = {}
        first = found[0][0]
        if all(entry.timeouts == first.timeouts for entry, _ in found) and first.timeouts:
            shared["timeouts"] = first.timeouts
        kept = [row.pop("keepalive_s") for _, row in found if "keepalive_s" in row]
        if any(kept):
            shared["keepalive_s"] = next(each for each in kept if each)
        params = {
            field: value
            for field, value in first.params.items()
            if all(entry.params.get(field) == value for entry, _ in found)
        }
        if params:
            shared["defaults"] = params
        for entry, row in found:
            if "timeouts" in shared:
                row.pop("timeouts", None)
            if own := {field: value for field, value in entry.params.items() if field not in params}:
                row["extra_body"] = {**own, **row.get("extra_body", {})}
            for field in own:
                self._notes.add(
                    (*entry.place, "litellm_params", field),
                    "differs between the model's deployments: became extra_body, which overrides the request",
                )
        return shared

    def _is_priced(self, entry: ModelListEntry) -> bool:
        vendor = self._catalog.get(entry.address.vendor or "")
        if "price_per_mtok" in entry.deployment:
            return True
        if vendor is None or vendor.litellm_prefix is None:
            return False
        key = (vendor.litellm_prefix, entry.model)
        return self._sheets.look_up([key])[key].price is not None

    def _alias(self, name: str, of: str, place: Place) -> None:
        """Add ``name`` as another name of the model ``of``."""
        if of not in self._models:
            self._notes.add(place, "another name of an unknown model: left out")
        elif name in self._models:
            self._notes.add(place, "another name that is also a model's name: left out")
        else:
            self._models[name] = dict(self._models[of])
            self._later[name] = self._later.get(of, [])
            self._aliased[name] = of

    def _add_fallbacks(self) -> None:
        """Add each model's fallbacks, after the fallbacks from ``order``.

        As in LiteLLM, a cause without its own fallbacks uses the fallbacks for failures.
        """
        said = self._fallbacks_said()
        for name, model in self._models.items():
            own: list[Any] = [{"model": later, "causes": ["failed"]} for later in self._later.get(name, ())]
            causes: dict[str, list[str]] = {}
            for cause in Cause:
                for other in self._fallbacks(said[cause], name) or self._fallbacks(said[Cause.FAILED], name):
                    if other != name:
                        causes.setdefault(other, []).append(cause.value)
            own += [other if len(on) == len(Cause) else {"model": other, "causes": on} for other, on in causes.items()]
            if own:
                model["fallbacks"] = own

    def _fallbacks_said(self) -> dict[Cause, dict[str, list[str]]]:
        """Return the fallbacks that the settings name, by cause and model."""
        said: dict[Cause, dict[str, list[str]]] = {cause: {} for cause in Cause}
        for field, cause in _CAUSES.items():
            for model, others, place in self._settings.fallbacks.get(field, ()):
                if field == "default_fallbacks" and _ANY in said[cause]:
                    self._notes.add(place, ELSEWHERE)
                elif model != _ANY and model not in self._models:
                    self._notes.add(place, "there is no such model: its fallbacks are left out")
                elif names := self._names(others, place):
                    said[cause].setdefault(model, []).extend(names)
        return said

    def _fallbacks(self, said: Mapping[str, Sequence[str]], name: str) -> Sequence[str]:
        return said.get(name) or said.get(self._aliased.get(name, name)) or said.get(_ANY) or ()

    def _names(self, others: Any, place: Place) -> list[str]:
        """Return the models that a list of fallbacks names."""
        names = []
        for index, other in enumerate([others] if isinstance(others, str) else items(others, place, self._notes)):
            name = other.get("model") if isinstance(other, dict) else other
            if isinstance(other, dict) and len(other) > 1:
                self._notes.add((*place, index), "a fallback gets the unchanged request: the changes are left out")
            if isinstance(name, str) and name in self._models:
                names.append(name)
            else:
                self._notes.add(
                    (*place, index), "falls back to a model that is not in the file: left out; add it under `models`"
                )
        return names


def _is_alone(model: Mapping[str, Any]) -> bool:
    """Whether no other deployment could answer for a model while the model's own is silent."""
    fallbacks = model.get("fallbacks", ())
    helps = any(isinstance(each, str) or Cause.FAILED in each["causes"] for each in fallbacks)
    return len(model["deployments"]) == 1 and not helps


def _named_apart(deployments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the deployments without duplicates; different deployments of one name get names of their own.

    LiteLLM limits what is in flight per entry: when two entries become one deployment, their limits are added.
    """
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []  # the deployment before, and as it is in the file
    for row in deployments:
        if (same := next((made for was, made in kept if was == row), None)) is not None:
            if isinstance(limit := row.get("max_in_flight"), int):
                same["max_in_flight"] += limit
            continue
        twins = sum(was["deployment"] == row["deployment"] for was, _ in kept)
        name = {"deployment": row["deployment"], "as": f"{row['deployment']}#{twins + 1}"} if twins else {}
        kept.append((row, {**name, **row}))
    return [made for _, made in kept]


# Writes a converted configuration as text: its sections, and at its end the work that is left.

_WIDTH = 120
_SHORT = 16  # characters of a word that may share a line with others
_HEAD = """\
# Holeshot's configuration, made from {source} by `holeshot import litellm`; `holeshot check` validates it. ${{NAME}} is
# taken from the environment, so no key stands in this file.
"""


class _Dumper(yaml.SafeDumper):
    """Writes all values in full, without YAML aliases for shared values."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - likewise
        """Indent the items of lists."""
        super().increase_indent(flow, indentless=False)


def _represent_list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    """Write a short list of plain words in one line."""
    words = all(isinstance(item, str) and len(item) <= _SHORT and "{" not in item for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=words)


def _represent_text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    """Write a text in quotes if Holeshot would read it as a number, as ``080`` and ``1e3``."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="'" if must_be_quoted(data) else None)


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(str, _represent_text)


def written_file(config: Mapping[str, Any], source: str, notes: Sequence[Problem]) -> str:
    """Return the text of ``config``, one paragraph per section, with ``notes`` as comments at the end."""
    parts = [_HEAD.format(source=" ".join(source.split()))]
    comments = table().comments
    ours = (*(key for key in config if key not in comments), *comments)
    parts += [
        _section(key, config[key], comments.get(key, "")) for key in ours if config.get(key) not in (None, {}, [])
    ]
    if notes:
        lines = "".join(_comment(_located(note, source), hanging="  ") for note in notes)
        parts.append(f"# To be done by hand, or converted differently:\n{lines}")
    return "\n".join(parts)


def _section(key: str, value: Any, words: str) -> str:
    return _comment(words) + yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


def _located(note: Problem, source: str) -> str:
    file = source if note.file is None else Path(note.file).name  # or an included file
    return str(Problem(note.message, file, note.line))


def _comment(text: str, hanging: str = "") -> str:
    lines = textwrap.wrap(
        " ".join(text.split()), _WIDTH - 2, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines)
