"""POST /v1/chat/completions: the way of one call, from the body to the answer."""

from aiohttp import web

from gateway.calls import Call
from gateway.errors import ApiError, ClientDisconnected, ShuttingDown
from gateway.fleet import Model
from gateway.ingress import headers
from gateway.ingress.body import read_chat, read_tags
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.entry import describe, lined_up, planned
from gateway.ingress.override import HEADER, as_asked
from gateway.ingress.plan_header import PLAN_HEADER, is_wanted, written
from gateway.ingress.streaming import StreamingSink
from gateway.racing.gather import GatheringSink
from gateway.steering.planner import Plan


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Race the call and answer it, as a stream or as one JSON body."""
    context = request.app[CONTEXT]
    if context.draining:
        raise ShuttingDown("the gateway is stopping; call again")
    client = context.admission.admit(request)
    body = read_chat(await request.read(), request.headers.get(HEADER))
    fleet = context.fleet
    with fleet.lease():
        client.check_model(body.model)
        model = as_asked(fleet.find(body.model, adhoc=client.adhoc), body.race, client, stateful=body.stateful)
        call = describe(
            context,
            model,
            body,
            client=client.name,
            headers=headers.for_upstream(request.headers),
            tags=read_tags(request.headers.get("x-holeshot-tags")),
        )
        plan = planned(
            context,
            call,
            model,
            client.deployments(model),
            max_tokens=body.max_tokens,
            explain=is_wanted(request.headers),
        )
        told = {PLAN_HEADER: written(plan.explanation)} if plan.explanation is not None else {}
        return await _run(context, request, call, model, plan, told=told)


async def _run(
    context: Context, request: web.Request, call: Call, model: Model, plan: Plan, *, told: dict[str, str]
) -> web.StreamResponse:
    """Run the race, and answer; ``told`` are headers for the client besides those of the winner."""
    sink = StreamingSink(request, call, told) if call.streamed else GatheringSink()
    try:
        record = await lined_up(context, call, model, plan, sink, told=told).run()
    except ApiError as error:
        error.headers.update({"x-holeshot-call-id": call.id, **told})
        raise
    except Exception:
        if isinstance(sink, StreamingSink):
            sink.drop()
        raise
    if isinstance(sink, StreamingSink):
        if sink.response is None:
            raise ClientDisconnected("the client has gone")
        return sink.response
    if sink.winner is None:
        raise ClientDisconnected("the client has gone")
    fields = headers.for_client(call, sink.winner)
    fields.update(told)
    if record.cost_usd is not None:
        fields["x-holeshot-cost-usd"] = f"{record.cost_usd:.8f}"
    return web.Response(body=sink.body(), content_type="application/json", headers=fields)
