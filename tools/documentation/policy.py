"""Every constant of the policy, from ``gateway/steering/constants.py`` and the files of the race, with its comment."""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tools.documentation.tables import code

ROOT = Path(__file__).resolve().parents[2]
STEERING = "gateway/steering/constants.py"
BOUND = "bound"  # the origin of what only limits time, memory, work or harm
# Of these files only the constants that shape a race: their other constants are not part of the policy.
RACE = {
    "gateway/racing/hold.py": ("HOLD_MIN_S", "HOLD_MARGIN_S", "HOLD_MAX_S"),
    "gateway/racing/measurement.py": ("AUDIT_S", "AUDIT_TOKENS", "AUDIT_TOKENS_S", "BURST_S", "BURST_TPS"),
    "gateway/racing/timeouts.py": ("FINISH_GRACE_S",),
    "gateway/http/json_body.py": ("CLASS_LIMITS",),
}
_HEAD = """# Constants of the policy

The numbers behind the rules of [the policy](../policy.md). None is a setting. In brackets stands where a value came
from:

- **tuned**: chosen by simulation over eight [worlds](../steering.md#in-simulation).
- **world NAME**: introduced to mend a weakness that this world shows, not searched for over all worlds.
- **vendors**: what vendors document.
- **statistics**: a formula, or a usual level of confidence.
- **judgement**: reasoned, not measured.

*Bounds* limit time, memory, work or harm; `gateway/steering/constants.py` has the reason of each.
"""
_ASSIGNED = re.compile(r"^(?P<name>[A-Z][A-Z0-9_]*) = (?P<value>[^#]+?)(?:  # (?P<why>.*))?$")
_UNITS = {"S": "s", "TPS": "tok/s", "TOKENS": "tokens", "BYTES": "bytes", "EVENTS": "events", "SHARE": "share"}


class Constant(NamedTuple):
    """A constant of a file. ``section`` is the comment that begins its block, ``why`` the one beside it."""

    name: str
    section: str
    why: str


def page() -> str:
    """Return the text of docs/reference/policy.md."""
    lines = [_HEAD]
    constants = list(read(STEERING))
    for section in dict.fromkeys(each.section for each in constants):
        lines += [f"## {section}", ""]
        bounds = []
        for each in (each for each in constants if each.section == section):
            origin, _, why = each.why.partition(": ")
            stated = f"{code(each.name)} = {_value(STEERING, each.name)}"
            if origin == BOUND:
                bounds.append(stated)
            else:
                lines.append(f"- {stated} ({origin}): {_why(why)}")
        lines += [f"- Bounds: {', '.join(bounds)}.", ""] if bounds else [""]
    race = [
        f"- {code(each.name)} = {_value(path, each.name)} ({code(path)}): {_why(each.why)}"
        for path, names in RACE.items()
        for each in read(path)
        if each.name in names
    ]
    return "\n".join([*lines, "## Constants of the race", "", *race, ""])


def read(path: str) -> Iterator[Constant]:
    """Yield the constants of a file, in their order."""
    section, above, is_after_blank = "", list[str](), False
    for line in (ROOT / path).read_text(encoding="utf-8").split("\n"):
        if line.startswith("# ") and is_after_blank:
            section, above = line[2:].partition(":")[0], []
        elif line.startswith("# "):
            above.append(line[2:])
        elif found := _ASSIGNED.match(line):
            yield Constant(found["name"], section, " ".join([*above, found["why"] or ""]).strip())
            above = []
        is_after_blank = not line


def values(path: str, name: str) -> Sequence[float]:
    """Return a constant's value as a tuple: one number, or those of a tuple."""
    value = getattr(import_module(path.removesuffix(".py").replace("/", ".")), name)
    return value if isinstance(value, tuple) else (value,)


def _value(path: str, name: str) -> str:
    unit = _UNITS.get(name.rpartition("_")[2], "")
    return f"{'; '.join(map(_number, values(path, name)))} {unit}".rstrip()


def _number(value: float) -> str:
    fraction = Fraction(value).limit_denominator(100)
    if round(value, 4) != value and float(fraction) == value:
        return str(fraction)
    return f"{value:,.10g}"


def _why(text: str) -> str:
    return text.replace("<", "\\<").replace("*", "\\*")
