"""The page of the goals that are missed, from ``benchmarks/goals.toml``."""

import tomllib
from pathlib import Path
from typing import Any, Final

from tools.documentation.tables import code, table

GOALS: Final = Path(__file__).resolve().parents[2] / "benchmarks" / "goals.toml"
_HEAD = """# Goals that are missed

What the project wants of its own speed, cost and judgement, and does not reach yet: what was measured, with which
command. A goal that is met is not listed. The last column leads to the page with the whole measurement; [below](#why)
stands what is in the way of some goals.
"""
_WHY = """
## Why

What is in the way, and what was tried:
"""


def page() -> str:
    """Return the text of docs/reference/goals.md.

    Raises:
        TOMLDecodeError, KeyError: ``benchmarks/goals.toml`` is not as it says.

    """
    goals: list[dict[str, Any]] = tomllib.loads(GOALS.read_text(encoding="utf-8"))["goal"]
    columns = ("what", "goal", "measured", "command", "more")
    reasons = (f"- **{goal['what']}**. {goal['why']}" for goal in goals if "why" in goal)
    return "\n".join([_HEAD, *table(columns, map(_row, goals)), _WHY, *reasons, ""])


def _row(goal: dict[str, Any]) -> tuple[str, ...]:
    path = goal.get("page", "")
    name = Path(path.partition("#")[0]).stem
    more = f"[{'figures' if name == 'RESULTS' else name}](../../{path})" if path else ""
    return (goal["what"], goal["goal"], goal["measured"], code(goal["command"]), more)
