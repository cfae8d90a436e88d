"""A provider that goes out with many models is one incident; what goes out alone is told for itself, at once."""

from collections.abc import Collection, Mapping, Sequence

import pytest

from gateway.alerts import AlertEvent, OutageSource, Severity
from gateway.alerts.outages import LASTS, MANY
from gateway.core.race_failures import SkippedDeployment
from tests.unit.alerts.inside.world import EVERY_S, RESOLVE_AFTER_S, START, World

OPENED, RESOLVED = AlertEvent.OPENED, AlertEvent.RESOLVED
MODEL_OUT_S, DEPLOYMENT_OUT_S = 30.0, 300.0
SEVERAL = "model_out:p: several models"


class Fleet:
    """Models with their deployments, some of which are out, as one replica of a world sees them."""

    def __init__(self, world: World, models: dict[str, list[str]], replica: int = 0) -> None:
        self.out: set[str] = set()
        self.silent: set[str] = set()
        self._told = world.sources[replica]
        self._source = OutageSource(
            lambda: {model: dict.fromkeys(names, 120.0) for model, names in models.items()},
            self._unused,
            self._all_silent,
            model_out_s=lambda: MODEL_OUT_S,
            deployment_out_s=lambda: DEPLOYMENT_OUT_S,
            utc_now=lambda: world.now,
        )

    async def look(self) -> None:
        self._told.now = list(await self._source.conditions())

    def _unused(self, deployments: Collection[str]) -> Sequence[SkippedDeployment]:
        cause = "it answered with an error (503)"
        return [
            SkippedDeployment(each, "open: …", for_good=False, cause=cause) for each in deployments if each in self.out
        ]

    def _all_silent(self, _model: str, ttft_s: Mapping[str, float]) -> Sequence[SkippedDeployment]:
        cause = "no first token for 31 s"
        silent = [SkippedDeployment(each, "silent", for_good=False, cause=cause) for each in ttft_s]
        return silent if self.silent.issuperset(ttft_s) else []


async def run(world: World, *fleets: Fleet, seconds: float) -> None:
    for _ in range(round(seconds / EVERY_S)):
        for each in fleets:
            await each.look()
        await world.run(EVERY_S)


def models(n: int, *others: str) -> dict[str, list[str]]:
    return {f"model-{number}": [f"p/m{number}", *(f"{each}/m{number}" for each in others)] for number in range(n)}


async def test_a_provider_that_is_out_with_sixty_models_is_one_message_and_one_when_it_is_back() -> None:
    world = World()
    fleet = Fleet(world, models(60))
    fleet.out = {f"p/m{number}" for number in range(60)}
    await run(world, fleet, seconds=60)
    assert await world.said() == [(OPENED, SEVERAL)]
    [alert] = await world.watches[0].open_alerts()
    assert (alert.severity, alert.figures["n"]) == (Severity.PAGE, 60)
    assert str(alert.figures["models"]).split(", ") == [f"model-{number}" for number in range(60)]
    assert alert.summary.startswith(
        "p: 60 models are out since 12:00 UTC, none of which others can answer. Mostly: it "
    )
    assert alert.summary.endswith("model-18, model-19 and 40 more")
    while fleet.out:
        fleet.out.pop()
        await run(world, fleet, seconds=EVERY_S)
    await run(world, fleet, seconds=2 * RESOLVE_AFTER_S)
    assert {event for event, _ in await world.said()} <= {RESOLVED}
    assert await world.watches[0].open_alerts() == []


@pytest.mark.parametrize("n", range(1, MANY))
async def test_an_outage_of_one_model_alone_is_told_at_once(n: int) -> None:
    world = World()
    fleet = Fleet(world, models(60))
    fleet.out = {f"p/m{number}" for number in range(n)}
    await run(world, fleet, seconds=MODEL_OUT_S)
    assert await world.said() == []
    await run(world, fleet, seconds=EVERY_S)
    assert sorted(await world.said()) == [(OPENED, f"model_out:model-{number}") for number in range(n)]


