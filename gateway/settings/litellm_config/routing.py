"""Converts LiteLLM's router settings: fallbacks, aliases, Redis and timeouts."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.settings.fallbacks import Cause
from gateway.settings.litellm_config.notes import Notes, items, section
from gateway.settings.litellm_config.variables import Variables, is_reference
from gateway.settings.problems import Place

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
        self._asked: dict[Cause, dict[str, list[str]]] = {}

    def read(self, data: Mapping[str, Any], place: Place) -> None:
        """Read the lists of one section; sections read earlier take precedence."""
        for key, cause in _LISTS.items():
            if cause in self._asked or not data.get(key):
                continue
            asked = self._asked.setdefault(cause, {})
            for index, item in enumerate(items(data[key], (*place, key), self._notes)):
                for model, others in section(item, (*place, key, index), self._notes).items():
                    self._add(asked, str(model), others, (*place, key, index, str(model)))
        if default := data.get("default_fallbacks"):
            asked = self._asked.setdefault(Cause.FAILED, {})
            if _ANY not in asked:
                self._add(asked, _ANY, default, (*place, "default_fallbacks"))

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
        asked = self._asked.get(cause, {})
        return asked.get(model) or asked.get(self._aliases.get(model, model)) or asked.get(_ANY) or ()

    def _add(self, asked: dict[str, list[str]], model: str, others: Any, place: Place) -> None:
        if model != _ANY and model not in self._models:
            self._notes.add(place, "there is no such model: its fallbacks are left out")
            return
        for index, other in enumerate([others] if isinstance(others, str) else items(others, place, self._notes)):
            here = (*place, index)
            name = other.get("model") if isinstance(other, dict) else other
            if isinstance(other, dict) and len(other) > 1:
                self._notes.add(here, "a fallback gets the unchanged request: the changes are left out")
            if isinstance(name, str) and name in self._models:
                asked.setdefault(model, []).append(name)
            else:
                self._notes.add(here, "falls back to a model that is not in the file: left out; add it under `models`")


def redis_url(data: Mapping[str, Any], place: Place, variables: Variables, notes: Notes) -> str | None:
    """Return the URL of the Redis in ``data``, given in parts or as a whole; None if there is none."""
    if url := data.get("redis_url"):
        return str(variables.plain(url, (*place, "redis_url")))
    host = data.get("redis_host")
    if not host:
        return None

    def said(name: str) -> Any:
        value = data.get(name)
        return None if value in (None, "") else variables.plain(value, (*place, name))

    user, database = said("redis_username"), said("redis_db")
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
    port = said("redis_port") or 6379
    tail = "" if database is None else f"/{database}"
    return f"{scheme}://{login}{said('redis_host')}:{port}{tail}"


def clocks(data: Mapping[str, Any], place: Place, variables: Variables, notes: Notes) -> dict[str, Any]:
    """Return the timeouts of a section, like those of deployments."""
    for key in ("stream_timeout", "timeout", "request_timeout"):
        if data.get(key) is not None:
            value = variables.plain(data[key], (*place, key))
            if isinstance(value, int | float) or is_reference(value):
                return {"ttft_timeout_s": value, "stall_timeout_s": value}
            notes.add((*place, key), "is not a number of seconds: left out")
    return {}
