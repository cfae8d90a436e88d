"""OpenRouter's provider slugs, and the deployments they match here.

A slug is a provider's name, ``deepinfra``, or one of its endpoints, ``deepinfra/fp8``, ``google-vertex/europe``.
Case and punctuation are ignored. The part after the slash is a quantization, a region, or a word in the name of the
provider's model.
"""

import re
from collections.abc import Mapping
from enum import Enum, auto

import msgspec

from gateway.fleet.deployment import Deployment

_NO_LETTER = re.compile(r"[^a-z0-9]+")
_QUANTIZATIONS = frozenset({"int4", "int8", "fp4", "fp6", "fp8", "fp16", "bf16", "fp32", "mxfp4", "nvfp4"})

# OpenRouter's vendors that have another name in the catalog; without punctuation.
_CALLED: Mapping[str, str] = {
    "alibaba": "dashscope",
    "amazonbedrock": "bedrock",
    "azureopenai": "azure",
    "featherlessai": "featherless",
    "fireworksai": "fireworks",
    "friendliai": "friendli",
    "google": "gemini",
    "googleaistudio": "gemini",
    "googlevertex": "vertexai",
    "mistralai": "mistral",
    "moonshotai": "moonshot",
    "nebiustokenfactory": "nebius",
    "nvidia": "nvidianim",
    "togetherai": "together",
}


class Match(Enum):
    """Whether a slug matches a deployment."""

    YES = auto()
    MAYBE = auto()  # the provider matches; whether this endpoint does is unknown
    NO = auto()


class _Routing(msgspec.Struct):
    only: list[str] = []
    order: list[str] = []


def matches(slug: str, deployment: Deployment) -> Match:
    """Return whether ``slug`` matches ``deployment``."""
    provider, slash, variant = slug.strip().partition("/")
    if _called(provider) not in _names(deployment):
        return Match.NO
    return _matches_variant(variant.lower(), deployment) if slash and variant else Match.YES


def _matches_variant(variant: str, deployment: Deployment) -> Match:
    if variant in _QUANTIZATIONS:
        known = deployment.quantization
        return Match.MAYBE if known is None else Match.YES if known.lower() == variant else Match.NO
    region = (deployment.region or "").lower()
    if region and (region == variant or region.startswith(f"{variant}-")):
        return Match.YES
    if _plain(variant) in _plain(deployment.model):
        return Match.YES
    return Match.MAYBE if deployment.region is None else Match.NO


def _names(deployment: Deployment) -> set[str]:
    """Return the names of a deployment's provider, and of the vendor behind an aggregator."""
    names = {_called(deployment.provider)}
    if deployment.vendor is not None:
        names.add(_plain(deployment.vendor))
    if (raw := deployment.extra_body.get("provider")) is not None:
        try:  # one vendor behind an aggregator: {provider: {only: [Minimax]}}
            routing = msgspec.json.decode(raw, type=_Routing)
        except msgspec.DecodeError:
            return names
        named = routing.only or routing.order
        if len(named) == 1:
            names.add(_called(named[0].partition("/")[0]))
    return names


def _called(name: str) -> str:
    plain = _plain(name)
    return _CALLED.get(plain, plain)


def _plain(name: str) -> str:
    return _NO_LETTER.sub("", name.lower())
