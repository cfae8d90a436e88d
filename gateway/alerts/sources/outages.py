"""Deployments that are out, and models of which no deployment can answer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from gateway.alerts.condition import Condition, Kind, Severity, key_of
from gateway.alerts.sources import literals
from gateway.race_failures import NotAsked

BEFORE = timedelta(minutes=15)  # of what the evidence shows


class OutageSource:
    """Asks this process's own health of the deployments, so it also works while the database is away."""

    kinds = (Kind.MODEL_OUT, Kind.DEPLOYMENT_OUT)

    def __init__(
        self,
        models: Callable[[], Mapping[str, Collection[str]]],
        not_asked: Callable[[Collection[str]], Sequence[NotAsked]],
        *,
        model_out_s: Callable[[], float],
        deployment_out_s: Callable[[], float],
        utc_now: Callable[[], datetime],
    ) -> None:
        """``models`` are the deployments by model, ``not_asked`` says which of some are not used now, and why."""
        self._models = models
        self._not_asked = not_asked
        self._model_out_s = model_out_s
        self._deployment_out_s = deployment_out_s
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[Condition]:
        """Return the models and deployments that are out."""
        found: list[Condition] = []
        covers: dict[str, str] = {}  # the model that is out altogether, by deployment
        broken: dict[str, NotAsked] = {}
        for model, deployments in self._models().items():
            unused = self._not_asked(deployments)
            if unused and len(unused) == len(deployments):
                found.append(self._of_model(model, unused))
                covers |= dict.fromkeys(deployments, model)
            broken |= {each.deployment: each for each in unused if each.is_broken}
        return [*found, *(self._of_deployment(each, covers.get(name)) for name, each in broken.items())]

    def _of_model(self, model: str, unused: Sequence[NotAsked]) -> Condition:
        return Condition(
            kind=Kind.MODEL_OUT,
            subject=model,
            severity=Severity.PAGE,
            summary=f"Model {model}: none of its {len(unused)} deployments can answer",
            figures={each.deployment: each.reason for each in unused},
            sql=self._attempts([each.deployment for each in unused]),
            after_s=self._model_out_s(),
        )

    def _of_deployment(self, unused: NotAsked, covering: str | None) -> Condition:
        return Condition(
            kind=Kind.DEPLOYMENT_OUT,
            subject=unused.deployment,
            severity=Severity.TICKET,
            summary=f"Deployment {unused.deployment} is out: {unused.reason}",
            figures={"reason": unused.reason},
            sql=self._attempts([unused.deployment]),
            after_s=self._deployment_out_s(),
            covered_by=None if covering is None else key_of(Kind.MODEL_OUT, covering),
        )

    def _attempts(self, deployments: Collection[str]) -> str:
        return f"""\
select started_at, deployment, role, outcome, status_code, error_kind, error_message
from attempts
where deployment in {literals.texts(deployments)} and started_at >= {literals.instant(self._utc_now() - BEFORE)}
order by started_at desc
limit 50"""  # noqa: S608 - quoted
