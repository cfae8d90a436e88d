"""Deployments that are out, and models without a deployment that can answer: many at once are one incident."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gateway.alerts.alert import AlertCondition, AlertKind, Severity, key_of
from gateway.alerts.sources import instant, texts
from gateway.core.race_failures import SkippedDeployment

# A provider with sixty models that goes out is one message, not sixty. A model that is out alone, or with one other,
# has a message of its own.
MANY = 3
MODELS_A_TURN = 200  # without a pause, in two milliseconds; then the event loop runs other tasks
LASTS = timedelta(minutes=5)  # fewer are still the same incident: models come back one by one, when called
AGAIN_FACTOR = 2  # an incident is reported again once so many times as many are out
LISTED, NAMED = 100, 20  # names in the figures, and in the sentence
BEFORE = timedelta(minutes=15)  # covered by the evidence


class Incident(msgspec.Struct):
    """An outage of several models, or deployments, of the same providers."""

    first_at: datetime  # since when the first of them was out
    began_at: datetime  # since when there were many
    many_at: datetime  # when there last were
    told: int = 0  # how many there were at the last report; 0: not yet reported
    again: list[int] = []  # how many there were at each later report


class Incidents:
    """The outages of several at once, of models or of deployments, by their providers."""

    def __init__(self) -> None:
        self.known: dict[str, Incident] = {}

    def update(
        self, out: Mapping[str, Sequence[str]], since: Mapping[str, datetime], after_s: float, now: datetime
    ) -> None:
        """Note what is out, by providers; ``since`` is by name. A report is due when the first is out ``after_s``."""
        found: dict[str, Incident] = {}
        for providers, names in out.items():
            known, n = self.known.get(providers), len(names)
            if n >= MANY:
                known = known or Incident(min(since[each] for each in names), now, now)
                known.many_at = now
            elif known is None or now - known.many_at >= LASTS:
                continue
            found[providers] = known
            if n >= MANY and now - known.first_at >= timedelta(seconds=after_s):
                if known.told and n >= AGAIN_FACTOR * known.told:
                    known.again.append(n)
                    known.told = n
                known.told = known.told or n
        self.known = found


class OutageSource:
    """Reads the health of deployments in this process, so it also works while the database is away."""

    kinds = (AlertKind.MODEL_OUT, AlertKind.DEPLOYMENT_OUT)

    def __init__(
        self,
        models: Callable[[], Mapping[str, Mapping[str, float]]],
        not_asked: Callable[[Collection[str]], Sequence[SkippedDeployment]],
        silent: Callable[[str, Mapping[str, float]], Sequence[SkippedDeployment]],
        *,
        model_out_s: Callable[[], float],
        deployment_out_s: Callable[[], float],
        utc_now: Callable[[], datetime],
    ) -> None:
        """``models`` returns the time-outs of a first token by deployment, by model.

        ``not_asked`` returns the deployments that are not used now, and why. ``silent`` returns a model's deployments
        if all are asked and none answers; otherwise no deployments.
        """
        self._models = models
        self._not_asked = not_asked
        self._silent = silent
        self._model_out_s = model_out_s
        self._deployment_out_s = deployment_out_s
        self._utc_now = utc_now
        self._since: dict[str, datetime] = {}  # when a condition was first seen, by its key
        self._of_models, self._of_deployments = Incidents(), Incidents()

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the models and deployments that are out, and the incidents to which several belong."""
        out: dict[str, Sequence[SkippedDeployment]] = {}  # by the model that has no deployment left
        covers: dict[str, str] = {}  # that model, by deployment
        broken: dict[str, SkippedDeployment] = {}
        others: dict[str, int] = {}  # how many answer beside a deployment: the fewest of its models
        for number, (model, deployments) in enumerate(self._models().items(), 1):
            if number % MODELS_A_TURN == 0:
                await asyncio.sleep(0)
            unused = self._not_asked(deployments)
            out_now = {each.deployment for each in unused}
            silent = self._silent(model, {name: deployments[name] for name in deployments if name not in out_now})
            if deployments and len(unused) + len(silent) == len(deployments):
                out[model] = [*unused, *silent]
                covers |= dict.fromkeys(deployments, model)
            for each in unused:
                if each.is_broken:
                    broken[each.deployment] = each
                    answering = len(deployments) - len(unused)
                    others[each.deployment] = min(answering, others.get(each.deployment, answering))
        now = self._utc_now()
        keys = [key_of(AlertKind.MODEL_OUT, each) for each in out]
        keys += [key_of(AlertKind.DEPLOYMENT_OUT, each) for each in broken]
        self._since = {key: self._since.get(key, now) for key in keys}
        alone = {name: (each,) for name, each in broken.items() if name not in covers}
        found = [self._of_model(model, unused) for model, unused in out.items()]
        found += [self._of_deployment(each, others[name], covers.get(name)) for name, each in broken.items()]
        found += self._of_several(AlertKind.MODEL_OUT, self._of_models, out, self._model_out_s(), now)
        found += self._of_several(AlertKind.DEPLOYMENT_OUT, self._of_deployments, alone, self._deployment_out_s(), now)
        return found

    def _began(self, key: str) -> str:
        return f"{self._since[key]:%H:%M} UTC"

    def _of_model(self, model: str, unused: Sequence[SkippedDeployment]) -> AlertCondition:
        none = f"None of its {len(unused)} deployments can" if len(unused) > 1 else "Its only deployment cannot"
        return AlertCondition(
            kind=AlertKind.MODEL_OUT,
            subject=model,
            severity=Severity.PAGE,
            summary=f"{model} is out since {self._began(key_of(AlertKind.MODEL_OUT, model))}. {none} answer: "
            + "; ".join(f"{each.deployment}: {each.cause or each.reason}" for each in unused),
            figures={each.deployment: each.reason for each in unused},
            sql=self._attempts("deployment", [each.deployment for each in unused]),
            after_s=self._model_out_s(),
            covered_by=key_of(AlertKind.MODEL_OUT, several(_providers(unused), "models")),
        )

    def _of_deployment(self, unused: SkippedDeployment, others: int, covering: str | None) -> AlertCondition:
        began = self._began(key_of(AlertKind.DEPLOYMENT_OUT, unused.deployment))
        return AlertCondition(
            kind=AlertKind.DEPLOYMENT_OUT,
            subject=unused.deployment,
            severity=Severity.TICKET,
            summary=f"{unused.deployment} is out since {began}: {unused.cause or unused.reason}. {_others(others)}",
            figures={"reason": unused.reason},
            sql=self._attempts("deployment", [unused.deployment]),
            after_s=self._deployment_out_s(),
            covered_by=key_of(AlertKind.DEPLOYMENT_OUT, several(_providers([unused]), "deployments"))
            if covering is None
            else key_of(AlertKind.MODEL_OUT, covering),
        )

    def _of_several(
        self,
        kind: AlertKind,
        incidents: Incidents,
        out: Mapping[str, Sequence[SkippedDeployment]],
        after_s: float,
        now: datetime,
    ) -> list[AlertCondition]:
        """Return the incidents of several models, or deployments, that are ``out`` for these reasons."""
        names: dict[str, list[str]] = {}
        for name, unused in out.items():
            names.setdefault(_providers(unused), []).append(name)
        incidents.update(names, {name: self._since[key_of(kind, name)] for name in out}, after_s, now)
        return [
            condition
            for providers, incident in incidents.known.items()
            for condition in self._of_incident(
                kind, providers, incident, {each: out[each] for each in names[providers]}, after_s
            )
        ]

    def _of_incident(
        self,
        kind: AlertKind,
        providers: str,
        incident: Incident,
        out: Mapping[str, Sequence[SkippedDeployment]],
        after_s: float,
    ) -> list[AlertCondition]:
        is_of_models = kind is AlertKind.MODEL_OUT
        what = "models" if is_of_models else "deployments"
        causes = Counter(each.cause or each.reason for unused in out.values() for each in unused)
        named = ", ".join([*out][:NAMED]) + (f" and {len(out) - NAMED} more" if len(out) > NAMED else "")
        first = AlertCondition(
            kind=kind,
            subject=several(providers, what),
            severity=Severity.PAGE if is_of_models else Severity.TICKET,
            summary=f"{providers}: {len(out)} {what} are out since {incident.first_at:%H:%M} UTC"
            f"{', none of which others can answer' if is_of_models else '; others answer'}."
            f" Mostly: {causes.most_common(1)[0][0]}. They are: {named}",
            figures={
                "n": len(out),
                what: ", ".join([*out][:LISTED]) + (f" and {len(out) - LISTED} more" if len(out) > LISTED else ""),
            },
            sql=self._attempts("provider", providers.split(", ")),
            after_s=max(0.0, after_s - (incident.began_at - incident.first_at).total_seconds()),
            opens=len(out) >= MANY,
        )
        return [first] + [
            msgspec.structs.replace(
                first,
                subject=f"{first.subject}, now {AGAIN_FACTOR ** (number + 1)} times as many",
                summary=f"By now {n} are out. {first.summary}",
                after_s=0.0,
            )
            for number, n in enumerate(incident.again)
        ]

    def _attempts(self, column: str, values: Collection[str]) -> str:
        return f"""\
select started_at, deployment, role, outcome, status_code, error_kind, error_message
from attempts
where {column} in {texts(values)} and started_at >= {instant(self._utc_now() - BEFORE)}
order by started_at desc
limit 50"""  # noqa: S608 - quoted


def several(providers: str, what: str) -> str:
    """Return the subject of an incident of several models, or deployments."""
    return f"{providers}: several {what}"


def _providers(unused: Sequence[SkippedDeployment]) -> str:
    return ", ".join(sorted({each.deployment.partition("/")[0] for each in unused}))


_NUMBERS = dict(enumerate(("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")))


def _others(n: int) -> str:
    """Return as a sentence that ``n`` other deployments answer."""
    return f"{_NUMBERS.get(n, n)} {'other answers' if n == 1 else 'others answer'}."
