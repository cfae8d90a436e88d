"""ARCHITECTURE.md can be read in a terminal, and what it names is there."""

import re

from tools.house import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
WIDEST = 120
_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]*)+|[\w-]+\.(?:toml|py))`")
_ROOM = re.compile(r"^([a-z_]+/(?:[a-z_0-9]+/)?) +\S", re.MULTILINE)


def invariants() -> list[str]:
    return PAGE.partition("## Invariants")[2].split("\n- ")[1:]


def test_its_lines_fit_a_terminal() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > WIDEST] == []


def test_every_path_that_it_names_exists() -> None:
    named = _PATH.findall(PAGE)
    assert len(named) > 20
    beside = {path.name for path in (ROOT / "gateway" / "api").iterdir()}  # (`fitting.py`), after a file of that room
    assert [path for path in named if not (ROOT / path).exists() and path not in beside] == []


def test_every_room_has_its_line_and_no_other() -> None:
    rooms = {
        f"{package}/{path.name}/"
        for package in ("gateway", "providers")
        for path in (ROOT / package).iterdir()
        if path.is_dir() and not path.name.startswith((".", "_"))
    }
    listed = _ROOM.findall(PAGE)
    assert {room for room in listed if room.startswith(("gateway/", "providers/"))} == rooms
    assert [room for room in listed if not (ROOT / room).is_dir()] == []


def test_every_invariant_names_what_fails_when_it_no_longer_holds() -> None:
    held = [
        any(path.startswith("tests/") or path == "pyproject.toml" for path in _PATH.findall(each))
        for each in invariants()
    ]
    assert len(held) > 10
    assert all(held)
