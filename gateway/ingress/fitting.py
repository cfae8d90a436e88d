"""Which of a model's deployments can answer a request, what each is sent, and why the others cannot."""

from collections.abc import Iterable

import msgspec

from gateway.errors import InvalidRequest, NoDeploymentFits
from gateway.fleet.deployment import Deployment
from gateway.ingress.asked import Needs
from gateway.settings.deployment import DataPolicy
from providers.dialects.dialect import Dialect
from providers.dialects.habits import Habits
from providers.dialects.index import DIALECTS
from providers.dialects.translation import rendered
from providers.dialects.wording import Fields, Malformed, Wording

# The estimate of tokens may be too high by this factor: a prompt that seems too long for all is still tried.
_ESTIMATE_SLACK = 4 / 3
# Required of every deployment, even with drop_params.
_ESSENTIAL = frozenset(field for dialect in DIALECTS.values() for field in dialect.requests.essential)
_ABILITIES = {
    "tools": "does not support tools",
    "json_schema": "does not support JSON schemas",
    "vision": "does not support images",
    "audio": "does not support audio",
    "documents": "does not support documents",
}


class Fitting(msgspec.Struct, frozen=True):
    """The deployments that can answer, and what each is sent."""

    deployments: list[Deployment]
    excluded: dict[str, str]  # deployment → reason
    wordings: dict[str, Fields]  # deployment → the request as translated for it, if it differs from the client's
    dropped: dict[str, tuple[str, ...]]  # deployment → fields that are left out for it


class _Unfit(Exception):
    """A deployment cannot answer; the message is the reason."""


class _TooLong(_Unfit):
    """Only the prompt's length is too much."""


class Question(msgspec.Struct, frozen=True):
    """The parts of a request that decide which deployments can answer it."""

    model: str
    dialect: Dialect
    fields: Fields
    needs: Needs
    policy: DataPolicy


def fitted(question: Question, deployments: Iterable[Deployment]) -> Fitting:
    """Return which of ``deployments`` can answer.

    Raises:
        NoDeploymentFits: none can; the error lists the reasons.
        InvalidRequest: none can, because the request is malformed.

    """
    words = _Words(question.dialect, question.fields)
    fitting = Fitting([], {}, {}, {})
    needs, excluded = question.needs, fitting.excluded
    demanded = [ability for ability in _ABILITIES if getattr(needs, ability)]
    too_long: list[Deployment] = []
    for deployment in deployments:
        try:
            _check_policy(deployment, question.policy)
            _check_abilities(deployment, demanded)
            words.put_to(deployment, fitting)
            _check_length(deployment, needs)
        except _TooLong as reason:
            too_long.append(deployment)
            excluded[deployment.name] = str(reason)
        except _Unfit as reason:
            excluded[deployment.name] = str(reason)
        else:
            fitting.deployments.append(deployment)
    if not fitting.deployments:
        for deployment in _nearly_long_enough(too_long, needs):
            fitting.deployments.append(deployment)
            del excluded[deployment.name]
    if not fitting.deployments:
        if words.malformed is not None and words.malformed_for == len(excluded):
            raise InvalidRequest(words.malformed.message, param=words.malformed.param)
        raise NoDeploymentFits(question.model, excluded, too_long=bool(too_long))
    return fitting


