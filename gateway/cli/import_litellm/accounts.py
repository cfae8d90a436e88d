"""Converts the accounts of a LiteLLM proxy: its master key, and the keys, teams, users and customers of its database.

The keys, teams, users and customers are read from saved answers of LiteLLM's API:
``/key/list?return_full_object=true``, ``/team/list``, ``/user/list`` and ``/customer/list``. LiteLLM stores the SHA-256
of a key, as Holeshot does, so keys go on working.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from gateway.cli.import_litellm.source import ENVIRON, LiteLlmSection, unused
from gateway.settings import ConfigurationError, Problem

SIGNING_KEY = "PAGE_SIGNING_KEY"  # the name of a variable

_LISTS = ("keys", "teams", "users", "customers", "data")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LIMITS = {"rpm_limit": "rpm", "tpm_limit": "tpm", "max_parallel_requests": "max_parallel"}
_PERIODS = {
    "": "usd_total",  # such a budget never begins again
    **dict.fromkeys(("1h", "60m", "3600s"), "usd_per_hour"),
    **dict.fromkeys(("1d", "24h"), "usd_per_day"),
    **dict.fromkeys(("7d", "1w"), "usd_per_week"),
    **dict.fromkeys(("30d", "31d", "1mo"), "usd_per_month"),
}
_ALL = frozenset({"all-proxy-models", "all-team-models", "*"})
_BUDGET = "litellm_budget_table"

CLIENT = "litellm-master"


def client(section: LiteLlmSection, field: str) -> dict[str, Any]:
    """Return the entry of ``clients`` for LiteLLM's master key, with only the key's digest."""
    key, place, variables = section.take(field), section.at(field), section.variables
    became = f"became client {CLIENT!r}, known by the key's SHA-256"
    if (value := variables.value_of(key)) is not None:
        section.remark(f"{became}; give each user a key with `holeshot keys new NAME`", field)
        return {"key_sha256": hashlib.sha256(value.encode()).hexdigest(), "admin": True}
    name = f"{str(key).removeprefix(ENVIRON)}_SHA256"
    section.remark(
        f"{became}, which must be in {name}:"
        ' printf %s "$KEY" | sha256sum; better, make new keys with `holeshot keys new NAME`',
        field,
    )
    return {"key_sha256": variables.plain(f"{ENVIRON}{name}", place), "admin": True}


_Kind = Literal["key", "team", "user", "customer"]


class Accounts:
    """Builds ``teams``, ``clients`` and ``end_users`` from files, for the ``models`` of the configuration."""

    def __init__(self, models: Collection[str]) -> None:
        self._models = models
        self._rows: dict[_Kind, list[tuple[str, dict[str, Any]]]] = {kind: [] for kind in get_args(_Kind)}
        self._taken: set[str] = set()
        self.notes: list[Problem] = []
        self.teams: dict[str, dict[str, Any]] = {}
        self.clients: dict[str, dict[str, Any]] = {}
        self.end_users: dict[str, Any] = {}

    def read(self, path: Path) -> None:
        """Read one answer.

        Raises:
            ConfigurationError: the file cannot be read, or is no list of LiteLLM's.

        """
        try:
            answer = msgspec.json.decode(path.read_bytes())
        except UnicodeDecodeError:
            raise ConfigurationError([Problem("cannot be read: is not UTF-8 text", str(path))]) from None
        except (OSError, msgspec.DecodeError) as error:
            words = error.strerror if isinstance(error, OSError) else "is not JSON"
            raise ConfigurationError([Problem(f"cannot be read: {words}", str(path))]) from None
        rows = next((answer[name] for name in _LISTS if name in answer), answer) if isinstance(answer, dict) else answer
        if not isinstance(rows, list):
            raise ConfigurationError([Problem("is no list of keys, teams, users or customers", str(path))])
        for row in rows:
            kind = _kind(row)
            if kind is None:
                why = "names a key only: ask /key/list with return_full_object=true" if isinstance(row, str) else _NONE
                self._note(str(path), f"a row {why}")
            else:
                self._rows[kind].append((str(path), row))

    def convert(self) -> None:
        """Convert all rows that were read."""
        teams = {row["team_id"]: self._payer(file, row, "team_alias", "team_id") for file, row in self._rows["team"]}
        models = {row["team_id"]: row.get("models") for _, row in self._rows["team"]}
        users = {row["user_id"]: self._payer(file, row, "user_email", "user_id") for file, row in self._rows["user"]}
        for file, row in self._rows["key"]:
            # As in LiteLLM: a key of a team has the team's budget, not its user's.
            of = teams.get(row["team_id"]) if row.get("team_id") else users.get(row.get("user_id"))
            if row.get("team_id") and row["team_id"] not in teams:
                self._note(file, f"{self._named(row)}: its team is in none of the files: left out")
                continue
            self._key(file, row, of, models.get(row.get("team_id")))
        named = {}
        for file, row in self._rows["customer"]:
            if (limits := self._limits(file, row, f"customer {row['user_id']!r}")) is None:
                self._note(file, f"customer {row['user_id']!r} is blocked: end users cannot be, so it is left out")
            elif limits:
                named[str(row["user_id"])] = limits
        if named:
            self.end_users = {"named": named}
        if any(row.get("spend") for rows in self._rows.values() for _, row in rows):
            self._note(None, "what keys, teams and customers have spent is not carried over: budgets begin at zero")

    def _payer(self, file: str, row: Mapping[str, Any], *names: str) -> str | None:
        """Add a team and return its name; None for an internal user without limits, who becomes no team.

        Internal users with limits become teams, for their keys without a team.
        """
        name = self._unused(next(str(row[each]) for each in names if row.get(each)))
        limits = self._limits(file, row, f"{_kind(row)} {name!r}")
        if limits is None:
            self._note(file, f"{_kind(row)} {name!r} is blocked: set its limits, or remove its keys")
        if not limits and _kind(row) == "user":
            self._taken.discard(name)
            return None
        self.teams[name] = limits or {}
        return name

    def _key(self, file: str, row: Mapping[str, Any], team: str | None, of_team: Any) -> None:
        label = self._named(row)
        if _DIGEST.fullmatch(str(row["token"])) is None:
            self._note(file, f"{label} is not a SHA-256: left out, make a new one with `holeshot keys new NAME`")
            return
        limits = self._limits(file, row, label)
        if limits is None:
            self._note(file, f"{label} is blocked: left out")
            return
        entry: dict[str, Any] = {"key_sha256": row["token"], **limits}
        if team is not None:
            entry["team"] = team
        if row.get("expires"):
            entry["expires"] = row["expires"]
        wanted = [each for each in _texts(row.get("models")) if each not in _ALL] or [
            each for each in _texts(of_team) if each not in _ALL
        ]
        known = [each for each in wanted if each in self._models]
        if len(known) < len(wanted):
            unknown = ", ".join(each for each in wanted if each not in known)
            self._note(file, f"{label} may use models that this configuration does not have: {unknown}")
        if wanted and not known:
            self._note(file, f"{label} has no model left: left out")
            return
        if known:
            entry["models"] = known
        self.clients[self._unused(_name(row))] = entry

    def _limits(self, file: str, row: Mapping[str, Any], label: str) -> dict[str, Any] | None:
        """Return the limits of a row and of its budget; None if the row is blocked, or a limit is 0."""
        budget = row.get(_BUDGET)
        own = {name: value for name, value in row.items() if value is not None}
        values = {**(budget if isinstance(budget, dict) else {}), **own}
        limits = {ours: values[name] for name, ours in _LIMITS.items() if _is_number(values.get(name))}
        if _is_number(most := values.get("max_budget")):
            period = str(values.get("budget_duration") or "")
            if (ours := _PERIODS.get(period.lower())) is None:
                self._note(
                    file,
                    f"{label} has a budget of {period}: here they are of an hour, day, week or month: left out",
                )
            else:
                limits[ours] = most
        if values.get("model_max_budget") or values.get("soft_budget"):
            self._note(file, f"{label}: a budget by model, or one that only warns, has no counterpart: left out")
        return None if values.get("blocked") is True or any(value <= 0 for value in limits.values()) else limits

    def _named(self, row: Mapping[str, Any]) -> str:
        return f"the key {_name(row)!r}"

    def _unused(self, name: str) -> str:
        self._taken.add(free := unused(name, self._taken))
        return free

    def _note(self, file: str | None, words: str) -> None:
        self.notes.append(Problem(words, file))


_NONE = "is no key, team, user or customer: left out"


def _kind(row: Any) -> _Kind | None:
    if not isinstance(row, dict):
        return None
    if isinstance(row.get("token"), str):
        return "key"
    if isinstance(row.get("user_id"), str):
        return "user" if "user_role" in row or "user_email" in row else "customer"
    return "team" if isinstance(row.get("team_id"), str) else None


def _name(row: Mapping[str, Any]) -> str:
    """Return a key's name; LiteLLM's ``key_name`` has the key's last characters, which are not shown."""
    return str(row.get("key_alias") or f"key-{str(row['token'])[:8]}")


def _texts(value: Any) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
