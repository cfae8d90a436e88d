"""The plan of a call whose answer is passed on unread: who may answer, at what cost, and when to hedge."""

from collections.abc import Callable

import msgspec

from gateway.api.preferences import policy_violation
from gateway.api.relayed_api import RelayedApi
from gateway.api.request import ParsedRequest
from gateway.api.resolved_model import COUNT_KNOWN, REFUSE, ResolvedModel, uncounted_units, without_price
from gateway.api.translations import Fitting
from gateway.core.calls import Mode
from gateway.fleet import Deployment, Model
from gateway.http import CHARS_PER_TOKEN
from gateway.racing import RelayedRequest
from gateway.settings import DataPolicy, Unpriced
from gateway.steering import Demands, Plan, Terms
from providers.dialects import DIALECTS, PIVOT


def first_of(model: Model, api: RelayedApi) -> Deployment | None:
    """Return the first deployment of ``model`` with the API, in the order of the configuration."""
    return next((each for each in model.deployments.values() if api.api in each.apis), None)


def fitted(
    resolved: ResolvedModel,
    policy: DataPolicy,
    unpriced: Unpriced | None,
    index: Deployment | None,
    differs: Callable[[Deployment], str | None],
) -> Fitting:
    """Return the deployments that can answer, the others with reasons.

    ``index``: the deployment with whose vectors the client will keep the answer's; ``differs`` returns how the vectors
    of a deployment differ from those.

    Raises:
        NoDeploymentFits: no deployment of the model has the API and may be used.

    """
    parsed = resolved.parsed
    assert parsed.relayed is not None
    api = parsed.relayed

    def obstacle(deployment: Deployment) -> str | None:
        reason = _obstacle(deployment, api, policy, index, COUNT_KNOWN if deployment.tenant else unpriced)
        return reason or _too_much(deployment, parsed) or differs(deployment)

    return resolved.able(obstacle)


def terms_of(terms: Terms, parsed: ParsedRequest, model: Model) -> Terms:
    """Return the ``terms`` of a call whose answer cannot be watched, and has no tokens or is not paid by the token."""
    has_dollars = (model.race.usd_per_day, model.race.extra_usd_per_call) != (None, None)
    return msgspec.structs.replace(
        terms,
        answer_tokens=0.0 if terms.is_counted or has_dollars else None,
        bills_losers=frozenset(),
        holds=False,
        watches=False,
        size_tokens=parsed.size // CHARS_PER_TOKEN,
        hedged_part=1.0 if parsed.stateful else HEDGED_PART,
    )


def demands_of(parsed: ParsedRequest, model: Model) -> Demands:
    """Return the call's demands: only deployments that answer alike, and one at a time if an answer has effects."""
    if parsed.stateful:
        return Demands(once=True)
    return Demands(identity={name: each.identity for name, each in model.deployments.items()})


def read_as(parsed: ParsedRequest, model: Model, plan: Plan) -> tuple[Plan, RelayedRequest]:
    """Return the plan, with its costs where characters or queries are paid for, and the rules for its answers."""
    assert parsed.relayed is not None
    api = parsed.relayed
    if api.by_character is not None or (api.by_query and plan.cost_usd):
        names = (*(launch.deployment for launch in plan.launches), *plan.rest)
        usd_by_name = {name: _usd_of(api, parsed, model.deployments[name]) for name in names}
        plan = msgspec.structs.replace(
            plan, cost_usd={name: usd for name, usd in usd_by_name.items() if usd is not None}
        )
    costs = plan.cost_usd if api.by_character is not None else {}
    return plan, RelayedRequest(
        api.path,
        DIALECTS.get(api.api, PIVOT),
        parsed.form,
        is_priced=api.is_text,
        cost_usd=costs,
        unpriced=[name for name in costs if _usd_per_character(model.deployments[name]) is None],
        takes_extra_body=api.takes_extra_body,
        is_sound=api.api == "audio",
        is_compared=not parsed.stateful,
    )


# Extra attempts per call with mode ``auto``. Calls later than about the 95th percentile get an extra attempt; with a
# budget of only 0.05, chance would empty the budget now and then, and a call that hangs then would wait for its rescue.
SHORT_BUDGET = 0.06
HEDGED_PART = 0.75  # of a budget for short calls; large calls are late more often, as sizes are fitted


