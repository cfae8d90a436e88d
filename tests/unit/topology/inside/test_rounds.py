"""How long processes wait between two rounds, by how many they are."""

import pytest

from gateway.limits import USUAL
from gateway.steering.constants import REPORT_AGE_S
from gateway.topology import round_s
from gateway.topology.nodes import TIMEOUT_S

PROCESSES = [f"process{number}" for number in range(100)]


@pytest.mark.parametrize(
    ("processes", "longest_s"), [(0, 0.5), (1, 0.5), (10, 0.5), (100, 1.0), (300, 1.392), (1_000, 2.0), (50_000, 2.0)]
)
def test_rounds_are_as_long_as_there_are_processes_and_never_longer_than_two_seconds(
    processes: int, longest_s: float
) -> None:
    rounds = {round_s(0.5, processes, own) for own in PROCESSES}
    assert 0.9 * longest_s <= min(rounds) <= max(rounds) <= longest_s * 1.01


def test_processes_whose_rounds_fell_together_part_again() -> None:
    assert len({round_s(0.5, 1_000, own) for own in PROCESSES}) == len(PROCESSES)


def test_leases_and_reports_outlast_two_of_the_longest_rounds() -> None:
    longest_s = round_s(USUAL.round_s, 10**6, "process")
    assert 2 * longest_s + TIMEOUT_S <= USUAL.lease_s <= USUAL.process_s
    assert 2 * longest_s + TIMEOUT_S <= REPORT_AGE_S
