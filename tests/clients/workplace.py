"""Where a coding agent works: an empty folder, a home of its own, few variables, and nobody at the keyboard."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.clients.case import Failed

NODE_PROGRAMS = Path(os.environ.get("CLIENTS_NODE", ".")) / "node_modules" / ".bin"
CHARACTERS_OF_A_FAILURE = 1000


class Workplace:
    """One folder to work in, and the home beside it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.folder = root / "work"
        self.home.mkdir()
        self.folder.mkdir()
        self._started: list[subprocess.Popen[str]] = []

    def start(self, program: Path, *arguments: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start ``program`` and return it: what it prints and is told are lines of text. ``end`` ends it."""
        process = subprocess.Popen(
            [str(program), *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "dumb", **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_listen_to_interrupts,  # noqa: PLW1509 - it starts no threads
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """End what was started, and what it started."""
        for process in self._started:
            if process.returncode is None:
                _end_group(process.pid)
                process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()

    def run(
        self, program: Path, *arguments: str, environ: Mapping[str, str], said: str = "", may_fail: bool = False
    ) -> str:
        """Run ``program`` to its end with ``said`` as its input, and return what it prints; nothing of it stays.

        Raises:
            Failed: it ends with an error, and may not.

        """
        process = self.start(program, *arguments, environ=environ)
        try:
            out, err = process.communicate(said)
        finally:
            _end_group(process.pid)
            process.wait()
        if process.returncode and not may_fail:
            raise Failed(f"it ended with {process.returncode}: {(err + out)[-CHARACTERS_OF_A_FAILURE:]}")
        return out


@contextmanager
def workplace() -> Iterator[Workplace]:
    """Yield an empty workplace; remove it when the block ends."""
    with tempfile.TemporaryDirectory(prefix="holeshot-agent-", ignore_cleanup_errors=True) as folder:
        place = Workplace(Path(folder).resolve())
        try:
            yield place
        finally:
            place.end()


def version_of(program: Path, *arguments: str) -> str:
    """Return what ``program --version`` says first that looks like a version; ``arguments`` come before it."""
    with workplace() as place:
        words = place.run(program, *arguments, "--version", environ={}).split()
    return next(word for word in words if word[0].isdigit())


def _listen_to_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a suite in the background does not, and children inherit it


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