def hedged(model: Model) -> Model:
    """Return ``model`` with a hedge of late calls, if its mode is ``auto``."""
    if model.race.mode is not Mode.AUTO:
        return model
    race = model.race.model_copy(update={"mode": Mode.HEDGE, "budget": min(model.race.budget, SHORT_BUDGET)})
    return msgspec.structs.replace(model, race=race)


def _obstacle(
    deployment: Deployment, api: RelayedApi, policy: DataPolicy, index: Deployment | None, unpriced: Unpriced | None
) -> str | None:
    """Return why a deployment cannot be used; None if usable. ``index``: as for ``fitted``."""
    if api.api not in deployment.apis:
        return f"answers {', '.join(sorted(deployment.apis))} only{api.instead and f': {api.instead}'}"
    if api.by_character is not None:
        if unpriced != COUNT_KNOWN and _counted_per_character(deployment) is None:
            return without_price(("character",))
    elif unpriced == REFUSE and (units := uncounted_units(deployment)) and not _has_units(deployment):
        return without_price(units)
    if index is not None and not deployment.is_same_model(index):
        return f"is another model than {index.name}, and vectors of both must not be mixed; same_as tells if it is not"
    return policy_violation(deployment, policy)


def _too_much(deployment: Deployment, parsed: ParsedRequest) -> str | None:
    """Return which number in a request is above the deployment's known maximum; None: no number."""
    can = deployment.capabilities
    if can.max_documents is not None and (documents := _number_of(parsed, "documents")) > can.max_documents:
        return f"ranks at most {can.max_documents} documents, not {documents}"
    if can.max_dimensions is not None and (dimensions := _dimensions(parsed)) > can.max_dimensions:
        return f"makes vectors of at most {can.max_dimensions} dimensions, not {dimensions}"
    return None


def _usd_of(api: RelayedApi, parsed: ParsedRequest, deployment: Deployment) -> float | None:
    """Return the cost of an answer paid for by characters or by queries; None: unknown."""
    if api.by_character is not None:
        usd = _counted_per_character(deployment)
        return None if usd is None else usd * _characters(parsed, api.by_character)
    price = deployment.price or deployment.listed
    usd = None if price is None else price.usd("query")
    return usd if usd is not None or price is None else price.input_usd * (parsed.size // CHARS_PER_TOKEN)


def _has_units(deployment: Deployment) -> bool:
    """Return whether anything besides tokens of text has a known price, as seconds of sound and pictures."""
    price = deployment.price or deployment.listed
    return price is not None and bool(price.units)


def _counted_per_character(deployment: Deployment) -> float | None:
    """Return the dollars counted by limits for a spoken character; None: nothing is known."""
    if (usd := _usd_per_character(deployment)) is not None or deployment.listed is None:
        return usd
    return dict(deployment.listed.dearest).get("character")


def _usd_per_character(deployment: Deployment) -> float | None:
    """Return the price of a spoken character: as listed, else the higher of the two prices; None: unknown."""
    price = deployment.price or deployment.listed
    if price is None or (usd := price.usd("character")) is not None:
        return None if price is None else usd
    return None if price.unknown else max(price.input_usd, price.output_usd)


_TEXT = msgspec.json.Decoder(str)
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_INTEGER = msgspec.json.Decoder(int)
_LONG = 100_000  # bytes: vendors speak a few thousand characters at a time


def _characters(parsed: ParsedRequest, field: str) -> int:
    """Return the number of characters of a text; of a very long text the number of bytes, which is not lower."""
    raw = parsed.fields.get(field, b"")
    if len(raw) > _LONG:
        return len(raw)
    try:
        return len(_TEXT.decode(raw))
    except msgspec.DecodeError:  # not a text: the provider will report the error
        return len(raw)


def _number_of(parsed: ParsedRequest, field: str) -> int:
    """Return the number of elements of an array; 0 for any other value."""
    try:
        return len(_ELEMENTS.decode(parsed.fields.get(field, b"[]")))
    except msgspec.DecodeError:
        return 0


def _dimensions(parsed: ParsedRequest) -> int:
    """Return the requested length of vectors; 0 for the default of the model."""
    try:
        return _INTEGER.decode(parsed.fields.get("dimensions", b"0"))
    except msgspec.DecodeError:  # the provider will report the error
        return 0
