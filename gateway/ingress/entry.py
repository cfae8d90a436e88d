"""A call's entry into its race: what it is, who is to run for it, and the race that only needs to be run."""

from collections.abc import Iterable, Mapping

from gateway.calls import Call, Objective, Recorder
from gateway.fleet import Deployment, Model
from gateway.ingress.body import ChatBody
from gateway.ingress.context import Context
from gateway.ingress.headers import NARROWED
from gateway.racing.race import Race
from gateway.racing.sink import Sink
from gateway.steering.planner import Launch, Plan


def describe(
    context: Context,
    model: Model,
    body: ChatBody,
    *,
    client: str | None,
    headers: Mapping[str, str],
    tags: Mapping[str, str],
) -> Call:
    """Return the call that ``body`` makes; ``model`` is as the call sees it, ``headers`` are those for upstream."""
    return Call(
        id=context.new_id(),
        received_at=context.clock(),
        started_at=context.utc_now(),
        client=client,
        model=model.name,
        endpoint="chat.completions",
        streamed=body.stream,
        mode=model.race.mode,
        objective=resolved(model.race.objective, streamed=body.stream, for_program=body.for_program),
        win_on=model.race.win_on,
        prompt_class=body.prompt_class,
        prompt_tokens=body.prompt_tokens,
        wants_usage=body.wants_usage,
        fields=body.fields,
        headers=headers,
        tags=tags,
        replica=context.replica,
        region=context.settings.region,
    )


def resolved(objective: Objective, *, streamed: bool, for_program: bool) -> Objective:
    """Return what a call is to be good at: ``auto`` asks whether somebody reads along, or waits for the whole."""
    if objective is not Objective.AUTO:
        return objective
    return Objective.FIRST_TOKEN if streamed and not for_program else Objective.COMPLETION


def planned(
    context: Context,
    call: Call,
    model: Model,
    deployments: Iterable[Deployment],
    *,
    max_tokens: int | None = None,
    explain: bool = False,
) -> Plan:
    """Return who of ``deployments`` runs for ``call``, and when. Counts the call."""
    return context.steering.plan(
        model.name,
        [deployment.name for deployment in deployments],
        model.race,
        objective=call.objective,
        prompt_class=call.prompt_class,
        prompt_tokens=call.prompt_tokens,
        max_tokens=max_tokens,
        prices=model.prices,
        limits=model.limits,
        explain=explain,
    )


def lined_up(
    context: Context,
    call: Call,
    model: Model,
    plan: Plan,
    sink: Sink,
    *,
    recorder: Recorder | None = None,
    told: dict[str, str] | None = None,
) -> Race:
    """Return the race that carries ``plan`` out; ``recorder`` is the gateway's own unless another is given.

    When the budget makes the race narrower, the response headers ``told`` say so.
    """
    steering = context.steering

    def permit(launch: Launch) -> bool:
        cost_usd = plan.cost_usd.get(launch.deployment)
        permitted = steering.permit(model.name, launch, model.race, cost_usd=cost_usd)
        if not permitted and told is not None:
            told[NARROWED] = steering.refused_by(model.name, model.race, cost_usd=cost_usd)
        return permitted

    return Race(
        call,
        model,
        plan,
        sink,
        recorder or context.recorder,
        tasks=context.attempts,
        clock=context.clock,
        permit=permit,
        new_id=context.new_id,
        utc_now=context.utc_now,
        cancelled_as=context.cancelled_as,
    )
