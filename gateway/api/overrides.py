"""The race settings that a request may override, and the model's settings with these changes.

The request takes precedence over its client's profile, the profile over the model's settings. Only the operator sets
the limits of the cost of extra attempts (``budget``, ``value_usd_per_s``, ``usd_per_day``, ``extra_usd_per_call``); the
floor ``worth_ms`` may only be raised.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec

from gateway.access import Client
from gateway.api.preferences import Preferences
from gateway.core.attempts import Invalid, WinOn
from gateway.core.calls import Mode, Objective
from gateway.core.errors import Forbidden, InvalidRequest
from gateway.fleet import Model
from gateway.settings import (
    FASTEST_TOK_S,
    ONE_AT_A_TIME,
    SOONEST_TTFT_MS,
    Profile,
    RaceSettings,
    TakeoverSettings,
    When,
    contradictions,
)

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
    takeover: bool | None = None  # whether another deployment finishes a broken answer
    invalid: Invalid | None = None
    hold: bool | None = None  # whether a first token may wait for a faster answer
    worth_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None  # the configured floor can only be raised


NOTHING = RaceOverride()


def read_override(raw: msgspec.Raw | None, header: str | None) -> RaceOverride:
    """Read an override: an object, or only the name of a mode or a profile. The body takes precedence over the header.

    Raises:
        InvalidRequest: neither an object nor such a name, or an invalid value.

    """
    # aiohttp keeps bytes of invalid UTF-8 as surrogates
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


def with_override(model: Model, override: RaceOverride, client: Client, *, stateful: bool) -> Model:
    """Return ``model`` with its race settings for this call: the configured ones, with the permitted overrides.

    ``stateful`` calls change something at the provider and are never sent twice.

    Raises:
        Forbidden: the key may not override race settings, or not launch so many attempts.
        InvalidRequest: the settings contradict each other.

    """
    if override == NOTHING:
        model = model.under(client.profile)
        race = model.race
    else:
        _check(override, client)
        configured = model
        model = model.under(override.profile or client.profile)
        names = withheld(configured, override, client)
        if _TAKEOVER in names or _SLOW in names:
            model = msgspec.structs.replace(model, takeover=configured.under(client.profile).takeover)
        race = _changed(model.race, override, client)
        if _RIVAL in names:
            race = race.model_copy(update={_RIVAL: False})
    if override.takeover is not None:
        model = msgspec.structs.replace(model, takeover=_taken_over(model, wanted=override.takeover))
    if stateful:
        race = race.model_copy(update=ONE_AT_A_TIME)
    return model if race is model.race else msgspec.structs.replace(model, race=race)


def withheld(model: Model, override: RaceOverride, client: Client) -> Sequence[str]:
    """Return the parts of the named profile that only an operator can give and the request does not get.

    ``model`` is as configured.
    """
    if override.profile is None:
        return ()
    profiled, allowed = model.under(override.profile), model.under(client.profile)
    if override.takeover is False or profiled.takeover.when is When.NEVER:
        return ()  # a rival is kept only to continue an answer
    if allowed.takeover.when is When.NEVER:
        return (_TAKEOVER,)
    lacks_slow = allowed.takeover.slow is None is not profiled.takeover.slow
    lacks_rival = profiled.race.keeps_speakers and not allowed.race.keeps_speakers
    return tuple(name for name, lacks in ((_SLOW, lacks_slow), (_RIVAL, lacks_rival)) if lacks)


def _check(override: RaceOverride, client: Client) -> None:
    if not client.override:
        raise Forbidden(
            "this key may not set how its calls are raced: leave out 'race', x-holeshot-race and headers of deadlines"
        )
    if override.width is not None and override.width > client.max_width:
        raise Forbidden(f"this key may race at most {client.max_width} deployments at once, not {override.width}")


def _changed(race: RaceSettings, override: RaceOverride, client: Client) -> RaceSettings:
    """Return ``race`` with the overrides. Without a width the configured one is used, within the key's limit."""
    values = msgspec.structs.asdict(override)
    changes = {name: value for name, value in values.items() if value is not None and name not in _NOT_OF_RACE}
    if (override.profile or override.mode is Mode.RACE) and override.width is None:
        changes["width"] = width = min(race.width, client.max_width)
        if override.mode is Mode.RACE and width == 1 < race.width:  # the key may not race: the race stays as configured
            del changes["width" if race.mode is Mode.RACE else "mode"]
    if override.worth_ms is not None:
        changes["worth_ms"] = max(race.worth_ms, override.worth_ms)
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


