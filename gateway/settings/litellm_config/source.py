"""Reads LiteLLM's file, the files it includes and the credentials it names, with the lines of its keys."""

from pathlib import Path
from typing import Any

import msgspec

from gateway.settings.document import read_document
from gateway.settings.litellm_config.notes import Notes, items, section
from gateway.settings.problems import ConfigurationError


class Source(msgspec.Struct, frozen=True):
    """The content of the file, and the collector of remarks on it."""

    data: dict[str, Any]
    notes: Notes


def read_source(path: Path) -> Source:
    """Read the file at ``path``.

    Raises:
        ConfigurationError: it cannot be read, is not YAML, or not a LiteLLM configuration.

    """
    document = read_document(path)
    if document.problems and not document.data:
        raise ConfigurationError(document.problems)
    notes = Notes(str(path), document.lines)
    notes.problems.extend(document.problems)
    data = dict(document.data)
    for index, name in enumerate(items(data.pop("include", None), ("include",), notes)):
        _include(data, path.parent / str(name), ("include", index), notes)
    return Source(_with_credentials(data, notes), notes)


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
