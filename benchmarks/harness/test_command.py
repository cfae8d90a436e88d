"""Every benchmark can be begun as its README says: with nothing but its name, and asked for its options."""

import argparse
import importlib
import re
import sys

import pytest

from tests.support.measured.servers import ROOT

COMMANDS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    if re.search(r"^    carry_out\(parser, ", path.read_text(encoding="utf-8"), re.MULTILINE)
]


class Parsed(Exception):
    """The command line is understood; what follows would measure."""


def test_the_benchmarks_are_found() -> None:
    assert {"benchmarks.edge.__main__", "benchmarks.micro.planning", "benchmarks.steering.compare"} <= {*COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_needs_no_arguments(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(parser: argparse.ArgumentParser) -> None:
        parser.parse_known_args([])
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    with pytest.raises(Parsed):
        importlib.import_module(name).main()


def left_with(name: str, argument: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """Begin a benchmark that ends at its command line; return its exit code."""
    monkeypatch.setattr(sys, "argv", [name, argument])
    with pytest.raises(SystemExit) as left:
        importlib.import_module(name).main()
    return left.value.code


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_tells_its_options(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert left_with(name, "--help", monkeypatch) == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["benchmarks.edge.__main__", "benchmarks.steering.__main__"])
def test_what_may_be_named_is_told_without_brackets(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert left_with(name, "nonsense", monkeypatch) == 2
    told = capsys.readouterr().err
    assert "'nonsense' (choose from " in told
    assert "[]" not in told
