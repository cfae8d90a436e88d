"""The names of a model at its sellers, for deployments that name only a provider (``deployments: [foundry]``)."""

import difflib
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.settings.deployment import DeploymentSettings
from gateway.settings.model import Settings
from gateway.settings.model_names import model_identity
from gateway.settings.patterns import is_pattern
from gateway.settings.presets import Catalog, vendor_of
from providers import DatasheetTable, Vendor

# What sellers add to a model's name: Bedrock's profiles and versions, Vertex AI's ``@default``, a brand.
_AROUND = re.compile(r"^(?:(?P<scope>[a-z-]+)\.)?anthropic\.|^databricks-|@default$|-v\d+(?::\d+)?$")
_ELSEWHERE = re.compile(
    r"^(?:[a-z]{2,3}(?:-[a-z]+)+-\d+|claude_platform|invoke|converse)/"
)  # names of other rows, or of regions
_REGION = re.compile(r"[.-]([a-z]{2,3}(?:-[a-z]{1,20}){1,4}-\d{1,3})\.")
_FAR_EAST = ("apac", "jp", "au")
_SHOWN = 3


def with_names(settings: Settings, catalog: Catalog) -> Settings:
    """Return ``settings`` where each deployment names a model, if the price table knows the model's name there."""
    bare = [name for name, model in settings.models.items() if any(map(_is_bare, model.deployments))]
    if not bare:
        return settings
    table = DatasheetTable.shipped(settings.prices.file)
    models = dict(settings.models)
    for name in bare:
        named = tuple(_named(each, name, settings, catalog, table) for each in models[name].deployments)
        models[name] = models[name].model_copy(update={"deployments": named})
    return settings.model_copy(update={"models": models})


def unnamed(item: DeploymentSettings, model: str, settings: Settings, catalog: Catalog) -> str | None:
    """Return what to do about a deployment that still names only a provider; None: the deployment names a model."""
    if not _is_bare(item):
        return None
    name = item.deployment
    provider = settings.providers.get(name)
    if provider is None:
        return f"{name!r} is not a deployment; write provider/model, for example groq/openai/gpt-oss-120b"
    if is_pattern(model):
        return f"{name!r} names no model; for all that {model!r} stands for write {name}/{model}"
    vendor, table = vendor_of(name, provider, catalog), DatasheetTable.shipped(settings.prices.file)
    there = [] if vendor is None else _names(vendor, table)
    plain = {_plain(each).rpartition("/")[2]: each for each in reversed(there)}
    near = [
        (vendor and name_at(each, provider.base_url, vendor, table)) or plain[each]
        for each in difflib.get_close_matches(model, plain, n=_SHOWN)
    ]
    known = f": it has {', '.join(f'{name}/{each}' for each in near)}" if near else ""
    return f"{name!r} names no model, and what {model!r} is called there is not known{known}; write {name}/MODEL"


def _is_bare(item: DeploymentSettings) -> bool:
    return "/" not in item.deployment


def _named(
    item: DeploymentSettings, model: str, settings: Settings, catalog: Catalog, table: DatasheetTable
) -> DeploymentSettings:
    provider = settings.providers.get(item.deployment)
    if not _is_bare(item) or provider is None or is_pattern(model):
        return item
    vendor = vendor_of(item.deployment, provider, catalog)
    name = None if vendor is None else name_at(model, provider.base_url, vendor, table)
    return item if name is None else item.model_copy(update={"deployment": f"{item.deployment}/{name}"})


def name_at(model: str, base_url: str | None, vendor: Vendor, table: DatasheetTable) -> str | None:
    """Return the name of ``model`` at an address; None: the table has no such model of this vendor."""
    wanted = model_identity(model)
    found = [each for each in _names(vendor, table) if model_identity(_plain(each)) == wanted]
    scopes = _scopes(base_url or "")
    ranked = [(_rank(each, scopes), each != model, len(each), each) for each in found if _rank(each, scopes) >= 0]
    return min(ranked)[-1] if ranked else None


def _names(vendor: Vendor, table: DatasheetTable) -> Sequence[str]:
    if vendor.litellm_prefix is None:
        return []
    return [each for each in table.names_of(vendor.litellm_prefix) if not _ELSEWHERE.match(each)]


def _plain(name: str) -> str:
    return _AROUND.sub("", _AROUND.sub("", name))


def _scopes(base_url: str) -> tuple[str, ...]:
    """Return the scopes of Bedrock's profiles that fit an address, the nearest first; "": of a name without a scope."""
    found = _REGION.search(urlsplit(base_url).netloc)
    region = "" if found is None else found[1]
    if region.startswith("us-gov-"):
        return ("us-gov", "")
    own = _FAR_EAST if region.startswith("ap-") else (region.partition("-")[0],)
    return (*(each for each in own if each), "global", "")


def _rank(name: str, scopes: tuple[str, ...]) -> int:
    """Return the place of a name's scope among ``scopes``; -1: the name has a scope of other regions."""
    found = _AROUND.match(name)
    scope = "" if found is None else found["scope"] or ""
    return scopes.index(scope) if scope in scopes else -1
