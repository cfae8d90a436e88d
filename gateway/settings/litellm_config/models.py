"""Converts LiteLLM's groups of deployments to models, with their fallbacks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gateway.settings.litellm_config.addresses import Addresses
from gateway.settings.litellm_config.deployments import Entry
from gateway.settings.litellm_config.notes import Notes
from gateway.settings.problems import Place
from gateway.settings.profiles import PROFILES, Profile

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
                f"`order` and weight 0 became fallbacks: {', '.join(later)}, used when all of {public} failed",
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
