"""Members of enums are found as before when a serving process has made looks at them cheap. In a process of its own."""

import subprocess
import sys
from enum import Enum

import pytest

from gateway.racing.attempt import AttemptState
from gateway.racing.entry import Phase
from gateway.racing.timeouts import DeltaKind

_CHECKED = """
import copy, pickle, re, signal, ssl
from enum import Enum
from gateway.core.attempts import Outcome
from gateway.core.calls import Mode
from gateway.racing.attempt import AttemptState
from gateway.server.server import speed_up_enums

class Shape(Enum):
    name = "hidden by the property of the same name"
    FLAT = 2

speed_up_enums()
speed_up_enums()
for kind in (Outcome, Mode, AttemptState, signal.Signals, re.RegexFlag, ssl.TLSVersion, Shape):
    for name, member in kind.__members__.items():
        assert getattr(kind, name) is member, (kind, name)
        assert kind[name] is member
        assert pickle.loads(pickle.dumps(member)) is member
        assert copy.deepcopy(member) is member
assert Shape.name.name == "name"
assert Outcome("won") is Outcome.WON
assert not hasattr(Outcome, "NEVER")
try:
    Outcome.NEVER
except AttributeError as error:
    assert "NEVER" in str(error)
"""


def test_members_are_found_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", _CHECKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [AttemptState, Phase, DeltaKind])
def test_members_that_each_call_looks_up_in_sets_are_hashed_without_a_python_call(kind: type[Enum]) -> None:
    assert kind.__hash__ is str.__hash__
