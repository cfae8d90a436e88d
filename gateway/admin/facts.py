"""/admin/facts: lists what refusals have taught about deployments (when, why, by whom), and forgets a fact."""

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated

import msgspec
from aiohttp import web

from gateway.admin.keys import uncached
from gateway.api import CONTEXT, Context
from gateway.core.errors import NotFound
from providers import FORMER, LearntFacts, ListedFact

_ID_CHARS = 16


class ShownFact(msgspec.Struct, frozen=True):
    """A fact that a refusal has taught about a deployment."""

    id: str
    deployment: str
    refuses: Annotated[str, msgspec.Meta(description="What it refuses, and what is sent in its place.")]
    clients: Annotated[
        list[str], msgspec.Meta(description="Who has met it; empty: a call without a client, or that is not known.")
    ]
    for_all: Annotated[
        bool, msgspec.Meta(description="Whether it holds for all clients; else for those that have met it alone.")
    ]
    why: Annotated[str, msgspec.Meta(description="The status of the refusal, and the provider's code and type.")]
    met_at: Annotated[datetime | None, msgspec.Meta(description="When it was met first.")]
    until: datetime


class ShownFacts(msgspec.Struct, frozen=True):
    """The facts that refusals have taught about deployments, with any of the operator's keys."""

    data: list[ShownFact]


async def list_facts(request: web.Request) -> web.Response:
    """Return the facts that this process knows."""
    context = request.app[CONTEXT]
    context.admission.admit_viewer(request)
    return uncached(ShownFacts([shown for shown, *_ in _facts(context)]))


async def forget_fact(request: web.Request) -> web.Response:
    """Forget a fact for all clients, in all replicas; return it.

    Raises:
        NotFound: there is none of this id.

    """
    context = request.app[CONTEXT]
    context.admission.admit_admin(request)
    wanted = request.match_info["id"]
    found = [each for each in _facts(context) if each[0].id == wanted]
    if not found:
        raise NotFound("there is no such fact: GET /admin/facts lists them")
    for _, learnt, known in found:
        learnt.drop(known.model, known.fact)
    return uncached(ShownFacts([shown for shown, *_ in found]))


def _facts(context: Context) -> Iterator[tuple[ShownFact, LearntFacts, ListedFact]]:
    deployments = [each for model in context.fleet.models.values() for each in model.deployments.values()]
    by_provider = {each.provider: each.learnt for each in deployments if each.learnt is not None}
    for provider, learnt in by_provider.items():
        for known in learnt.listed():
            yield _shown(provider, known), learnt, known


def _shown(provider: str, known: ListedFact) -> ShownFact:
    met = known.met
    named = msgspec.json.encode((provider, known.model, known.fact))
    return ShownFact(
        id=sha256(named).hexdigest()[:_ID_CHARS],
        deployment=f"{provider}/{known.model}",
        refuses=known.fact.words,
        clients=[each for each in met.clients if each is not None and each != FORMER],
        for_all=met.is_for_all,
        why=met.why,
        met_at=datetime.fromtimestamp(met.at, UTC) if met.at else None,
        until=datetime.fromtimestamp(met.until, UTC),
    )
