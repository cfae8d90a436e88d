"""Reads the options of ``holeshot bench``; wrong ones end it with a sentence."""

from typing import TYPE_CHECKING

from gateway.cli.terminal import MISUSED, fail

if TYPE_CHECKING:
    from gateway.bench.goal import Goal

_MOST_AT_A_TIME = 256


def read_classes(said: str | None) -> tuple[str, ...]:
    """Return the classes of prompts in a comma list; all of them by default."""
    from gateway.bench.prompts import FIXED, PromptKind, kind_of  # noqa: PLC0415 - only where it is needed

    if said is None:
        return tuple(PromptKind)
    names = tuple(dict.fromkeys(name.strip() for name in said.split(",")))
    for name in names:
        try:
            kind_of(name)
        except ValueError:
            fail(
                f"there is no class of prompts {name!r}: choose of {', '.join(PromptKind)}, each also with {FIXED}",
                MISUSED,
            )
    return names


def read_levels(said: str | None) -> tuple[int, ...]:
    """Return the levels of concurrency in a comma list; 1 by default."""
    levels = [level.strip() for level in (said or "1").split(",")]
    if not all(level.isascii() and level.isdigit() and 1 <= int(level) <= _MOST_AT_A_TIME for level in levels):
        fail(
            f"--concurrency is a comma list of numbers from 1 to {_MOST_AT_A_TIME}, as in 1,4,16; not {said!r}", MISUSED
        )
    return tuple(dict.fromkeys(map(int, levels)))


def the_goal(said: str | None) -> "Goal | None":
    """Return the goal, if there is one."""
    from gateway.bench.goal import GoalError, read_goal  # noqa: PLC0415 - as above

    try:
        return None if said is None else read_goal(said)
    except GoalError as error:
        fail(str(error), MISUSED)
