"""Decisions about all requests of one shape, whatever their prompts: which deployments fit, and with which settings.

A shape is a request without its prompt, sizes and limits. ``decide`` knows nothing else of a request, so its result
cannot have anything of a single request. A decision holds for one client and one fleet, so it is kept with the fleet,
by client: a reload begins with a new fleet, and a change of a client's rights with a new ``Client``. Things that change
by themselves are never kept: health, estimates, budgets, seats, limits, and facts from refusals.
"""

from operator import attrgetter
from typing import Any

import msgspec

from gateway.access import Client
from gateway.api.fitting import fits_all
from gateway.api.overrides import NOTHING, RaceOverride
from gateway.api.preferences import NOTHING as NO_PREFERENCES
from gateway.api.request import ParsedRequest
from gateway.api.resolved_model import REFUSE
from gateway.api.translations import Fitting
from gateway.core.attempts import AnswerKind, WinOn
from gateway.core.calls import Decision, Objective
from gateway.fleet import Fleet, Model
from gateway.racing import answer_kind, answers_asked
from gateway.settings import RaceSettings
from gateway.steering import Terms

_name = attrgetter("name")  # in C

MOST_CLIENTS = 256  # of a fleet; the client that called longest ago goes first
MOST_SHAPES = 16  # of a client; the shape used longest ago goes first; a few kB each


class Shape(msgspec.Struct, frozen=True, gc=False):
    """Everything in a request that decides how it is answered, except for the prompt and sizes."""

    model: str
    endpoint: str
    is_read: bool  # whether the answer is read; otherwise it passes unread
    stream: bool
    stateful: bool
    for_program: bool
    tools: bool
    json_schema: bool
    vision: bool
    audio: bool
    documents: bool
    several: bool  # whether several answers are requested
    answer: AnswerKind
    race: RaceOverride | None  # None: the request overrides nothing


def shape_of(parsed: ParsedRequest) -> Shape:
    """Return the shape of a request."""
    needs, fields, requests, relayed = parsed.needs, parsed.fields, parsed.dialect.requests, parsed.relayed
    is_read = relayed is None
    may_be_several = is_read and (requests.batched or requests.choices in fields)
    return Shape(
        parsed.model,
        parsed.dialect.endpoint if relayed is None else relayed.endpoint,
        is_read,
        parsed.stream,
        parsed.stateful,
        parsed.for_program,
        needs.tools,
        needs.json_schema,
        needs.vision,
        needs.audio,
        needs.documents,
        may_be_several and answers_asked(fields, parsed.dialect) > 1,
        answer_kind(fields, parsed.dialect) if is_read else AnswerKind.PLAIN,
        None if parsed.race is NOTHING else parsed.race,
    )


def decide(model: Model, shape: Shape) -> Decision:
    """Return how requests of a ``shape`` are sent to ``model``, with the settings of the client and the request."""
    race, win_on, objective = model.race, WinOn.ANY, Objective.FIRST_TOKEN
    if shape.is_read:
        if race.win_on is not WinOn.ANY:
            win_on = _win_on(race, shape)
        objective = resolved_objective(race.objective, streamed=shape.stream, for_program=shape.for_program)
    return Decision(
        model=model.name,
        endpoint=shape.endpoint,
        mode=race.mode,
        objective=objective,
        win_on=win_on,
        sentence_words=race.sentence_words,
        invalid=race.invalid,
        answer_kind=shape.answer,
    )


def resolved_objective(objective: Objective, *, streamed: bool, for_program: bool) -> Objective:
    """Return the objective of a call. ``auto``: READING for a stream that a human reads, else COMPLETION.

    A call that is not streamed has no reader: for it READING is COMPLETION.
    """
    if objective is Objective.AUTO:
        return Objective.READING if streamed and not for_program else Objective.COMPLETION
    return objective if streamed or objective is not Objective.READING else Objective.COMPLETION


def _win_on(race: RaceSettings, shape: Shape) -> WinOn:
    """Return the part of an answer with which an attempt wins.

    SENTENCE does not apply to JSON, nor to answers that are not streamed. VALID does not apply to text, which is always
    valid, nor to answers that a provider stores, which have one attempt. Neither applies to several answers at once. If
    a profile brought SENTENCE, such answers win as without it.
    """
    win_on, kind, several = race.win_on, shape.answer, shape.several
    if win_on is WinOn.VALID:
        return WinOn.ANY if kind is AnswerKind.PLAIN or shape.stateful or several else WinOn.VALID
    is_spoken = shape.stream and kind is not AnswerKind.JSON and not several
    if win_on is not WinOn.SENTENCE or is_spoken:
        return win_on
    return WinOn.ANSWER if "win_on" in race.model_fields_set else WinOn.ANY


