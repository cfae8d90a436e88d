"""What is decided once for all requests of one shape, whatever their prompts: who fits, with which settings, and why.

A shape is what a request says besides its prompt, its sizes and its limits. What is decided of one holds for one client
and one fleet, so it is kept with the fleet, by client: a reload begins with a new fleet, and a change of a client's
rights with a new ``Client``. It is decided by the usual steps (``plan_call``), and kept only if none of them has
looked at the prompt. What changes by itself is never kept: health, estimates, budgets, seats, limits, and what
refusals teach; see ``Decided.holds_for``.
"""

from typing import Any

import msgspec

from gateway.api.client import Client
from gateway.api.fitting import Fitting, is_foreign, is_sealed
from gateway.api.overrides import NOTHING, RaceOverride
from gateway.api.preferences import NOTHING as NO_PREFERENCES
from gateway.api.request import ParsedRequest
from gateway.api.resolved_model import REFUSE
from gateway.core.attempts import AnswerKind, WinOn
from gateway.core.calls import Call
from gateway.fleet.fleet import Fleet
from gateway.fleet.models import Model
from gateway.racing import answer_kind
from gateway.steering import NO_DEMANDS, Terms

MOST_CLIENTS = 256  # of a fleet; the one that called longest ago goes first
MOST_SHAPES = 16  # of a client, likewise: who varies them drives out none of others; a few kB each


class Shape(msgspec.Struct, frozen=True, gc=False):
    """What of a request decides how it is answered, besides its prompt and its sizes."""

    model: str
    dialect: str
    stream: bool
    stateful: bool
    for_program: bool
    tools: bool
    json_schema: bool
    vision: bool
    audio: bool
    documents: bool
    several: bool  # whether it may ask for several answers
    answer: AnswerKind
    race: RaceOverride | None  # None: it overrides nothing


class Decided(msgspec.Struct, frozen=True):
    """What was decided of one shape."""

    model: Model  # as these calls use it: with its profile and overrides
    names: tuple[str, ...]  # of the deployments that fit
    call: Call  # in which all that is a request's own is left out, as in the terms
    terms: Terms

    @classmethod
    def of(cls, model: Model, names: tuple[str, ...], call: Call, terms: Terms) -> "Decided":
        """Return what was decided with a ``call`` and its terms, of which nothing is kept that is its own."""
        bare = msgspec.structs.replace(
            call, id="", tags={}, levels=(), trace=None, fields={}, headers={}, request_id=None, kind=None,
            conversation=None, cache_key=None, maker=None, rendered={},
        )  # fmt: skip
        own = msgspec.structs.replace(terms, limits=None, leased=(), prefix=None, kind=None, demands=NO_DEMANDS)
        return cls(model, names, bare, own)

    def holds_for(self, parsed: ParsedRequest) -> bool:
        """Whether a request of this shape has nothing that is decided for it alone.

        That is one that is as long as some contexts, that tells a model which does not think how to, or is for
        providers whose refusals have taught what their models are asked in.
        """
        common, needs = self.model.common, parsed.needs
        for learnt in self.model.learnt:
            if (learnt.steers or learnt.stops_streams) and (
                learnt.steers_for(client := self.call.client) or learnt.stops_streams_for(client)
            ):
                return False
        return (
            needs.prompt_tokens <= common.context_tokens
            and (needs.max_tokens or 0) <= common.max_output_tokens
            and (common.thinks or parsed.dialect.requests.efforts.isdisjoint(parsed.fields))
        )


class OfClient(msgspec.Struct):
    """What was decided of the requests of one client."""

    client: Client
    by_shape: dict[Shape, Decided]


def shape_of(model: Model | None, parsed: ParsedRequest, client: Client) -> Shape | None:
    """Return the shape of a request for a configured ``model``; None if nothing is kept of such requests.

    That is what passes unread or is translated, is bound to what a provider has, or names providers; what may lose a
    part of its history, or may have to be asked for whole; calls of clients with keys of their own; and of models that
    change requests, or were made up by a client that lists deployments.
    """
    if (
        model is None
        or parsed.relayed is not None
        or parsed.dialect not in model.common.speaks
        or parsed.preferences is not NO_PREFERENCES
        or parsed.runs_on
        or parsed.converses is not None
        or client.tenant is not None
        or client.unpriced == REFUSE
        or model.adhoc
        or model.parameters is not None
        or model.common.acts
        or (not model.common.takes_forced and parsed.dialect.requests.choice_of_tools in parsed.fields)
        or not (parsed.stream or model.common.whole_for.isdisjoint(parsed.fields))
        or (not parsed.needs.inline and is_sealed(parsed.dialect, parsed.fields))
        or (model.common.refused_fields and is_foreign(model.common.refused_fields, parsed.dialect, parsed.fields))
    ):
        return None
    needs, fields, requests = parsed.needs, parsed.fields, parsed.dialect.requests
    return Shape(
        model.name,
        parsed.dialect.name,
        parsed.stream,
        parsed.stateful,
        parsed.for_program,
        needs.tools,
        needs.json_schema,
        needs.vision,
        needs.audio,
        needs.documents,
        requests.batched or requests.choices in fields,
        answer_kind(fields, parsed.dialect),
        None if parsed.race is NOTHING else parsed.race,
    )


def decided(fleet: Fleet, client: Client, shape: Shape, parsed: ParsedRequest) -> Decided | None:
    """Return what was decided of requests of this shape, if it holds for ``parsed``; None: it is to be decided."""
    of_client: OfClient | None = fleet.kept.pop(id(client), None)
    if of_client is None or of_client.client is not client:
        return None
    fleet.kept[id(client)] = of_client  # the last used at the end
    found = of_client.by_shape.pop(shape, None)
    if found is None:
        return None
    of_client.by_shape[shape] = found
    return found if found.holds_for(parsed) else None


def keep(  # noqa: PLR0917 - what was decided, and for whom
    fleet: Fleet, client: Client, shape: Shape, parsed: ParsedRequest, found: Decided, fitting: Fitting
) -> None:
    """Keep what was decided of ``parsed``, of this shape, if its prompt had no part in it."""
    if not found.holds_for(parsed) or fitting.rendered or (shape.several and found.model.race.win_on is not WinOn.ANY):
        return
    of_client: OfClient | None = fleet.kept.pop(id(client), None)
    if of_client is None or of_client.client is not client:
        of_client = OfClient(client, {})
    fleet.kept[id(client)] = of_client
    of_client.by_shape[shape] = found
    _trim(of_client.by_shape, MOST_SHAPES)
    _trim(fleet.kept, MOST_CLIENTS)


def _trim(kept: dict[Any, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]
