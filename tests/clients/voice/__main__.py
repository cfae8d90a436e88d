"""Have pipecat and LiveKit Agents listen to stand-ins that dribble, stall, break, are cold: ``make test WHAT=voice``.

Each framework's own node, on a ``Racer`` with ``profile: voice`` and nothing else, says what one of two providers says,
to the end; alone it would wait for ever. It runs in the environment ``raced`` of tests/clients, which is installed
first. Exits with 1 if anything else comes out of a node, or a request is left running by a caller who interrupts.
"""

import subprocess
import sys

from tests.clients.installs import CHECKOUT, environment, python


def main() -> int:
    """Run the cases in their environment; return the exit code."""
    interpreter = str(python("raced"))
    variables = environment(CHECKOUT / "var" / "clients", interpreter, "node")
    command = [interpreter, "-m", "tests.clients.voice.listening"]
    return subprocess.run(command, cwd=CHECKOUT, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
