"""Converts a LiteLLM proxy's file to the text of ours, with remarks on the work that is left."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gateway.cli.import_litellm.accounts import CLIENT, SIGNING_KEY, Accounts, client
from gateway.cli.import_litellm.addresses import Addresses
from gateway.cli.import_litellm.deployments import UNKNOWN, Entries, Entry, fields
from gateway.cli.import_litellm.notes import (
    NotedFile,
    Notes,
    Variables,
    is_reference,
    is_set,
    items,
    read_source,
    section,
)
from gateway.settings import PROFILES, Catalog, Cause, Place, Problem, Profile
from providers import DatasheetTable

# Converts LiteLLM's groups of deployments to models, with their fallbacks.

IsPriced = Callable[[Entry], bool]

# LiteLLM's strategies have the leaderboard's goals, except for cost.
BY_COST = "cost-based-routing"
_SHUFFLES = ("simple-shuffle", None)
_MOST_WEIGHT = 1000.0


class Models:
    """Builds ``models:`` from the entries of ``model_list``."""

    def __init__(self, addresses: Addresses, notes: Notes, strategy: str | None, is_priced: IsPriced) -> None:
        self._addresses = addresses
        self._notes = notes
        self._strategy = strategy
        self._is_priced = is_priced
        self.models: dict[str, dict[str, Any]] = {}
        self._later: dict[str, list[str]] = {}  # models made from deployments with a later ``order``
        self.aliases: dict[str, str] = {}  # alias → model

    def add(self, name: str, entries: Sequence[Entry]) -> None:
        """Add a model, and another one for each further ``order``, which is a fallback of the one before."""
        public = name.replace(",", "-")
        if public != name:
            self._notes.add((*entries[0].place, "model_name"), f"a model's name has no comma: called {public!r}")
        weights = self._weights(entries)
        spare = [entry for entry, weight in zip(entries, weights, strict=True) if weight == 0]
        last = max(entry.order for entry in entries)
        ranks: dict[int, list[tuple[Entry, float | None]]] = {}
        for entry, weight in zip(entries, weights, strict=True):
            ranks.setdefault(last + 1 if entry in spare and len(spare) < len(entries) else entry.order, []).append(
                (entry, weight)
            )
        for number, rank in enumerate(sorted(ranks)):
            own = public if number == 0 else f"{public}-order-{number + 1}"
            model = self._model(ranks[rank])
            if model is None:
                continue
            self.models[own] = model
            if number:
                self._later.setdefault(public, []).append(own)
        if later := self._later.get(public):
            self._notes.add(
                (*entries[0].place, "litellm_params"),
                f"`order` and weight 0 became fallbacks: {', '.join(later)}, used when all of {public} failed,"
                " or beside them when they are late",
            )

    def alias(self, name: str, of: str, place: Place) -> None:
        """Add ``name`` as an alias of the model ``of``."""
        if of not in self.models:
            self._notes.add(place, "another name of an unknown model: left out")
        elif name in self.models:
            self._notes.add(place, "another name that is also a model's name: left out")
        else:
            self.models[name] = dict(self.models[of])
            self._later[name] = list(self._later.get(of, ()))
            self.aliases[name] = of

    def add_fallbacks(self, fallbacks: Mapping[str, Sequence[Any]]) -> None:
        """Add each model's fallbacks, after those from ``order``."""
        for name, model in self.models.items():
            own: list[Any] = [{"model": later, "causes": ["failed"]} for later in self._later.get(name, ())]
            if every := [*own, *fallbacks.get(name, ())]:
                model["fallbacks"] = every

    def _model(self, group: Iterable[tuple[Entry, float | None]]) -> dict[str, Any] | None:
        rows: list[tuple[Entry, dict[str, Any]]] = []
        for entry, weight in group:
            provider = self._addresses.name_of(entry.address, entry.key)
            if provider is None:
                self._notes.add(entry.place, "litellm knows this vendor by one name only: a second address is left out")
                continue
            row = {"deployment": f"{provider}/{entry.model}", **entry.deployment}
            if weight is not None and weight not in (0, 1):
                row["weight"] = weight
            rows.append((entry, row))
        if not rows:
            return None
        timeouts = self._timeouts(rows)
        defaults = self._defaults(rows)
        deployments = _named_apart([row for _, row in rows])
        model: dict[str, Any] = {"deployments": [_short(row) for row in deployments]}
        if len(deployments) > 1:
            model["race"] = {"mode": "auto", "budget": 1.0}
        if self._strategy == BY_COST and any(self._is_priced(entry) for entry, _ in rows):
            batch = PROFILES[Profile.BATCH]
            model["race"] = {"objective": "cost", "ttft_ms": batch["ttft_ms"], "budget": 0.0}
        if timeouts:
            model["timeouts"] = timeouts
        if (keepalive_s := next((entry.keepalive_s for entry, _ in rows if entry.keepalive_s), None)) is not None:
            model["keepalive_s"] = keepalive_s
        if defaults:
            model["defaults"] = defaults
        return model

    def _defaults(self, rows: Sequence[tuple[Entry, dict[str, Any]]]) -> dict[str, Any]:
        """Return the defaults that all deployments share; others are sent by their deployments with every request."""
        first = rows[0][0].params
        shared = {
            word: value for word, value in first.items() if all(entry.params.get(word) == value for entry, _ in rows)
        }
        for entry, row in rows:
            own = {word: value for word, value in entry.params.items() if word not in shared}
            if own:
                row["extra_body"] = {**own, **row.get("extra_body", {})}
                for word in own:
                    self._notes.add(
                        (*entry.place, "litellm_params", word),
                        "differs between the model's deployments: became extra_body, which overrides the request",
                    )
        return shared

    def _timeouts(self, rows: Sequence[tuple[Entry, dict[str, Any]]]) -> dict[str, Any]:
        """Return the timeouts that all deployments share; otherwise each keeps its own."""
        first = rows[0][0].timeouts
        if all(entry.timeouts == first for entry, _ in rows):
            return dict(first)
        for entry, row in rows:
            if entry.timeouts:
                row["timeouts"] = dict(entry.timeouts)
        return {}

    def _weights(self, entries: Sequence[Entry]) -> list[float | None]:
        """Return LiteLLM's weights, by weight, else by rpm or tpm; None for each if all are equal."""
        if any(entry.weight is not None for entry in entries):
            return [min(_MOST_WEIGHT, entry.weight or 0.0) for entry in entries]
        rates = [entry.rate for entry in entries]
        known = [rate for rate in rates if rate]
        if self._strategy not in _SHUFFLES or len(known) < len(rates) or len(set(known)) == 1:
            return [None] * len(entries)
        self._notes.add((*entries[0].place, "litellm_params"), "rpm or tpm became weights, as in LiteLLM's shuffle")
        return [round(rate / max(known), 3) or None for rate in known]


