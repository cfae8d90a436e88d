"""POST /v1/embeddings: routed by the leaderboard's health and failed over, not raced."""

from aiohttp import web

from gateway.calls import Call, Objective, WinOn
from gateway.errors import ApiError, InvalidRequest, ShuttingDown
from gateway.ingress import headers
from gateway.ingress.body import CHARS_PER_TOKEN, prompt_class, read_fields, read_model, read_tags
from gateway.ingress.context import CONTEXT
from gateway.ingress.entry import planned
from gateway.ingress.override import NOTHING, as_asked
from gateway.racing.relay import Relay


async def embeddings(request: web.Request) -> web.Response:
    """Ask one deployment after the other, best first, until one answers."""
    context = request.app[CONTEXT]
    if context.draining:
        raise ShuttingDown("the gateway is stopping; call again")
    client = context.admission.admit(request)
    body = await request.read()
    fields = read_fields(body)
    fields.pop("race", None)
    name = read_model(fields)
    if "input" not in fields:
        raise InvalidRequest("'input' is missing: a string, or an array of strings or tokens", param="input")
    fleet = context.fleet
    with fleet.lease():
        client.check_model(name)
        model = as_asked(fleet.find(name, adhoc=client.adhoc), NOTHING, client, stateful=True)
        call = Call(
            id=context.new_id(),
            received_at=context.clock(),
            started_at=context.utc_now(),
            client=client.name,
            model=model.name,
            endpoint="embeddings",
            streamed=False,
            mode=model.race.mode,
            objective=Objective.FIRST_TOKEN,
            win_on=WinOn.ANY,
            prompt_class=prompt_class(len(body)),
            prompt_tokens=len(body) // CHARS_PER_TOKEN,
            wants_usage=False,
            fields=fields,
            headers=headers.for_upstream(request.headers),
            tags=read_tags(request.headers.get("x-holeshot-tags")),
            replica=context.replica,
            region=context.settings.region,
        )
        plan = planned(context, call, model, client.deployments(model))
        relay = Relay(
            call,
            model,
            plan,
            context.recorder,
            clock=context.clock,
            new_id=context.new_id,
            utc_now=context.utc_now,
            cancelled_as=context.cancelled_as,
        )
        try:
            record, answer = await relay.run("embeddings")
        except ApiError as error:
            error.headers.setdefault("x-holeshot-call-id", call.id)
            raise
    winner = record.attempts[-1]
    fields_out = {
        "x-holeshot-call-id": call.id,
        "x-holeshot-provider": winner.provider,
        "x-holeshot-deployment": winner.deployment,
        "x-holeshot-mode": call.mode,
        "x-holeshot-launched": str(record.launched),
    }
    if record.cost_usd is not None:
        fields_out["x-holeshot-cost-usd"] = f"{record.cost_usd:.8f}"
    return web.Response(body=answer.body, content_type="application/json", headers=fields_out)
