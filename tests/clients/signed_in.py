"""What a developer does on a new laptop: `holeshot login`, and the page that it shows; then the program works."""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.clients.case import Failed, Target, equal, expect
from tests.clients.workplace import Workplace

HOLESHOT = Path(sys.executable).with_name("holeshot")
WITHOUT_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}  # this machine's own stays as it is


def sign_in(target: Target, place: Workplace, program: str) -> None:
    """Sign in at a gateway in an empty home folder, and set up a program there.

    Raises:
        Failed: one cannot.

    """
    equal(list(place.home.iterdir()), [])
    process = place.start(HOLESHOT, "login", target.url, "--write", program, environ=WITHOUT_KEYRING)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("or open "):
            urllib.request.urlopen(line.split()[2]).close()
    if process.wait():
        raise Failed("".join(said))


def check_rows(target: Target, place: Workplace, model: str) -> None:
    """Check that all calls of a model by people who signed in are this person's, and that there are some."""
    token = place.run(HOLESHOT, "token", environ=WITHOUT_KEYRING).strip()
    everybodys = _calls(target, f"client=developers&model={model}", target.key)
    expect(everybodys, "no call is in the ledger")
    equal(len({call["tags"]["end_user"] for call in everybodys}), 1)
    own = _calls(target, f"model={model}", token)  # those with this person as end user
    equal([call["id"] for call in own], [call["id"] for call in everybodys])


def _calls(target: Target, query: str, key: str) -> Any:
    asked = urllib.request.Request(f"{target.url}/api/calls?{query}", headers={"authorization": f"Bearer {key}"})
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)["data"]
