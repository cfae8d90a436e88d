"""After how long a stream that stands still is noticed: by the pauses of its deployment's latest streams."""

import pytest

from gateway.racing import Pauses, PausesByDeployment
from gateway.racing.timeouts import (
    AMONG,
    CHANGED_S,
    FEWEST,
    LATEST,
    LEAST_S,
    MOST_DEPLOYMENTS,
    MOST_NOTICED,
    MOST_S,
    POOLED,
    UNKNOWN_S,
    DeltaKind,
)
from tests.unit.racing.inside.pausing_streams import CHANGES, changes, fleet, known_s, quantile, together, unknown_s


def known(*pauses_s: float, streams: int = FEWEST) -> Pauses:
    """Return the pauses of a deployment with so many streams, the first of which had these."""
    pauses = Pauses()
    for pause_s in pauses_s:
        pauses.recovered(DeltaKind.TEXT, pause_s)
    pauses.streams += streams
    return pauses


@pytest.mark.parametrize(("streams", "noticed_s"), [(0, 12.0), (10, 11.1), (30, 9.3), (100, 3.0), (200, 3.0)])
def test_each_of_a_deployments_first_hundred_streams_makes_it_known_better(streams: int, noticed_s: float) -> None:
    assert known(streams=streams).noticed_s(DeltaKind.TEXT) == pytest.approx(noticed_s)


@pytest.mark.parametrize(
    ("longest_s", "noticed_s"), [(2.1, 3.15), (4.0, 6.0), (10.0, 15.0), (19.0, 28.5), (22.0, MOST_S), (40.0, 52.0)]
)
def test_half_as_long_again_as_the_longest_pause_is_noticed(longest_s: float, noticed_s: float) -> None:
    assert known(2.05, longest_s, 2.01).noticed_s(DeltaKind.TEXT) == pytest.approx(noticed_s)


def test_a_pause_of_a_little_known_deployment_is_learnt_at_once() -> None:
    assert known(10.0, streams=1).noticed_s(DeltaKind.TEXT) == pytest.approx(15.0)


def test_a_long_pause_is_forgotten_and_the_next_longest_counts_then() -> None:
    pauses = known(9.0, streams=LATEST // 2)
    pauses.recovered(DeltaKind.TEXT, 4.0)
    pauses.streams += LATEST // 2 - 1
    assert pauses.longest_s() == 9.0
    pauses.streams += 1
    assert pauses.longest_s() == 4.0
    pauses.streams += LATEST
    assert (pauses.longest_s(), pauses.noticed_s(DeltaKind.TEXT)) == (0.0, LEAST_S)


KINDS = (DeltaKind.THINKING, DeltaKind.ARGUMENTS, DeltaKind.BOUNDARY)


def test_thoughts_and_calls_of_tools_have_limits_of_their_own() -> None:
    assert [known(20.0).noticed_s(came) for came in KINDS] == [120.0, 60.0, 60.0]


@pytest.mark.parametrize("came", KINDS)
def test_a_vendor_that_sends_nothing_for_longer_is_learnt_by_what_came_last(came: DeltaKind) -> None:
    pauses = known()
    pauses.recovered(came, 100.0)
    assert pauses.noticed_s(came) == pytest.approx(150.0)
    assert pauses.noticed_s(DeltaKind.TEXT) == LEAST_S


def pooled(*each: Pauses) -> PausesByDeployment:
    """Return deployments of one model with these pauses."""
    pauses = PausesByDeployment()
    for number, one in enumerate(each):
        pauses[str(number)] = one
        pauses.pool(one, "m")
    return pauses


def test_below_a_thousand_streams_the_pauses_of_the_models_others_count_too() -> None:
    pauses = pooled(known(streams=POOLED - 1), known(8.0))
    assert pauses["0"].noticed_s(DeltaKind.TEXT) == pytest.approx(12.0)
    pauses["0"].streams += 1
    assert pauses["0"].noticed_s(DeltaKind.TEXT) == LEAST_S
    other = known()
    pauses.pool(other, "another model")
    assert other.noticed_s(DeltaKind.TEXT) == LEAST_S


def test_streams_of_an_earlier_process_are_known_at_the_start() -> None:
    pauses = PausesByDeployment()
    pauses.refill({"a": [100.0] * 299 + [6_000.0], "b": [9_000.0] + [100.0] * LATEST, "c": [50.0] * 10})
    assert [pauses[name].noticed_s(DeltaKind.TEXT) for name in "abc"] == pytest.approx([9.0, LEAST_S, 11.1])


def test_a_deployment_that_is_noticed_twice_is_given_time_to_be_learnt_anew() -> None:
    pauses = known()
    pauses.noticed(LEAST_S)
    assert pauses.noticed_s(DeltaKind.TEXT) == LEAST_S
    pauses.noticed(LEAST_S)
    assert pauses.noticed_s(DeltaKind.TEXT) == CHANGED_S
    pauses.streams += AMONG
    assert pauses.noticed_s(DeltaKind.TEXT) == LEAST_S


def test_a_silence_beyond_all_limits_shows_that_the_notices_before_it_were_right() -> None:
    pauses = known()
    for _ in range(MOST_NOTICED):
        pauses.noticed(LEAST_S)
    pauses.noticed(CHANGED_S)
    assert pauses.noticed_s(DeltaKind.TEXT) == LEAST_S


def test_names_that_clients_make_up_fill_no_memory() -> None:
    pauses = PausesByDeployment()
    for number in range(MOST_DEPLOYMENTS):
        assert pauses[f"d{number}"] is pauses[f"d{number}"]
    assert pauses["one more"] is not pauses["one more"]


def test_in_a_fleet_one_healthy_stream_in_a_thousand_is_noticed_and_stopped_ones_within_seconds() -> None:
    results = fleet(120_000, seed=1)
    for found in results.values():
        assert len(found.false) <= found.streams / 1_000
    found = together(results)
    assert len(found.false) <= found.streams / 2_000
    assert quantile(known_s(found), 0.5) <= 4.5
    assert quantile(known_s(found), 0.9) <= 10.0
    assert quantile(known_s(results["steady"]), 0.9) <= 6.0
    assert max(unknown_s(found)) <= UNKNOWN_S


def test_a_deployment_that_changes_is_noticed_twice_at_most_before_it_is_learnt() -> None:
    for name, (mean, most, later) in changes(seed=1, runs=5).items():
        assert name in CHANGES
        assert most <= (3 if name == "ten times slower" else 2), name  # a pause may be longer than any limit
        assert mean <= 2.0, name
        assert later <= 3, name
