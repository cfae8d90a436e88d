"""How many Python functions a call calls: under a ceiling that no command raises. Noise does not move it."""

import json
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.support.measured.gateways import WAYS
from tools import path

CEILINGS = json.loads((Path(path.__file__).parent / "ceilings.json").read_text())
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def together() -> dict[str, int]:
    """The calls of each way, in one process: the race first, which calls more where others came before."""
    return path.python_calls(*sorted(WAYS, key=lambda way: way != "race"))


@pytest.mark.skipif(PYTHON not in CEILINGS, reason=f"Python {PYTHON} has no ceilings yet")
@pytest.mark.parametrize("way", WAYS)
def test_a_call_calls_no_more_functions_than_it_may(way: str, together: dict[str, int]) -> None:
    # Timers may come between: then another process tells.
    tried = (path.python_calls(way)[way] for _ in range(12))
    assert any(calls <= CEILINGS[PYTHON][way] for calls in chain([together[way]], tried))
