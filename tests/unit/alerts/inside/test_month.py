"""A few simulated days of alerts: everything that should fire does, once, and nothing else."""

from random import Random

import pytest

from tests.unit.alerts.incidents import HOUR_S, MINUTE_S, Incident
from tests.unit.alerts.inside.month import Month, Simulation, compare, simulate

EVENTS = [
    Incident(name="nothing", start_s=0.0, end_s=60.0),
    Incident(name="bad", start_s=HOUR_S, end_s=2 * HOUR_S, expected=("burn_fast:chat",), bad={"chat": 0.3}),
    Incident(
        name="out", start_s=6 * HOUR_S, end_s=7 * HOUR_S, expected=("deployment_out:a/chat",), broken=("a/chat",),
        restarts=(20 * MINUTE_S,),
    ),
    Incident(
        name="away", start_s=10 * HOUR_S, end_s=10.5 * HOUR_S, database="away",
        expected=("ledger_behind:replica-0", "ledger_behind:replica-1"),
    ),
]  # fmt: skip


async def test_in_half_a_day_each_incident_is_said_once_and_ends() -> None:
    findings = await simulate(EVENTS, seed=3, days=0.5)
    assert (findings.missed, findings.false_alarms, findings.duplicates) == ([], [], 0)


@pytest.mark.parametrize(("target", "share"), [("chat", 0.07), ("voice", 0.07), ("voice", 0.145)])
async def test_an_incident_near_the_factor_of_a_rule_pages_once(target: str, share: float) -> None:
    key = f"burn_fast:{target}"
    near = Incident(name="near", start_s=HOUR_S, end_s=9 * HOUR_S, expected=(key,), bad={target: share})
    for seed in (1, 2, 3):
        (found,) = (await simulate([near], seed=seed, days=0.6)).findings
        assert found.fired_after_s is not None
        assert found.resolved_after_s is not None
        assert found.resolved_after_s > 0
        assert found.duplicates == 0


async def test_five_minutes_in_which_all_calls_are_bad_are_said() -> None:
    noon_s, key = 12 * HOUR_S, "burn_fast:voice"  # 99 % are wanted, of four calls a minute
    gone = Incident(name="out", start_s=noon_s, end_s=noon_s + 300.0, expected=(key,), bad={"voice": 1.0})
    findings = await simulate([gone], seed=1, days=0.6)
    (found,) = findings.findings
    assert (findings.missed, findings.false_alarms, findings.duplicates) == ([], [], 0)
    assert found.fired_after_s is not None
    assert found.fired_after_s <= 330.0  # the simulated calls are counted by the minute


async def test_the_comparison_finds_what_is_missed_said_twice_or_without_a_cause() -> None:
    simulation = Simulation(Month(Random(1), EVENTS, 0.5), 1)
    while simulation.now_s < 3 * HOUR_S:
        await simulation.step(15.0)
    messages = simulation.delivered
    assert len(messages) == 2
    missed = compare([*EVENTS[:1], Incident(name="x", start_s=0, end_s=HOUR_S, expected=("spool:here",))], [])
    assert missed.missed == ["x: spool:here"]
    assert compare(EVENTS[:1], messages).false_alarms == ["burn_fast:chat"]
    assert compare(EVENTS[:2], [messages[0], *messages]).duplicates == 1
