"""What a request may change about its own race, and the model's settings with these changes.

The request takes precedence over its client's profile, the profile over the model's settings. Only the operator sets
what extra attempts may cost (``budget``, ``usd_per_day``, ``extra_usd_per_call``).
"""

from typing import Annotated

import msgspec

from gateway.attempt_records import Invalid, WinOn
from gateway.calls import Mode, Objective
from gateway.errors import Forbidden, InvalidRequest
from gateway.fleet.model import Model
from gateway.ingress.admission import Client
from gateway.settings.model import RaceSettings
from gateway.settings.profiles import Profile
from gateway.settings.races import ONE_AT_A_TIME, contradictions
from gateway.settings.takeover import TakeoverSettings, When

HEADER = "x-holeshot-race"


class RaceOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body's ``race``, or the header ``x-holeshot-race``. None: not set."""

    profile: Profile | None = None
    mode: Mode | None = None
    width: Annotated[int, msgspec.Meta(ge=1, le=8)] | None = None
    hedge_delay_s: Annotated[float, msgspec.Meta(ge=0, le=60)] | None = None
    win_on: WinOn | None = None
    objective: Objective | None = None
    ttft_ms: Annotated[float, msgspec.Meta(gt=0)] | None = None
    min_tok_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    reading_tok_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    takeover: bool | None = None  # an answer that breaks is finished by another deployment
    invalid: Invalid | None = None
    hold: bool | None = None  # whether a first token may wait for a faster answer


NOTHING = RaceOverride()


def read_override(raw: msgspec.Raw | None, header: str | None) -> RaceOverride:
    """Read an override: an object, or only the name of a mode or a profile. The body takes precedence over the header.

    Raises:
        InvalidRequest: it is neither, or has an invalid value.

    """
    # aiohttp keeps bytes that are not UTF-8 as surrogates
    text = bytes(raw) if raw is not None else (header or "").strip().encode(errors="replace")
    if not text or text == b"null":
        return NOTHING
    try:
        if text.startswith(b"{"):
            return msgspec.json.decode(text, type=RaceOverride)
        word = msgspec.json.decode(text, type=str) if raw is not None or text.startswith(b'"') else text.decode()
        return msgspec.convert({"profile" if word in _PROFILES else "mode": word}, RaceOverride)
    except msgspec.DecodeError as error:
        source = HEADER if raw is None else "race"
        raise InvalidRequest(
            f"{source!r} is not understood: {error}; send a mode ({', '.join(Mode)}), a profile ({', '.join(Profile)})"
            f" or an object with {', '.join(RaceOverride.__struct_fields__)}",
            param=source,
        ) from None


def as_asked(model: Model, override: RaceOverride, client: Client, *, stateful: bool) -> Model:
    """Return ``model`` with its race settings for this call: the configured ones, with the permitted overrides.

    ``stateful`` calls change something at the provider and are never sent twice.

    Raises:
        Forbidden: the key may not override race settings, or not start so many attempts.
        InvalidRequest: the settings contradict each other.

    """
    if override == NOTHING:
        model = model.under(client.profile)
        race = model.race
    else:
        _check(override, client)
        model = model.under(override.profile or client.profile)
        race = _changed(model.race, override, client)
    if override.takeover is not None:
        model = msgspec.structs.replace(model, takeover=_taken_over(model, wanted=override.takeover))
    if stateful:
        race = race.model_copy(update=ONE_AT_A_TIME)
    return model if race is model.race else msgspec.structs.replace(model, race=race)


def _check(override: RaceOverride, client: Client) -> None:
    if not client.override:
        raise Forbidden(
            "this key may not set how its calls are raced: leave out 'race', x-holeshot-race and headers of deadlines"
        )
    if override.width is not None and override.width > client.max_width:
        raise Forbidden(f"this key may race at most {client.max_width} deployments at once, not {override.width}")


def _changed(race: RaceSettings, override: RaceOverride, client: Client) -> RaceSettings:
    """Return ``race`` with the overrides. Without a width it is as configured, within the key's limit."""
    said = msgspec.structs.asdict(override)
    changes = {name: value for name, value in said.items() if value is not None and name not in _NOT_OF_RACE}
    if (override.profile or override.mode is Mode.RACE) and override.width is None:
        changes["width"] = min(race.width, client.max_width)
    race = race.model_copy(update=changes)
    if override.invalid is not None and race.win_on is not WinOn.VALID:
        raise InvalidRequest("'race' makes no sense: invalid has an effect with win_on: valid only", param="race")
    for field, reason in contradictions(race, changes.keys()):
        raise InvalidRequest(f"'race' makes no sense: {field} {reason}", param="race")
    return race


def _taken_over(model: Model, *, wanted: bool) -> TakeoverSettings:
    if wanted and model.takeover.when is When.NEVER:
        raise InvalidRequest(
            f"'race' makes no sense: takeover is not allowed for model {model.name!r}: its operator sets"
            " 'takeover: asked' in the configuration",
            param="race",
        )
    return model.takeover.model_copy(update={"when": When.ALWAYS if wanted else When.NEVER})


_NOT_OF_RACE = frozenset({"profile", "takeover"})
_PROFILES = frozenset(Profile)
