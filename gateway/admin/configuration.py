"""GET /api/configuration: the settings in force, without secrets, and the facts known of each deployment."""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from pydantic import BaseModel, SecretStr

from gateway.admin import answers
from gateway.admin.queries import NoQuery, answer, parse_query
from gateway.admin.visitors import admit_visitor
from gateway.api import CONTEXT
from gateway.fleet import Deployment, Fleet
from gateway.http import BodyWork
from gateway.settings import ModelSettings
from providers import MASK, ClientSecrets, Price, redact

# Other places where an operator may have put a secret: parameters of bodies and of URLs.
_SECRET = re.compile(
    r"key|secret|tokens?$|passw|passphrase|credential|authoriz|authentic|signature|cookie|bearer|webhook"
    r"|(?<![a-z])(auth|code|dsn|pat|pwd|sas|sig)(?![a-z])",
    re.IGNORECASE,
)
_COUNT = re.compile(r"tokens?$", re.IGNORECASE)  # a count is not a secret
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<==)[^&#\s]+")
_PER_MILLION = 1_000_000
PARTS_A_TURN = 5  # models, clients or providers; a model takes half a millisecond


async def configuration(request: web.Request) -> web.Response:
    """Return the settings in force, defaults included, and the facts known of each model's deployments."""
    admit_visitor(request)
    parse_query(request, NoQuery)
    context = request.app[CONTEXT]
    settings, fleet, work = context.settings, context.fleet, context.body_work
    found = await work.made((tuple(_secrets(part)) for part in _parts(settings)), PARTS_A_TURN)
    secrets = ClientSecrets(chain.from_iterable(found))
    plain = {
        name: await _shown_in_slices(work, name, getattr(settings, name), secrets) for name in _plain_names(settings)
    }
    models = (_model(fleet, name, model, secrets) for name, model in settings.models.items())
    providers = ({"name": name, **shown(each, secrets)} for name, each in settings.providers.items())
    return answer(
        request,
        answers.Configuration(
            settings=plain
            | {name: _address(getattr(settings, name)) for name in _ADDRESSES if getattr(settings, name) is not None},
            models=await work.pieces(models, PARTS_A_TURN),
            providers=await work.pieces(providers, PARTS_A_TURN),
        ),
    )


def _parts(settings: BaseModel) -> Iterator[Any]:
    """Yield each value of the settings; of what they have by name (models, clients, …), each entry."""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        yield from value.values() if isinstance(value, Mapping) else (value,)


async def _shown_in_slices(work: BodyWork, name: str, value: Any, secrets: Collection[str]) -> Any:
    """Return what ``shown`` does of a value of this name; of thousands of clients, some in a turn of the loop."""
    if not isinstance(value, Mapping) or _is_secret(name):
        return _under(name, value, secrets)
    entries = (_under(str(each), entry, secrets) for each, entry in value.items())
    return dict(zip(map(str, value), await work.pieces(entries, PARTS_A_TURN), strict=True))


def shown(value: Any, secrets: Collection[str] = ()) -> Any:
    """Return a value of the settings as JSON; secrets, and values that look like secrets, become ``***``.

    ``secrets`` are masked in every text: an operator may have put a key into an address too.
    """
    if value is None or isinstance(value, bool | int | float | datetime):
        return value
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        value = {field.alias or name: getattr(value, name) for name, field in fields.items()}
    if isinstance(value, Mapping):
        return {str(name): _under(str(name), entry, secrets) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [shown(entry, secrets) for entry in value]
    if isinstance(value, str):
        return _text(value, secrets)
    return str(value)


def _under(name: str, value: Any, secrets: Collection[str]) -> Any:
    if not _is_secret(name):
        return shown(value, secrets)
    if isinstance(value, Mapping) and all(isinstance(entry, SecretStr) for entry in value.values()):
        return shown(value, secrets)  # a provider's keys have names
    is_secret = isinstance(value, str | list | tuple | Mapping) and value
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and not _COUNT.search(name)
    return MASK if is_secret or is_number else shown(value, secrets)


@lru_cache(maxsize=1024)  # the same names are in each model and client
def _is_secret(name: str) -> bool:
    return name not in _HARMLESS and _SECRET.search(name) is not None


def _text(value: str, secrets: Collection[str]) -> str:
    """Return a text without secrets; from an address, the values of its parameters are removed too."""
    value = redact(value, secrets)
    if not _URL.match(value) or "?" not in value:
        return value
    address, _, query = value.partition("?")
    return f"{address}?{_PARAMETER.sub(MASK, query)}"


_ADDRESSES = ("database_url", "reports_database_url", "redis_url")


def _address(secret: SecretStr) -> str:
    """Return the address of a store: which one it is, without password and parameters.

    All of it is masked if a password has characters that belong elsewhere in an address.
    """
    address = secret.get_secret_value()
    parts = urlsplit(address)
    if address.count("@") > parts.netloc.count("@") or parts.netloc.count("@") > 1:
        return MASK
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{parts.scheme}://{name}{f':{MASK}' if colon else ''}{at}{host}{parts.path}"


def _secrets(value: Any) -> Iterator[str]:
    """Yield the secrets of the settings, except plain words, which the value of a header may be."""
    if value is None or isinstance(value, str | int | float):
        return
    if isinstance(value, SecretStr):
        written = value.get_secret_value()
        yield from (each for each in {written, *written.split()} if not each.isalpha())
        if _URL.match(written) and (password := urlsplit(written).password):
            yield password
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _secrets(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _secrets(entry)


_HARMLESS = frozenset({"keys", "region", "regions"})  # keys: where they are, file or database


def _plain_names(settings: BaseModel) -> list[str]:
    return [name for name in type(settings).model_fields if name not in {"models", "providers"}]


def _model(fleet: Fleet, name: str, settings: ModelSettings, secrets: Collection[str]) -> dict[str, Any]:
    """Return a model with its deployments, each with the values that its settings leave to the catalog."""
    known = fleet.configured[name].deployments
    described = shown(settings, secrets)
    described["deployments"] = [
        {**written, "name": each.name, **_resolved(known.get(each.name))}
        for each, written in zip(settings.deployments, described["deployments"], strict=True)
    ]
    return {"name": name, **described}


def _resolved(deployment: Deployment | None) -> dict[str, Any]:
    """Return the facts of a deployment in use; those of a disabled one are not resolved."""
    if deployment is None:
        return {"provider": None, "price": None}
    return {
        "provider": deployment.provider,
        "price": priced(deployment.price),
        "capabilities": msgspec.structs.asdict(deployment.capabilities),
        "apis": sorted(deployment.apis),
        "bills_after_disconnect": deployment.bills_after_disconnect,
        "zdr": deployment.zdr,
        "region": deployment.region,
        "quantization": deployment.quantization,
    }


def priced(price: Price | None) -> answers.PagePrice | None:
    """Return a price in US dollars per million tokens; None if it is unknown."""
    if price is None:
        return None
    return answers.PagePrice(*(round(usd * _PER_MILLION, 6) for usd in (price.input_usd, price.output_usd)))
