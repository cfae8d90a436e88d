"""What a command about keys needs of the configuration, without the providers' keys."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
from pydantic import SecretStr

from gateway.settings.model import ClientSettings
from gateway.settings.slo import TargetSettings


class Watched(msgspec.Struct, frozen=True):
    """What a command about targets needs."""

    database_url: SecretStr
    slo: Mapping[str, TargetSettings]
    burn_least_bad: int  # of alerts


class Installation(msgspec.Struct, frozen=True):
    """Where the keys are, and what clients may name; None if that is not in the configuration."""

    is_database: bool
    database_url: SecretStr
    clients: Mapping[str, ClientSettings]
    models: Collection[str] | None
    providers: Collection[str] | None


def deployed(models: Any) -> Iterator[str]:
    """Yield the providers that the deployments of ``models`` name, as far as they can be read."""
    for model in models.values() if isinstance(models, dict) else ():
        deployments = model.get("deployments") if isinstance(model, dict) else None
        for each in deployments if isinstance(deployments, list) else ():
            named = each.get("deployment") if isinstance(each, dict) else each
            yield str(named).partition("/")[0]