class CachedDecision(msgspec.Struct, frozen=True):
    """The decision about one shape."""

    model: Model  # with the profile and overrides of these calls
    names: tuple[str, ...]  # of the deployments that fit
    decision: Decision
    terms: Terms  # of all requests of this shape; each request adds its own

    @classmethod
    def of(
        cls, model: Model, shape: Shape, fitting: Fitting, race_asked: RaceSettings, given: RaceSettings
    ) -> "CachedDecision":
        """Return the decision about requests of a ``shape`` that these deployments can answer.

        ``given``: the operator's settings for the client.
        """
        decision = decide(model, shape)
        terms = Terms(
            decision.objective,
            0,
            prices=model.prices,
            weights=model.weights or None,
            canaries=model.canaries or None,
            excluded=fitting.excluded or None,
            answer_kind=decision.answer_kind,
            second=fitting.second or None,
            supposed=fitting.lesser,
            bills_losers=model.bills_losers,
            holds=model.race.holds(streamed=shape.stream),
            stateful=shape.stateful,
            asked=None if race_asked is model.race else race_asked,
            learnt_as=None if model.tenant is None else model.learnt_as,
            ttft_s=model.ttft_s,
            spoken=decision.win_on is WinOn.SENTENCE,
            speaks_unasked=given.win_on is not WinOn.SENTENCE,
        )
        return cls(model, tuple(map(_name, fitting.deployments)), decision, terms)


class ClientDecisions(msgspec.Struct):
    """The decisions about the requests of one client."""

    client: Client
    by_shape: dict[Shape, CachedDecision]


def kept_shape_of(model: Model | None, parsed: ParsedRequest, client: Client) -> Shape | None:
    """Return the shape of a request for a configured ``model``; None if something must be decided for it alone.

    A request has no shape if

    - it passes unread, or is translated;
    - it is bound to objects at a provider, or names providers;
    - it may lose a part of its history, may have to be asked for whole, or has a tool or choice that some servers lack;
    - it asks to be stored;
    - its client brings keys;
    - its model changes requests, or is a list of deployments that a client made up;
    - it is as long as some contexts;
    - it has settings of thinking, and the model does not think;
    - refusals of one of its providers have taught something about requests.
    """
    if (
        model is None
        or parsed.relayed is not None
        or parsed.dialect not in model.common.speaks
        or parsed.preferences is not NO_PREFERENCES
        or parsed.runs_on
        or (parsed.stateful and parsed.is_to_be_stored)
        or parsed.converses is not None
        or client.tenant is not None
        or client.unpriced == REFUSE
        or model.adhoc
        or model.parameters is not None
        or model.common.acts
        or (not model.common.takes_forced and parsed.dialect.requests.tools.choice in parsed.fields)
        or not (parsed.stream or model.common.whole_for.isdisjoint(parsed.fields))
        or not fits_all(parsed, model)
    ):
        return None
    for learnt in model.learnt:
        if (learnt.steers or learnt.stops_streams) and (
            learnt.steers_for(client.name) or learnt.stops_streams_for(client.name)
        ):
            return None
    return shape_of(parsed)


def decided(fleet: Fleet, client: Client, shape: Shape) -> CachedDecision | None:
    """Return the decision about requests of this shape; None: not decided yet."""
    of_client: ClientDecisions | None = fleet.kept.pop(id(client), None)
    if of_client is None or of_client.client is not client:
        return None
    fleet.kept[id(client)] = of_client  # the last used at the end
    cached = of_client.by_shape.pop(shape, None)
    if cached is not None:
        of_client.by_shape[shape] = cached
    return cached


def keep(fleet: Fleet, client: Client, shape: Shape, cached: CachedDecision, fitting: Fitting) -> None:
    """Keep the decision about requests of this ``shape``, unless a deployment is sent a changed request.

    Who sees no pictures cannot answer one request with pictures, and another one of this shape in a changed form.
    """
    if fitting.rendered or fitting.rooms or (shape.vision and fitting.excluded):
        return
    of_client: ClientDecisions | None = fleet.kept.pop(id(client), None)
    if of_client is None or of_client.client is not client:
        of_client = ClientDecisions(client, {})
    fleet.kept[id(client)] = of_client
    of_client.by_shape[shape] = cached
    _trim(of_client.by_shape, MOST_SHAPES)
    _trim(fleet.kept, MOST_CLIENTS)


def _trim(cache: dict[Any, Any], most: int) -> None:
    while len(cache) > most:
        del cache[next(iter(cache))]
