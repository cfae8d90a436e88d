"""GET /leaderboard?explain=1: for the next call of a model, who would run, with what delay, and why."""

from collections.abc import Mapping

import msgspec

from gateway.errors import InvalidRequest
from gateway.fleet import Model
from gateway.ingress.admission import Client
from gateway.ingress.body import CHARS_PER_TOKEN, prompt_class
from gateway.ingress.context import Context
from gateway.ingress.entry import resolved
from gateway.ingress.override import RaceOverride, as_asked
from gateway.settings.profiles import Profile
from gateway.steering.explanation import Explanation


class Supposed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The call that is only supposed: its size and kind."""

    prompt_tokens: int = 700  # a typical chat's
    max_tokens: int | None = None
    stream: bool = True


class Explained(msgspec.Struct, frozen=True):
    """What is answered for one model."""

    model: str
    profile: Profile | None  # the one that counts
    explanation: Explanation


def explained(context: Context, model: Model, query: Mapping[str, str], client: Client) -> Explained:
    """Explain the plan of a call described by ``query``: the fields of ``Supposed``, and those of a race override.

    Counts nothing: the next call is planned as if nobody had asked.

    Raises:
        InvalidRequest: a field is unknown, or makes no sense.

    """
    supposed, override = _read(query)
    model = as_asked(model, override, client, stateful=False)
    explanation = context.steering.explain(
        model.name,
        [deployment.name for deployment in client.deployments(model)],
        model.race,
        objective=resolved(model.race.objective, streamed=supposed.stream, for_program=False),
        prompt_class=prompt_class(supposed.prompt_tokens * CHARS_PER_TOKEN),
        prompt_tokens=supposed.prompt_tokens,
        max_tokens=supposed.max_tokens,
        prices=model.prices,
        limits=model.limits,
    )
    return Explained(model.name, model.race.profile, explanation)


def _read(query: Mapping[str, str]) -> tuple[Supposed, RaceOverride]:
    fields = {name: value for name, value in query.items() if name not in _ADDRESS}
    override = {name: fields.pop(name) for name in RaceOverride.__struct_fields__ if name in fields}
    try:
        return msgspec.convert(fields, Supposed, strict=False), msgspec.convert(override, RaceOverride, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join((*Supposed.__struct_fields__, *RaceOverride.__struct_fields__))
        raise InvalidRequest(f"the query is not understood: {error}; explain takes {known}") from None


_ADDRESS = frozenset({"explain", "model"})
