"""How many Python functions a call calls: under a ceiling that no command raises. Noise does not move it."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.measured.gateways import WAYS
from tools import path

CEILINGS = json.loads((Path(path.__file__).parent / "ceilings.json").read_text())
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.skipif(PYTHON not in CEILINGS, reason=f"Python {PYTHON} has no ceilings yet")
@pytest.mark.parametrize("way", WAYS)
def test_a_call_calls_no_more_functions_than_it_may(way: str) -> None:
    assert any(path.python_calls(way) <= CEILINGS[PYTHON][way] for _ in range(12))  # timers may come between