async def test_several_are_told_no_later_than_the_first_of_them_would_be() -> None:
    world = World()
    fleet = Fleet(world, models(60))
    fleet.out = {"p/m0"}
    await run(world, fleet, seconds=MODEL_OUT_S)
    fleet.out |= {"p/m1", "p/m2"}
    await run(world, fleet, seconds=EVERY_S)
    assert await world.said() == [(OPENED, SEVERAL)]


async def test_models_that_go_out_one_after_the_other_are_told_again_when_they_are_twice_as_many() -> None:
    world = World()
    fleet = Fleet(world, models(60))
    for number in range(60):
        fleet.out.add(f"p/m{number}")
        await run(world, fleet, seconds=2 * EVERY_S)
    said = await world.said()
    assert len(said) == len(set(said)) <= 7
    named = " ".join(each.summary for each in await world.watches[0].open_alerts())
    assert all(f"model-{number}" in named for number in range(20))
    assert "48 models" in named
    fleet.out = set()
    await run(world, fleet, seconds=2 * RESOLVE_AFTER_S)
    assert len(await world.said()) == len(said)


async def test_what_stays_out_when_its_provider_is_back_is_told_for_itself() -> None:
    world = World()
    fleet = Fleet(world, models(60))
    fleet.out = {f"p/m{number}" for number in range(60)}
    await run(world, fleet, seconds=60)
    fleet.out = {"p/m7"}
    await world.said()
    await run(world, fleet, seconds=LASTS.total_seconds() + RESOLVE_AFTER_S + 2 * EVERY_S)
    assert sorted(await world.said()) == [(OPENED, "model_out:model-7"), (RESOLVED, SEVERAL)]


async def test_deployments_whose_models_others_answer_are_one_ticket() -> None:
    world = World()
    fleet = Fleet(world, models(60, "q"))
    fleet.out = {f"p/m{number}" for number in range(60)}
    await run(world, fleet, seconds=DEPLOYMENT_OUT_S + 2 * EVERY_S)
    [alert] = await world.watches[0].open_alerts()
    assert (alert.subject, alert.severity) == ("p: several deployments", Severity.TICKET)
    assert alert.summary.startswith("p: 60 deployments are out since 12:00 UTC; others answer.")


async def test_models_of_two_providers_that_are_out_are_one_incident_of_both() -> None:
    world = World()
    fleet = Fleet(world, models(60, "q"))
    fleet.out = {f"{each}/m{number}" for number in range(60) for each in "pq"}
    await run(world, fleet, seconds=DEPLOYMENT_OUT_S + 2 * EVERY_S)
    assert await world.said() == [(OPENED, "model_out:p, q: several models")]


async def test_a_replica_that_has_met_fewer_adds_no_message_of_its_own() -> None:
    world = World(replicas=2)
    many, few = Fleet(world, models(60)), Fleet(world, models(60), 1)
    many.out, few.out = {f"p/m{number}" for number in range(60)}, {"p/m0"}
    await run(world, many, seconds=60)
    await run(world, many, few, seconds=120)
    assert await world.said() == [(OPENED, SEVERAL)]
    assert world.now > START


async def test_a_model_whose_deployments_are_out_or_silent_is_one_incident() -> None:
    world = World()
    fleet = Fleet(world, {"chat": ["p/a", "q/a"]})
    fleet.silent = {"p/a"}
    await run(world, fleet, seconds=2 * MODEL_OUT_S)
    assert await world.said() == []  # the other one may answer
    fleet.out = {"q/a"}
    await run(world, fleet, seconds=MODEL_OUT_S + EVERY_S)
    assert await world.said() == [(OPENED, "model_out:chat")]
    await run(world, fleet, seconds=EVERY_S)
    [alert] = await world.watches[0].open_alerts()
    assert alert.summary == (
        "chat is out since 12:01 UTC. None of its 2 deployments can answer:"
        " q/a: it answered with an error (503); p/a: no first token for 31 s"
    )
    fleet.out, fleet.silent = {"p/a", "q/a"}, set()  # its attempts have ended
    await run(world, fleet, seconds=MODEL_OUT_S)
    assert await world.said() == []
