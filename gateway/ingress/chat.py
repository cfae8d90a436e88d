"""POST /v1/chat/completions: the way of one call, from the body to the answer."""

from aiohttp import web

from gateway.calls import Call, Mode, Objective
from gateway.errors import ApiError, ClientDisconnected, Forbidden, ShuttingDown
from gateway.fleet import Model
from gateway.ingress import headers
from gateway.ingress.admission import Client
from gateway.ingress.body import ChatBody, RaceOverride, read_chat, read_tags
from gateway.ingress.context import CONTEXT, Context
from gateway.ingress.streaming import StreamingSink
from gateway.racing.gather import GatheringSink
from gateway.racing.race import Race
from gateway.settings.model import RaceSettings


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Race the call and answer it, as a stream or as one JSON body."""
    context = request.app[CONTEXT]
    if context.draining:
        raise ShuttingDown("the gateway is stopping; call again")
    client = context.admission.admit(request)
    body = read_chat(await request.read(), request.headers.get("x-holeshot-race"))
    fleet = context.fleet
    with fleet.lease():
        client.check_model(body.model)
        model = fleet.find(body.model, adhoc=client.adhoc)
        settings = race_settings(model.race, body, client)
        call = describe(context, request, client=client, model=model, body=body, settings=settings)
        return await _run(context, request, call, model=model, client=client, settings=settings)


def race_settings(configured: RaceSettings, body: ChatBody, client: Client) -> RaceSettings:
    """Return how this call is raced: as configured, changed by what the request asks for and may ask for.

    Raises:
        Forbidden: the request asks for more attempts than its key may start.

    """
    override: RaceOverride = body.race
    changes = {name: value for name in override.__struct_fields__ if (value := getattr(override, name)) is not None}
    if override.width is not None and override.width > client.max_width:
        raise Forbidden(f"this key may race at most {client.max_width} deployments at once, not {override.width}")
    if body.stateful:
        changes["mode"] = Mode.SINGLE  # what leaves something behind at the provider is never sent twice
    return configured.model_copy(update=changes) if changes else configured


def describe(
    context: Context, request: web.Request, *, client: Client, model: Model, body: ChatBody, settings: RaceSettings
) -> Call:
    """Return the call this request makes."""
    return Call(
        id=context.new_id(),
        received_at=context.clock(),
        started_at=context.utc_now(),
        client=client.name,
        model=model.name,
        endpoint="chat.completions",
        streamed=body.stream,
        mode=settings.mode,
        objective=Objective.FIRST_TOKEN,
        win_on=settings.win_on,
        prompt_class=body.prompt_class,
        prompt_tokens=body.prompt_tokens,
        wants_usage=body.wants_usage,
        fields=body.fields,
        headers=headers.for_upstream(request.headers),
        tags=read_tags(request.headers.get("x-holeshot-tags")),
        replica=context.replica,
        region=context.settings.region,
    )


async def _run(
    context: Context, request: web.Request, call: Call, *, model: Model, client: Client, settings: RaceSettings
) -> web.StreamResponse:
    steering = context.steering
    plan = steering.plan(
        model.name,
        [deployment.name for deployment in client.deployments(model)],
        settings,
        prompt_class=call.prompt_class,
        prompt_tokens=call.prompt_tokens,
    )
    sink = StreamingSink(request, call) if call.streamed else GatheringSink()
    race = Race(
        call,
        model,
        plan,
        sink,
        context.recorder,
        clock=context.clock,
        permit=lambda role: steering.permit(model.name, role, settings.budget),
        new_id=context.new_id,
        utc_now=context.utc_now,
    )
    try:
        record = await race.run()
    except ApiError as error:
        error.headers.setdefault("x-holeshot-call-id", call.id)
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
    if record.cost_usd is not None:
        fields["x-holeshot-cost-usd"] = f"{record.cost_usd:.8f}"
    return web.Response(body=sink.body(), content_type="application/json", headers=fields)