_TAKEOVER, _SLOW, _RIVAL = "takeover", "takeover.slow", "keep_rival"
_NOT_OF_RACE = frozenset({"profile", "takeover"})
_PROFILES = frozenset(Profile)


# Deadlines in headers, the gateway's and llm-d's. llm-d's router calls deadlines service level objectives:
# ``x-llm-d-slo-ttft-ms`` is the wanted time to the first token, ``x-llm-d-slo-tpot-ms`` the wanted time per output
# token after the first. Clients of llm-d work unchanged.

DEADLINE = "x-holeshot-deadline-ms"  # for the first token, from the receipt of the request
LLM_D_TTFT = "x-llm-d-slo-ttft-ms"  # the same
LLM_D_TPOT = "x-llm-d-slo-tpot-ms"  # per token after the first: 1000 / (tok/s)

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_MS_PER_S = 1000.0
_BY_HEADERS: Mapping[str, tuple[float, str]] = {
    DEADLINE: (SOONEST_TTFT_MS, "no first token is measured sooner"),
    LLM_D_TTFT: (SOONEST_TTFT_MS, "no first token is measured sooner"),
    LLM_D_TPOT: (_MS_PER_S / FASTEST_TOK_S, "tokens that come faster count as a burst"),
}  # the minimum in milliseconds, and why


def read_deadlines(headers: Mapping[str, str]) -> RaceOverride:
    """Return the race settings in the headers; of two deadlines the stricter. ``NOTHING`` without deadlines.

    Raises:
        InvalidRequest: a value is not a number of milliseconds, or too small.

    """
    if DEADLINE not in headers and LLM_D_TTFT not in headers and LLM_D_TPOT not in headers:  # as in nearly all calls
        return NOTHING
    deadlines = [ms for name in (DEADLINE, LLM_D_TTFT) if (ms := _milliseconds(headers, name)) is not None]
    tpot_ms = _milliseconds(headers, LLM_D_TPOT)
    return RaceOverride(
        ttft_ms=min(deadlines, default=None), min_tok_s=None if tpot_ms is None else _MS_PER_S / tpot_ms
    )


Said = TypeVar("Said", RaceOverride, Preferences)


def tightened(said: Said, deadlines: RaceOverride) -> Said:
    """Return the body's settings, with each deadline that is stricter."""
    ttft_ms = [ms for ms in (said.ttft_ms, deadlines.ttft_ms) if ms is not None]
    min_tok_s = [tok_s for tok_s in (said.min_tok_s, deadlines.min_tok_s) if tok_s is not None]
    return msgspec.structs.replace(said, ttft_ms=min(ttft_ms, default=None), min_tok_s=max(min_tok_s, default=None))


def _milliseconds(headers: Mapping[str, str], name: str) -> float | None:
    value = headers.get(name)
    if value is None:
        return None
    if _NUMBER.fullmatch(value.strip()) is None:
        raise InvalidRequest(f"{name!r} must be a number of milliseconds, as in 800", param=name)
    ms, (least_ms, reason) = float(value), _BY_HEADERS[name]
    if ms < least_ms:
        raise InvalidRequest(f"{name!r} must be at least {least_ms:g}, not {ms:g}: {reason}", param=name)
    return ms
