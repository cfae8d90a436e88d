"""Converts a LiteLLM proxy's file to the text of ours, with remarks on what is left to do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.settings.litellm_config.addresses import Addresses
from gateway.settings.litellm_config.advice import GENERAL, LITELLM, ROUTER, SECTIONS, UNKNOWN
from gateway.settings.litellm_config.deployments import Entries, Entry
from gateway.settings.litellm_config.models import Models
from gateway.settings.litellm_config.notes import is_said, items, section
from gateway.settings.litellm_config.routing import FALLBACK_KEYS, REDIS_KEYS, Fallbacks, clocks, redis_url
from gateway.settings.litellm_config.serving import CLIENT, client, ledger
from gateway.settings.litellm_config.source import Source, read_source
from gateway.settings.litellm_config.variables import Variables
from gateway.settings.litellm_config.writing import written_file
from gateway.settings.presets import Catalog
from gateway.settings.problems import Problem
from providers.datasheets import DatasheetTable

_SECTIONS = ("router_settings", "litellm_settings", "general_settings")
_READ = {*_SECTIONS, "model_list", "environment_variables", "credential_list", "include"}
_CLOCKS = frozenset({"timeout", "stream_timeout", "request_timeout"})
_READ_OF: Mapping[str, frozenset[str]] = {
    "router_settings": FALLBACK_KEYS | REDIS_KEYS | _CLOCKS | {"routing_strategy", "model_group_alias"},
    "litellm_settings": FALLBACK_KEYS | _CLOCKS | {"drop_params", "set_verbose", "json_logs"},
    "general_settings": frozenset({"master_key", "database_url", "max_request_size_mb"}),
}
_ADVICE: Mapping[str, Mapping[str, str]] = {
    "router_settings": ROUTER,
    "litellm_settings": LITELLM,
    "general_settings": GENERAL,
}


class Converted(msgspec.Struct, frozen=True):
    """A LiteLLM configuration as one of ours."""

    text: str  # of the file
    notes: tuple[Problem, ...]  # what has no counterpart or must be done by hand, in the order of LiteLLM's file
    variables: tuple[str, ...]  # used in the text, in the order of their first use
    providers: tuple[str, ...]
    models: tuple[str, ...]


def convert(path: Path, environ: Mapping[str, str], catalog: Catalog, table: DatasheetTable) -> Converted:
    """Convert the file at ``path``; ``table`` knows which models have a price, for routing by cost.

    Only the master key is read from ``environ``; its digest is written.

    Raises:
        ConfigurationError: it cannot be read, or is not YAML.

    """
    return _Conversion(read_source(path), environ, catalog, table).run(path)


class _Conversion:
    """The conversion of one file."""

    def __init__(self, source: Source, environ: Mapping[str, str], catalog: Catalog, table: DatasheetTable) -> None:
        self._data = source.data
        self._notes = source.notes
        self._catalog = catalog
        self._table = table
        self._variables = Variables(source.data, environ, source.notes)
        self._addresses = Addresses(catalog, self._variables, source.notes)
        self._sections = {name: section(source.data.get(name), (name,), source.notes) for name in _SECTIONS}
        self._any_model = False  # whether clients may name provider/model themselves

    def run(self, path: Path) -> Converted:
        """Convert the file, definitions before their uses."""
        entries = self._entries()
        self._addresses.name_all()
        models = self._models(entries)
        config = self._server()
        config["providers"] = self._addresses.providers
        config["models"] = models
        if key := self._sections["general_settings"].get("master_key"):
            place = ("general_settings", "master_key")
            entry = client(key, place, self._variables, self._notes, adhoc=self._any_model)
            config |= {"host": "0.0.0.0", "clients": {CLIENT: entry}}  # noqa: S104 - as LiteLLM, as keys are required
        self._remark_on_the_rest()
        notes = tuple(self._notes.listed())
        return Converted(
            text=written_file(config, path.name, notes),
            notes=notes,
            variables=tuple(self._variables.used),
            providers=tuple(self._addresses.providers),
            models=tuple(models),
        )

    def _entries(self) -> list[Entry]:
        """Return the entries that name a model; wildcard entries become providers only."""
        reader = Entries(
            self._catalog,
            self._variables,
            self._notes,
            self._addresses,
            drop_params=self._sections["litellm_settings"].get("drop_params") is True,
        )
        found = []
        for index, raw in enumerate(items(self._data.get("model_list"), ("model_list",), self._notes)):
            entry = reader.read(raw, ("model_list", index))
            if entry is not None:
                found.append(entry)
        # Providers of wildcards come first: clients use their names, so these must not get numbers.
        for entry in sorted(found, key=lambda each: not _is_wildcard(each)):
            if _is_wildcard(entry):
                self._open_to_any_model(entry)
            self._addresses.ask(entry.address, entry.key, entry.same)
        return [entry for entry in found if not _is_wildcard(entry)]

    def _open_to_any_model(self, entry: Entry) -> None:
        """Convert a wildcard to a provider whose models clients name themselves, with the prefix they know."""
        self._any_model = True
        prefix, slash, rest = entry.name.partition("/")
        place = (*entry.place, "model_name")
        if slash and "*" not in prefix and rest == "*":
            self._addresses.prefer(entry.address, entry.key, prefix)
            self._notes.add(
                place, f"became provider {prefix!r}: clients with `adhoc: true` name any model, {prefix}/MODEL"
            )
        else:
            self._notes.add(
                place, "patterns have no counterpart: clients with `adhoc: true` write PROVIDER/MODEL; or add `models`"
            )
        if entry.deployment.keys() - {"drop_params"} or entry.params or entry.timeouts:
            self._notes.add(
                entry.place, "models that clients name have no settings: the pattern's settings are left out"
            )

    def _models(self, entries: list[Entry]) -> dict[str, dict[str, Any]]:
        router, litellm = self._sections["router_settings"], self._sections["litellm_settings"]
        strategy = router.get("routing_strategy")
        if strategy not in (None, "simple-shuffle"):
            place = ("router_settings", "routing_strategy")
            self._notes.add(
                place, "the leaderboard decides: latency, load and rate limits count, under `race.objective`"
            )
        models = Models(self._addresses, self._notes, strategy, self._is_priced)
        for name in dict.fromkeys(entry.name for entry in entries):
            models.add(name, [entry for entry in entries if entry.name == name])
        aliases = section(router.get("model_group_alias"), ("router_settings", "model_group_alias"), self._notes)
        for name, of in aliases.items():
            of_name = of.get("model") if isinstance(of, dict) else of
            models.alias(str(name), str(of_name), ("router_settings", "model_group_alias", str(name)))
        fallbacks = Fallbacks(models.models, models.aliases, self._notes)
        fallbacks.read(router, ("router_settings",))
        fallbacks.read(litellm, ("litellm_settings",))
        models.add_fallbacks(fallbacks.of_models())
        return models.models

    def _server(self) -> dict[str, Any]:
        """Return the settings of the gateway as a whole."""
        general, litellm, router = (
            self._sections[name] for name in ("general_settings", "litellm_settings", "router_settings")
        )
        config: dict[str, Any] = {}
        if url := ledger(general, ("general_settings",), self._notes):
            config["database_url"] = url
        if url := redis_url(router, ("router_settings",), self._variables, self._notes):
            config["redis_url"] = url
        if litellm.get("set_verbose") is True:
            config["log_level"] = "debug"
        if litellm.get("json_logs") is True:
            config["log_format"] = "json"
        if (most := general.get("max_request_size_mb")) is not None:
            config["max_body_mb"] = self._variables.plain(most, ("general_settings", "max_request_size_mb"))
        timeouts = clocks(router, ("router_settings",), self._variables, self._notes) or clocks(
            litellm, ("litellm_settings",), self._variables, self._notes
        )
        if timeouts:
            config["timeouts"] = timeouts
        return config

    def _is_priced(self, entry: Entry) -> bool:
        vendor = self._catalog.get(entry.address.vendor or "")
        if "price_per_mtok" in entry.deployment:
            return True
        if vendor is None or vendor.litellm_prefix is None:
            return False
        key = (vendor.litellm_prefix, entry.model)
        return self._table.look_up([key])[key].price is not None

    def _remark_on_the_rest(self) -> None:
        """Remark on everything that was not read."""
        for name, said in self._sections.items():
            for key, value in said.items():
                if key not in _READ_OF[name] and is_said(value):
                    self._notes.add((name, str(key)), _ADVICE[name].get(str(key), UNKNOWN))
        for name, value in self._data.items():
            if name not in _READ and is_said(value):
                self._notes.add((name,), SECTIONS.get(name, UNKNOWN))
        self._variables.remark_on_own()


def _is_wildcard(entry: Entry) -> bool:
    return "*" in entry.name or "*" in entry.model
