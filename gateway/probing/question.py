"""What a probe asks: one short prompt, the same each time but for its salt, as a call to one deployment."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from gateway.attempt_records import WinOn
from gateway.calls import Call, Kind, Mode, Objective
from gateway.errors import ApiError
from gateway.fleet.deployment import Deployment
from gateway.fleet.model import Model
from gateway.ingress.asked import Needs
from gateway.ingress.body import CHARS_PER_TOKEN
from gateway.ingress.fitting import Fitting, Question, fitted
from gateway.prompt_classes import answer_class
from gateway.settings.deployment import DataPolicy
from gateway.settings.probes import ProbeSettings
from providers.dialects.index import PIVOT

_SMALL = answer_class(0)


def asked(settings: ProbeSettings, model: str, salt: str) -> Mapping[str, msgspec.Raw]:
    """Return the request's fields. The salt is in front, so that no provider has the prompt in a cache."""
    message = {"role": "user", "content": f"{salt}: {settings.prompt}"}
    fields = {"model": model, "messages": [message], "max_tokens": settings.max_tokens, "stream": True}
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def size_of(fields: Mapping[str, msgspec.Raw]) -> int:
    """Return the bytes of the prompt, and of what is beside it."""
    return sum(len(name) + len(bytes(raw)) for name, raw in fields.items())


def phrased(model: Model, deployment: Deployment, fields: Mapping[str, msgspec.Raw], max_tokens: int) -> Fitting | None:
    """Return what ``deployment`` is sent; None if it cannot be asked for an answer."""
    needs = Needs(size_of(fields) // CHARS_PER_TOKEN, max_tokens)
    try:
        return fitted(Question(model.name, PIVOT, fields, needs, DataPolicy()), [deployment])
    except ApiError:
        return None


def call_of(
    model: Model,
    fitting: Fitting,
    fields: Mapping[str, msgspec.Raw],
    *,
    probe_id: str,
    max_tokens: int,
    received_at: float,
    started_at: datetime,
    replica: str,
    region: str | None,
) -> Call:
    """Return the probe as a call, of no client."""
    prompt_tokens = size_of(fields) // CHARS_PER_TOKEN
    return Call(
        id=probe_id,
        received_at=received_at,
        started_at=started_at,
        client=None,
        model=model.name,
        endpoint=PIVOT.endpoint,
        streamed=True,
        mode=Mode.SINGLE,
        objective=Objective.FIRST_TOKEN,
        win_on=WinOn(model.race.win_on),
        prompt_class=_SMALL,
        prompt_tokens=prompt_tokens,
        wants_usage=False,
        fields=fields,
        wordings=fitting.wordings,
        dropped=fitting.dropped,
        headers={},
        tags={},
        replica=replica,
        region=region,
        kind=Kind(endpoint=PIVOT.endpoint, max_tokens=max_tokens, prompt_tokens=prompt_tokens),
        is_narrowed=True,
    )