def _named_apart(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``rows`` without duplicates; different ones of the same deployment get names of their own.

    LiteLLM limits what is in flight per entry: when two entries become one deployment, their limits are added.
    """
    kept: list[dict[str, Any]] = []
    places: dict[int, int] = {}  # index among the kept rows, by row
    for number, row in enumerate(rows):
        if (first := rows.index(row)) < number:
            if isinstance(limit := row.get("max_in_flight"), int):
                kept[places[first]]["max_in_flight"] += limit
            continue
        places[number] = len(kept)
        twins = sum(other["deployment"] == row["deployment"] for other in kept)
        name = {"deployment": row["deployment"], "as": f"{row['deployment']}#{twins + 1}"} if twins else {}
        kept.append({**name, **row})
    return kept


def _short(row: dict[str, Any]) -> Any:
    return row["deployment"] if len(row) == 1 else row


# Converts LiteLLM's router settings: fallbacks, aliases, Redis and timeouts.

_LISTS: Mapping[str, Cause] = {
    "fallbacks": Cause.FAILED,
    "context_window_fallbacks": Cause.CONTEXT,
    "content_policy_fallbacks": Cause.CONTENT_FILTER,
}
FALLBACK_KEYS = frozenset({*_LISTS, "default_fallbacks"})
REDIS_KEYS = frozenset(
    {"redis_url", "redis_host", "redis_port", "redis_password", "redis_username", "redis_ssl", "redis_db"}
)
_ANY = "*"


class Fallbacks:
    """The fallbacks of models, by cause."""

    def __init__(self, models: Mapping[str, Any], aliases: Mapping[str, str], notes: Notes) -> None:
        self._models = models
        self._aliases = aliases
        self._notes = notes
        self._by_cause: dict[Cause, dict[str, list[str]]] = {}

    def read(self, data: Mapping[str, Any], place: Place) -> None:
        """Read the lists of one section; sections read earlier take precedence."""
        for key, cause in _LISTS.items():
            if cause in self._by_cause or not data.get(key):
                continue
            by_model = self._by_cause.setdefault(cause, {})
            for index, item in enumerate(items(data[key], (*place, key), self._notes)):
                for model, others in section(item, (*place, key, index), self._notes).items():
                    self._add(by_model, str(model), others, (*place, key, index, str(model)))
        if default := data.get("default_fallbacks"):
            by_model = self._by_cause.setdefault(Cause.FAILED, {})
            if _ANY not in by_model:
                self._add(by_model, _ANY, default, (*place, "default_fallbacks"))

    def of_models(self) -> dict[str, list[Any]]:
        """Return each model's fallbacks as the file has them: only the name if it is for every cause.

        As in LiteLLM, a cause without its own fallbacks uses those for failures.
        """
        result: dict[str, list[Any]] = {}
        for model in self._models:
            causes: dict[str, list[str]] = {}
            for cause in Cause:
                for other in self._of(model, cause) or self._of(model, Cause.FAILED):
                    if other != model:
                        causes.setdefault(other, []).append(cause.value)
            if causes:
                result[model] = [
                    other if len(on) == len(Cause) else {"model": other, "causes": on} for other, on in causes.items()
                ]
        return result

    def _of(self, model: str, cause: Cause) -> Sequence[str]:
        by_model = self._by_cause.get(cause, {})
        return by_model.get(model) or by_model.get(self._aliases.get(model, model)) or by_model.get(_ANY) or ()

    def _add(self, by_model: dict[str, list[str]], model: str, others: Any, place: Place) -> None:
        if model != _ANY and model not in self._models:
            self._notes.add(place, "there is no such model: its fallbacks are left out")
            return
        for index, other in enumerate([others] if isinstance(others, str) else items(others, place, self._notes)):
            here = (*place, index)
            name = other.get("model") if isinstance(other, dict) else other
            if isinstance(other, dict) and len(other) > 1:
                self._notes.add(here, "a fallback gets the unchanged request: the changes are left out")
            if isinstance(name, str) and name in self._models:
                by_model.setdefault(model, []).append(name)
            else:
                self._notes.add(here, "falls back to a model that is not in the file: left out; add it under `models`")


def _is_alone(model: Mapping[str, Any]) -> bool:
    """Whether no other deployment could answer for a model while its own is silent."""
    fallbacks = model.get("fallbacks", ())
    helps = any(isinstance(each, str) or Cause.FAILED in each["causes"] for each in fallbacks)
    return len(model["deployments"]) == 1 and not helps


def redis_url(data: Mapping[str, Any], place: Place, variables: Variables, notes: Notes) -> str | None:
    """Return the URL of the Redis in ``data``, given in parts or as a whole; None if there is none."""
    if url := data.get("redis_url"):
        return str(variables.plain(url, (*place, "redis_url")))
    host = data.get("redis_host")
    if not host:
        return None

    def part(name: str) -> Any:
        value = data.get(name)
        return None if value in (None, "") else variables.plain(value, (*place, name))

    user, database = part("redis_username"), part("redis_db")
    password = data.get("redis_password")
    login = ""
    if password:
        reference = variables.secret(password, (*place, "redis_password"), "REDIS_PASSWORD")
        login = f"{user or ''}:{reference}@"
        notes.add(
            (*place, "redis_password"), "part of a URL now: percent-encode all characters except letters and digits"
        )
    elif user:
        login = f"{user}@"
    scheme = "rediss" if data.get("redis_ssl") in (True, "true", "True") else "redis"
    port = part("redis_port") or 6379
    tail = "" if database is None else f"/{database}"
    return f"{scheme}://{login}{part('redis_host')}:{port}{tail}"


def clocks(data: Mapping[str, Any], place: Place, variables: Variables, notes: Notes) -> dict[str, Any]:
    """Return the timeouts of a section, like those of deployments."""
    for key in ("stream_timeout", "timeout", "request_timeout"):
        if data.get(key) is not None:
            value = variables.plain(data[key], (*place, key))
            if isinstance(value, int | float) or is_reference(value):
                return {"ttft_timeout_s": value, "stall_timeout_s": value}
            notes.add((*place, key), "is not a number of seconds: left out")
    return {}


# Converts LiteLLM's general settings: its database.

LEDGER = "LEDGER_DATABASE_URL"  # not HOLESHOT_…: those variables are settings themselves
_DEFAULT_LEDGER = "sqlite:///var/holeshot.db"


def ledger(general: Mapping[str, Any], place: Place, notes: Notes) -> str | None:
    """Return a ``database_url`` if LiteLLM had one: not its own, as its migrations may drop unknown tables."""
    if not general.get("database_url"):
        return None
    notes.add(
        (*place, "database_url"),
        f"LiteLLM's database has its own tables: make another one for the ledger, put its postgresql:// URL into"
        f" {LEDGER}, and run `holeshot migrate`; without it the ledger is in {_DEFAULT_LEDGER.removeprefix('sqlite:///')}",
    )
    return f"${{{LEDGER}:-{_DEFAULT_LEDGER}}}"


# Writes a converted configuration as text: its sections, and at its end the work that is left.

_WIDTH = 120
_SHORT = 16  # characters of a word that may share a line with others
_HEAD = """\
# Holeshot's configuration, made from {source} by `holeshot import litellm`; `holeshot check` validates it. ${{NAME}} is
# taken from the environment, so no key stands in this file.
"""
_WORDS: Mapping[str, str] = {
    "database_url": "Where calls and attempts are logged.",
    "redis_url": "The leaderboard that gateways share.",
    "timeouts": "LiteLLM's time-outs limit the wait for the next bytes, not a whole answer; so do these two.",
    "providers": "The providers. You may leave out what the catalog has (base URL, quirks, prices).",
    "models": "What clients ask for, and the deployments (provider/model) that race to answer. LiteLLM sends each call"
    " once: budget 0 does that; 1.0 starts one extra attempt per call, which makes answers faster.",
    "teams": "What keys of a team may use together.",
    "end_users": "What end users may use, by the name that requests give them.",
    "clients": "Who may call.",
}


class _Dumper(yaml.SafeDumper):
    """Writes all values in full, without YAML aliases for shared ones."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - likewise
        """Indent the items of lists."""
        super().increase_indent(flow, indentless=False)


def _represent_list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    """Write a short list of plain words in one line."""
    words = all(isinstance(item, str) and len(item) <= _SHORT and "{" not in item for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=words)


_Dumper.add_representer(list, _represent_list)


def written_file(config: Mapping[str, Any], source: str, notes: Sequence[Problem]) -> str:
    """Return the text of ``config``, one paragraph per section, with ``notes`` as comments at the end."""
    parts = [_HEAD.format(source=" ".join(source.split()))]
    plain = [key for key in config if key not in _WORDS]
    parts += [_section(key, config[key]) for key in (*plain, *_WORDS) if config.get(key) not in (None, {}, [])]
    if notes:
        lines = "".join(_comment(_located(note, source), hanging="  ") for note in notes)
        parts.append(f"# To be done by hand, or converted differently:\n{lines}")
    return "\n".join(parts)


def _section(key: str, value: Any) -> str:
    words = _comment(_WORDS[key]) if key in _WORDS else ""
    return words + yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


def _located(note: Problem, source: str) -> str:
    file = source if note.file is None else Path(note.file).name  # or an included one
    return str(Problem(note.message, file, note.line))


def _comment(text: str, hanging: str = "") -> str:
    lines = textwrap.wrap(
        " ".join(text.split()), _WIDTH - 2, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines)


_SECTIONS = ("router_settings", "litellm_settings", "general_settings")
_READ = {*_SECTIONS, "model_list", "environment_variables", "credential_list", "include"}
_CLOCKS = frozenset({"timeout", "stream_timeout", "request_timeout"})
_READ_OF: Mapping[str, frozenset[str]] = {
    "router_settings": FALLBACK_KEYS | REDIS_KEYS | _CLOCKS | {"routing_strategy", "model_group_alias"},
    "litellm_settings": FALLBACK_KEYS | _CLOCKS | {"drop_params", "set_verbose", "json_logs"},
    "general_settings": frozenset({"master_key", "database_url", "max_request_size_mb"}),
}


class Converted(msgspec.Struct, frozen=True):
    """A LiteLLM configuration as one of ours."""

    text: str  # of the file
    notes: tuple[Problem, ...]  # what has no counterpart or must be done by hand, in the order of LiteLLM's file
    variables: tuple[str, ...]  # used in the text, in the order of their first use
    providers: tuple[str, ...]
    models: tuple[str, ...]


def convert(
    path: Path, environ: Mapping[str, str], catalog: Catalog, table: DatasheetTable, accounts: Sequence[Path] = ()
) -> Converted:
    """Convert the file at ``path``; ``table`` knows which models have a price, for routing by cost.

    ``accounts`` are answers of LiteLLM's API about its keys, teams, users and customers. Only the master key is read
    from ``environ``; its digest is written.

    Raises:
        ConfigurationError: a file cannot be read, or is not YAML, or JSON.

    """
    return _Conversion(read_source(path), environ, catalog, table).run(path, accounts)


class _Conversion:
    """The conversion of one file."""

    def __init__(self, source: NotedFile, environ: Mapping[str, str], catalog: Catalog, table: DatasheetTable) -> None:
        self._data = source.data
        self._notes = source.notes
        self._catalog = catalog
        self._table = table
        self._variables = Variables(source.data, environ, source.notes)
        self._addresses = Addresses(catalog, self._variables, source.notes)
        self._sections = {name: section(source.data.get(name), (name,), source.notes) for name in _SECTIONS}
        self._any_model = False  # whether clients may name provider/model themselves

    def run(self, path: Path, accounts: Sequence[Path]) -> Converted:
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
        more = self._accounts(accounts, config)
        self._remark_on_the_rest()
        notes = (*self._notes.listed(), *more)
        return Converted(
            text=written_file(config, path.name, notes),
            notes=notes,
            variables=tuple(self._variables.used),
            providers=tuple(self._addresses.providers),
            models=tuple(models),
        )

    def _accounts(self, files: Sequence[Path], config: dict[str, Any]) -> Sequence[Problem]:
        """Add the accounts of LiteLLM's database; return remarks."""
        found = Accounts(config["models"])
        for file in files:
            found.read(file)
        found.convert()
        if found.clients:
            config |= {"host": "0.0.0.0", "clients": {**config.get("clients", {}), **found.clients}}  # noqa: S104 - as above
        config |= {"teams": found.teams, "end_users": found.end_users}
        if found.end_users:  # their names are kept as keyed hashes
            config["page"] = {
                "signing_key": self._variables.plain(f"os.environ/{SIGNING_KEY}", ("page", "signing_key"))
            }
        return found.notes

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
            self._addresses.add_use(entry.address, entry.key, entry.same)
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
        if alone := [name for name, model in models.models.items() if _is_alone(model)]:
            self._notes.add(
                ("model_list",),
                f"one deployment and no fallback for failures: {', '.join(alone)}; nobody else answers while it"
                " hangs or fails: add a deployment, or `fallbacks`",
            )
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
        for name, settings in self._sections.items():
            for key, value in settings.items():
                if key not in _READ_OF[name] and is_set(value):
                    self._notes.add((name, str(key)), fields().remark(name, str(key)) or UNKNOWN)
        for name, value in self._data.items():
            if name not in _READ and is_set(value):
                self._notes.add((name,), fields().remark("sections", name) or UNKNOWN)
        self._variables.remark_on_own()


def _is_wildcard(entry: Entry) -> bool:
    return "*" in entry.name or "*" in entry.model
