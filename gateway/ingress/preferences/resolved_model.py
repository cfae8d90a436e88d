"""A model with one request's preferences: who may answer, which parameters are sent, and which headers report it."""

import msgspec

from gateway.attempt_records import Role
from gateway.errors import InvalidRequest, NoDeploymentFits, ResponseNotFound
from gateway.fleet.model import Model
from gateway.ingress.admission import Client
from gateway.ingress.asked import Asked
from gateway.ingress.fitting import Fitting, Question, fitted
from gateway.ingress.preferences.provider_preferences import CONSUMED, NOTHING, Chosen, is_passed_on, preferred
from gateway.parameters import Parameters
from gateway.steering.explanation import Start
from gateway.steering.plans import Launch, Plan

IGNORED = "x-holeshot-ignored"  # preferences that have no effect here
LOWERED = "x-holeshot-lowered"  # parameters that exceeded the model's maximum


class ResolvedModel:
    """A model with one request's preferences: who may answer, which parameters are sent, and which headers say so."""

    def __init__(self, model: Model, asked: Asked, client: Client) -> None:
        self.model = model
        self.fields = asked.fields
        self.needs = asked.needs
        self.response_headers = dict(asked.response_headers)
        self._asked = asked
        self._deployments = client.deployments(model)
        self._chosen: Chosen | None = None
        self._is_kept = False
        if asked.preferences is not NOTHING and not is_passed_on(model):
            self._prefer(client)
        if model.parameters is not None:
            self._apply(model.parameters)

    @property
    def is_narrowed(self) -> bool:
        """Whether the request restricts or orders the deployments."""
        chosen = self._chosen
        return self._is_kept or (chosen is not None and bool(chosen.excluded or chosen.order))

    def keep_to(self, name: str) -> None:
        """Keep only the deployment that stores the response which the request continues.

        Raises:
            ResponseNotFound: it cannot answer this model or this client any more.

        """
        self._is_kept = True
        self._deployments = [deployment for deployment in self._deployments if deployment.name == name]
        if not self._deployments:
            raise ResponseNotFound(
                f"the previous response is stored at {name}, which no longer serves this model for this key",
                param="previous_response_id",
            )

    def fitted(self, client: Client) -> Fitting:
        """Return which deployments can answer and are permitted by the preferences; the others with their reasons."""
        common, needs = self.model.common, self.needs
        if (
            self._chosen is None
            and not client.demanding
            and self._asked.dialect in common.speaks
            and needs.ordinary
            and needs.prompt_tokens <= common.context_tokens
            and (needs.max_tokens or 0) <= common.max_output_tokens
        ):
            return Fitting(self._deployments, {}, {}, {})
        excluded = {} if self._chosen is None else self._chosen.excluded
        question = Question(self.model.name, self._asked.dialect, self.fields, self.needs, client.require)
        try:
            fitting = fitted(question, self._deployments)
        except NoDeploymentFits as error:
            if not excluded:
                raise
            raise NoDeploymentFits(self.model.name, {**error.reasons, **excluded}, too_long=error.too_long) from None
        fitting.excluded.update(excluded)
        if self._asked.converses and len(fitting.deployments) > 1:
            raise InvalidRequest(
                "'conversation' is stored at one provider: use a model with one deployment, or previous_response_id",
                param="conversation",
            )
        return fitting

    def kept_in(self, plan: Plan) -> Plan:
        """Return the plan in the requested order, or without failover, if the request asks for that."""
        chosen = self._chosen
        if chosen is not None and chosen.order:
            plan = in_order(plan, chosen.order)
        if chosen is not None and not chosen.failover:
            plan = msgspec.structs.replace(plan, rest=())
        return plan

    def _prefer(self, client: Client) -> None:
        asked = self._asked
        chosen = self._chosen = preferred(asked.preferences, self.model, self._deployments, client)
        self._deployments = list(chosen.deployments)
        if not asked.stateful:
            self.model = msgspec.structs.replace(self.model, race=chosen.race)
        if chosen.unsupported:
            self.response_headers[IGNORED] = ", ".join(chosen.unsupported)
        self.fields = {key: value for key, value in self.fields.items() if key not in CONSUMED}

    def _apply(self, parameters: Parameters) -> None:
        self.fields, lowered = parameters.applied(self.fields, self._asked.dialect)
        if lowered:
            self.response_headers[LOWERED] = ", ".join(lowered)
        most, asked = parameters.most_tokens, self.needs.max_tokens
        if most is not None and (asked is None or asked > most):
            self.needs = msgspec.structs.replace(self.needs, max_tokens=most)


def in_order(plan: Plan, order: tuple[str, ...]) -> Plan:
    """Return a plan that tries the deployments of ``order`` one after the other, then the rest."""
    names = [*dict.fromkeys([*(launch.deployment for launch in plan.launches), *plan.rest])]
    if not names:
        return plan
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    first, rest = Launch(names[0], 0.0, Role.PRIMARY), tuple(names[1:])
    explanation = plan.explanation
    if explanation is not None:
        start = Start(names[0], 0.0, Role.PRIMARY, audited=False, extra=False, why="in the requested order")
        explanation = msgspec.structs.replace(explanation, launches=(start,), rest=rest)
    return msgspec.structs.replace(plan, launches=(first,), rest=rest, explanation=explanation)
