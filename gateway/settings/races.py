"""Checks how models are raced: contradictions, and settings that work but may not be intended."""

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gateway.attempt_records import WinOn
from gateway.calls import Mode, Objective
from gateway.settings.deployment import DeploymentSettings
from gateway.settings.model import ModelSettings, RaceSettings
from gateway.settings.problems import Complaint, written
from gateway.settings.slo import FASTEST_TOK_S, SOONEST_TTFT_MS

# Changes for a race with one attempt at a time: no second one besides the first, even if that hangs.
ONE_AT_A_TIME: Mapping[str, Any] = MappingProxyType({"mode": Mode.SINGLE, "budget": 0.0})


def set_price(model: str) -> str:
    """Return what to do about an unknown price, with the place in the file."""
    return f"set price_per_mtok in {written(('models', model))}.deployments[]"


def contradictions(race: RaceSettings, said: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield contradictory settings, each with its field and the reason; ``said`` are the fields set explicitly."""
    if race.hedge_delay_s is not None and race.mode is not Mode.HEDGE and "hedge_delay_s" in said:
        yield "hedge_delay_s", f"has an effect in mode hedge only, not in {race.mode}: set mode: hedge, or remove it"
    if race.keep_rival and race.mode is Mode.SINGLE and "keep_rival" in said:
        yield "keep_rival", "needs a second attempt, and mode single starts none: set mode: race, hedge or auto"
    if race.win_on is WinOn.VALID and race.mode is Mode.SINGLE:
        yield "win_on", "valid needs a second deployment to ask if an answer is not: set mode: race, hedge or auto"
    if race.objective is Objective.COST and race.ttft_ms is None:
        yield "objective", "cost chooses the cheapest that is fast enough: set ttft_ms"
    if race.ttft_ms is not None and race.ttft_ms < SOONEST_TTFT_MS:
        yield (
            "ttft_ms",
            f"{race.ttft_ms:g} cannot be met: no first token is measured below {SOONEST_TTFT_MS:g} ms",
        )
    if race.min_tok_s is not None and race.min_tok_s > FASTEST_TOK_S:
        yield (
            "min_tok_s",
            f"{race.min_tok_s:g} cannot be met: above {FASTEST_TOK_S:g} tok/s an answer counts as a burst",
        )


def impossible(name: str, model: ModelSettings, is_priced: Callable[[DeploymentSettings], bool]) -> Iterator[Complaint]:
    """Yield what is wrong with the race of ``name``; ``is_priced`` returns whether a deployment's price is known."""
    race, place = model.race, ("models", name, "race")
    for field, reason in contradictions(race, race.model_fields_set):
        yield Complaint((*place, field), reason)
    count = len(model.deployments)
    if race.mode is Mode.RACE and race.width > count > 1:
        yield Complaint(
            (*place, "width"), f"{race.width} deployments cannot race, the model has {count}: add one, or lower width"
        )
    if race.objective is Objective.COST and not any(map(is_priced, model.deployments)):
        yield Complaint((*place, "objective"), f"cost needs a known price: {set_price(name)}")


def doubtful(name: str, model: ModelSettings, *, priced: bool, counted: bool = False) -> Iterator[str]:
    """Yield what works but may not be intended.

    ``priced``: the price of at least one of its deployments is known; ``counted``: clients have limits in dollars.
    """
    race = model.race
    for limit in ("usd_per_day", "extra_usd_per_call"):
        if getattr(race, limit) is not None and not priced:
            yield f"model {name!r}: {limit} has no effect, because no price is known: {set_price(name)}"
    if counted and not priced:
        yield f"model {name!r}: clients' limits in dollars do not count it, as no price is known: {set_price(name)}"
    if model.usd_per_day is not None and not priced:
        yield f"model {name!r}: its usd_per_day has no effect, because no price is known: {set_price(name)}"
    if race.mode is Mode.RACE and race.width - 1 > race.budget:
        yield (
            f"model {name!r}: races of {race.width} start {race.width - 1} extra attempts a call, the budget pays for"
            f" {race.budget:g}: many will be narrower"
        )
    if race.hold and race.objective is Objective.COST:
        yield f"model {name!r}: hold has no effect under the objective cost, which compares no speeds"
    if race.keep_rival and not race.budget:
        yield f"model {name!r}: keep_rival has no rival to keep, because budget is 0: no second attempt is started"
    if race.win_on is WinOn.VALID and len(model.deployments) == 1 and race.mode is not Mode.RACE:
        yield f"model {name!r}: win_on: valid has no other deployment to ask: add one, or race this one with itself"
    elif race.win_on is WinOn.VALID and not race.budget:
        yield f"model {name!r}: win_on: valid asks no other deployment after an invalid answer, because budget is 0"
