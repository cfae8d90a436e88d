"""The list of commands in --help, and figures as commands print them."""

from collections.abc import Callable

import pytest
from typer.testing import Result

from gateway.cli.main import COMMANDS, GROUPS
from gateway.cli.terminal import dollars

Holeshot = Callable[..., Result]


def test_each_command_is_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)


def test_help_lists_the_commands_in_groups_without_colour_where_there_is_no_terminal(holeshot: Holeshot) -> None:
    told = holeshot("--help").stdout
    places = [told.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    for title, names in GROUPS.items():
        listed = told[told.index(f"\n{title}:\n") :].split("\n\n")[0]
        assert all(f"\n  {name} " in listed for name in names)
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("usd", "told"),
    [
        (0.000147345, "0.00015"),
        (0.0000031, "0.0000031"),
        (0.0512, "0.051"),
        (0.5, "0.50"),
        (12.5, "12.50"),
        (0.0, "0.00"),
    ],
)
def test_dollars_have_the_digits_that_count(usd: float, told: str) -> None:
    assert dollars(usd) == told