class _Words:
    """One request in the dialects of all its deployments; each translation is made once."""

    def __init__(self, dialect: Dialect, fields: Fields) -> None:
        self.malformed: Malformed | None = None
        self.malformed_for = 0  # deployments
        self._dialect = dialect
        self._fields = fields
        self._known: dict[object, Wording] = {}

    def put_to(self, deployment: Deployment, fitting: Fitting) -> None:
        """Add ``deployment`` to ``fitting``: what it is sent, and what is left out for it."""
        spoken = deployment.spoken_to(self._dialect)
        if spoken.name not in deployment.apis:
            raise _Unfit(f"answers {', '.join(sorted(deployment.apis))} only")
        wording = self._for(deployment, spoken)
        losses = [*wording.losses, *deployment.upstream.losses(spoken, deployment.model, wording.fields)]
        if wording.fields is not self._fields:
            fitting.wordings[deployment.name] = wording.fields
        if not losses:
            return
        for loss in losses:
            if loss.field in _ESSENTIAL:
                raise _Unfit(f"does not support {loss.field!r}: {loss.reason}")
            if not (loss.hint or deployment.drop_params):
                raise _Unfit(f"does not support {loss.field!r}: {loss.reason} (drop_params: true leaves it out)")
        fitting.dropped[deployment.name] = tuple(dict.fromkeys(loss.field for loss in losses))

    def _for(self, deployment: Deployment, spoken: Dialect) -> Wording:
        if spoken is self._dialect:
            return self._own(spoken)
        if (reason := spoken.untranslated or self._dialect.untranslated) is not None:
            raise _Unfit(f"answers {spoken.name} only, and {reason}")
        capabilities = deployment.capabilities
        habits = Habits(thinks=capabilities.reasoning is not False, takes_thoughts=deployment.takes_thoughts)
        if spoken.pivoting is not None and spoken.pivoting.habits_of is not None:
            habits = spoken.pivoting.habits_of(deployment.model, capabilities.max_output_tokens, habits)
        key = (spoken, habits)
        wording = self._known.get(key)
        if wording is None:
            wording = self._known[key] = self._made(spoken, habits)
        return wording

    def _own(self, spoken: Dialect) -> Wording:
        """Return the request unchanged, except for other models' reasoning blocks, which the provider would refuse."""
        without_foreign_thoughts = spoken.requests.without_foreign_thoughts
        if without_foreign_thoughts is None:
            return Wording(self._fields)
        wording = self._known.get(spoken)
        if wording is None:
            try:
                wording = without_foreign_thoughts(self._fields)
            except Malformed:
                wording = Wording(self._fields)  # the provider reports the error in its own words
            self._known[spoken] = wording
        return wording

    def _made(self, spoken: Dialect, habits: Habits) -> Wording:
        try:
            return rendered(self._fields, self._dialect, spoken, habits)
        except Malformed as malformed:
            self.malformed = malformed
            self.malformed_for += 1
            raise _Unfit(f"cannot be asked: {malformed.message}") from None


def against_policy(deployment: Deployment, policy: DataPolicy) -> str | None:
    """Return why ``policy`` does not allow ``deployment`` to see the prompt; None if it does."""
    if policy.zdr and not deployment.zdr:
        return "is not known to have zero data retention (zdr)"
    if policy.regions is not None and deployment.region not in policy.regions:
        return f"is not in {' or '.join(policy.regions)} but {deployment.region or 'an unknown region'}"
    if policy.quantizations is not None and deployment.quantization not in policy.quantizations:
        return f"is not {' or '.join(policy.quantizations)} but {deployment.quantization or 'unknown'}"
    return None


def _check_policy(deployment: Deployment, policy: DataPolicy) -> None:
    if (reason := against_policy(deployment, policy)) is not None:
        raise _Unfit(reason)


def _check_abilities(deployment: Deployment, demanded: Iterable[str]) -> None:
    for ability in demanded:
        if getattr(deployment.capabilities, ability) is False:
            raise _Unfit(_ABILITIES[ability])


def _check_length(deployment: Deployment, needs: Needs) -> None:
    capabilities = deployment.capabilities
    context = capabilities.context_tokens
    if context is not None and needs.prompt_tokens > context:
        raise _TooLong(f"holds {context} tokens, the prompt has about {needs.prompt_tokens}")
    most = capabilities.max_output_tokens
    if most is not None and needs.max_tokens is not None and needs.max_tokens > most:
        raise _Unfit(f"answers with at most {most} tokens, not {needs.max_tokens}")


def _nearly_long_enough(deployments: list[Deployment], needs: Needs) -> list[Deployment]:
    """Return those whose context may be long enough if the estimate is a little too high."""
    return [
        each for each in deployments if needs.prompt_tokens <= (each.capabilities.context_tokens or 0) * _ESTIMATE_SLACK
    ]
