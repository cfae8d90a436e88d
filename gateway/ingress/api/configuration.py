"""GET /api/configuration: what is configured, without its secrets."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from aiohttp import web
from pydantic import BaseModel, SecretStr

from gateway.fleet.deployment import Deployment
from gateway.ingress.api.answers import answer
from gateway.ingress.api.asked import NoQuery, asked
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.visitors import admit_visitor
from gateway.settings.model import ModelSettings
from providers.prices import Price
from providers.redaction import MASK, redact

# Places where an operator may have put a secret though it is not the place for one: parameters of bodies and of URLs.
_SECRET = re.compile(r"key|secret|token$|password|passwd|credential|authorization|signature|cookie", re.IGNORECASE)
_PER_MILLION = 1_000_000


async def configuration(request: web.Request) -> web.Response:
    """Return the settings in force, defaults included; models with what is known of their deployments."""
    admit_visitor(request)
    asked(request, NoQuery)
    context = request.app[CONTEXT]
    settings = context.settings
    return answer(
        request,
        {
            "settings": shown({name: getattr(settings, name) for name in _plain_names(context)}),
            "models": [_model(context, name, model) for name, model in settings.models.items()],
            "providers": [{"name": name, **shown(each)} for name, each in settings.providers.items()],
        },
    )


def shown(value: Any) -> Any:
    """Return a value of the settings as JSON; secrets, and what looks like one, are ``***``."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        value = {field.alias or name: getattr(value, name) for name, field in fields.items()}
    if isinstance(value, Mapping):
        return {str(name): _under(str(name), entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [shown(entry) for entry in value]
    if isinstance(value, str):
        return redact(value)
    return value if value is None or isinstance(value, bool | int | float | datetime) else str(value)


def _under(name: str, value: Any) -> Any:
    is_secret = isinstance(value, str | list | tuple) and value and _SECRET.search(name) and name not in _HARMLESS
    return MASK if is_secret else shown(value)


_HARMLESS = frozenset({"keys", "region", "regions"})  # keys: where they are, file or database


def _plain_names(context: Context) -> list[str]:
    return [name for name in type(context.settings).model_fields if name not in {"models", "providers"}]


def _model(context: Context, name: str, settings: ModelSettings) -> dict[str, Any]:
    """Return a model with its deployments, each with what its settings leave to the catalog."""
    known = context.fleet.models[name].deployments
    described = shown(settings)
    described["deployments"] = [
        {**written, "name": each.name, **_resolved(known.get(each.name))}
        for each, written in zip(settings.deployments, described["deployments"], strict=True)
    ]
    return {"name": name, **described}


def _resolved(deployment: Deployment | None) -> dict[str, Any]:
    """Return the facts of a deployment in use; of a disabled one none are resolved."""
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


def priced(price: Price | None) -> dict[str, float] | None:
    """Return a price in US dollars per million tokens; None if it is unknown."""
    if price is None:
        return None
    return {"prompt": round(price.input_usd * _PER_MILLION, 6), "completion": round(price.output_usd * _PER_MILLION, 6)}
