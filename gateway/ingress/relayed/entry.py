"""From a request to a relay: builds the call, selects its deployments, and plans their order."""

import msgspec

from gateway.calls import Call
from gateway.errors import NoDeploymentFits
from gateway.fleet.deployment import Deployment
from gateway.fleet.fleet import Fleet
from gateway.ingress.body import CHARS_PER_TOKEN, size_class
from gateway.ingress.context import Context
from gateway.ingress.entry import Entry, is_counted
from gateway.ingress.fitting import against_policy
from gateway.ingress.new_call import Origin, new_call
from gateway.ingress.preferences.override import as_asked
from gateway.ingress.preferences.provider_preferences import CONSUMED, NOTHING, Chosen, is_passed_on, preferred
from gateway.ingress.preferences.resolved_model import IGNORED, in_order
from gateway.ingress.relayed.apis import RelayedApi
from gateway.ingress.relayed.request import RelayedRequest
from gateway.prompt_classes import PromptClass
from gateway.settings.deployment import DataPolicy
from gateway.steering.candidates import Terms


def enter_relay(
    context: Context,
    api: RelayedApi,
    asked: RelayedRequest,
    origin: Origin,
    *,
    name: str,
    fleet: Fleet,
    instead_of: Call | None = None,
) -> Entry:
    """Build and plan the call that ``asked`` requests from the model ``name``. The plan is counted in the standings.

    ``fleet`` is the one the call has leased; ``instead_of`` is the same call as built for the model that could not
    answer.

    Raises:
        ModelNotFound, Forbidden, InvalidRequest: the client may not send this request to this model.
        NoDeploymentFits: no deployment of the model has the API and may be used.

    """
    client = origin.client
    client.check_model(name)
    model = as_asked(fleet.find(name, adhoc=client.adhoc), asked.race, client, stateful=True)
    deployments, response_headers, fields = client.deployments(model), dict[str, str](), asked.fields
    chosen: Chosen | None = None
    if asked.preferences is not NOTHING and not is_passed_on(model):
        chosen = preferred(asked.preferences, model, deployments, client)
        deployments = list(chosen.deployments)
        if chosen.unsupported:
            response_headers[IGNORED] = ", ".join(chosen.unsupported)
        fields = {key: value for key, value in fields.items() if key not in CONSUMED}
    excluded = dict(chosen.excluded) if chosen is not None else {}
    able = []
    for deployment in deployments:
        if (reason := _against(deployment, api, client.require)) is None:
            able.append(deployment.name)
        else:
            excluded[deployment.name] = reason
    if not able:
        raise NoDeploymentFits(model.name, excluded)
    call = new_call(
        context,
        origin,
        model,
        instead_of,
        asked_model=asked.model,
        endpoint=api.endpoint,
        streamed=asked.stream,
        prompt_class=PromptClass(api.endpoint, size_class(asked.size)),
        prompt_tokens=asked.size // CHARS_PER_TOKEN if api.estimates else 0,
        fields=fields,
    )
    terms = Terms(
        call.objective,
        call.prompt_tokens,
        None,
        model.prices,
        model.limits,
        model.weights or None,
        model.canaries or None,
        excluded or None,
        # Such answers have no tokens, or none that is paid for by the token.
        answer_tokens=0.0 if is_counted(call, model) else None,
        is_counted=is_counted(call, model),
    )
    plan = context.steering.plan(model.name, able, model.race, terms, call.prompt_class, explain=origin.explain)
    if chosen is not None and chosen.order:
        plan = in_order(plan, chosen.order)
    if chosen is not None and not chosen.failover:
        plan = msgspec.structs.replace(plan, rest=())
    return Entry(call, model, plan, response_headers, None, tuple(able))


def _against(deployment: Deployment, api: RelayedApi, policy: DataPolicy) -> str | None:
    """Return why a deployment cannot be used; None if it can."""
    if api.api not in deployment.apis:
        return f"answers {', '.join(sorted(deployment.apis))} only"
    return against_policy(deployment, policy)
