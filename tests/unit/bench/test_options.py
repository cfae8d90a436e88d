"""Options of a bench, as they are understood."""

from gateway.cli.bench_field import read_levels


def test_a_level_that_is_written_twice_is_measured_once() -> None:
    assert read_levels("1, 4,01,1") == (1, 4)
