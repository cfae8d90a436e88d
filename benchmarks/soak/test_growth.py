"""Growth is the median of the last quarter beside that of the second; too short a run says nothing."""

from pathlib import Path

import pytest

from benchmarks.soak.report import GAUGES, LEAST_SAMPLES, Growth, Sample, growth, look
from tests.support.measured.servers import Server, gauges
from tests.support.servers import free_port


def sampled(rss_mb: list[float], *, every_s: float = 1.0) -> list[Sample]:
    return [Sample(number * every_s, value, 20, 11, 0, 0.0) for number, value in enumerate(rss_mb)]


def rss_mb(sample: Sample) -> float:
    return sample.rss_mb


def test_quarters_are_of_the_runs_time_and_the_first_one_says_nothing() -> None:
    grown = growth(sampled([50.0] * 10 + [100.0] * 10 + [500.0] * 10 + [104.0] * 10), rss_mb)
    assert grown == Growth(100.0, 104.0)
    assert grown.share == pytest.approx(0.04)


def test_one_odd_sample_changes_no_quarter() -> None:
    steady = [100.0] * 40
    steady[12] = steady[35] = 900.0
    assert growth(sampled(steady), rss_mb) == Growth(100.0, 100.0)


def test_samples_that_came_late_count_in_the_quarter_they_came_in() -> None:
    samples = [Sample(at_s, at_s, 20, 11, 0, 0.0) for at_s in (*range(20), *range(60, 81))]
    assert growth(samples, rss_mb) is None  # hardly any in the second quarter, from 20 s to 40 s


def test_a_short_run_shows_no_growth() -> None:
    assert growth([], rss_mb) is None
    assert growth(sampled([1.0]), rss_mb) is None
    assert growth(sampled([1.0] * (4 * LEAST_SAMPLES - 1)), rss_mb) is None
    assert growth(sampled([1.0] * (4 * LEAST_SAMPLES + 1)), rss_mb) is not None


def test_what_was_nothing_has_no_share_to_grow_by() -> None:
    assert Growth(0.0, 7.0).share == 0.0


def test_gauges_are_read_from_a_page_of_metrics() -> None:
    page = "# HELP holeshot_tasks Tasks.\nholeshot_tasks 11.0\nholeshot_tasks_other 3.0\nholeshot_ledger_pending 5.0\n"
    assert gauges(page, GAUGES) == [11.0, 5.0]
    with pytest.raises(LookupError):
        gauges("holeshot_tasks 11.0\n", GAUGES)
    assert len(GAUGES) == 2


def test_a_gateway_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="refused"):
        look(Server("gateway", 1, free_port()), tmp_path, 0.0)
