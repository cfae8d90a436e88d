"""Options of a bench, as they are understood, and what it needs."""

import sys

import pytest
from typer.testing import CliRunner

from gateway.cli.bench_field import read_levels
from gateway.cli.main import application
from providers import how_to_install


def test_a_level_that_is_written_twice_is_measured_once() -> None:
    assert read_levels("1, 4,01,1") == (1, 4)


def test_without_scipy_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    result = CliRunner().invoke(application(), ["bench"])

    assert result.exit_code == 1
    assert result.stderr == f"holeshot: bench needs scipy for its intervals and tests: {how_to_install('bench')}\n"
