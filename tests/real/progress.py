"""What a long installation is at: a line that is kept fresh on a terminal, elsewhere a line every few seconds."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

EVERY_S = 10.0  # where nothing can be rewritten, so that a log stays short
_COMPILED = re.compile(r"^\s*\[(\d+)/(\d+)\] ")  # ninja's
_STAGES = ("Downloading ", "Building wheel for ", "Installing collected packages")  # pip's
_LAST_LINES = 30
_WIDTH = 100


def stage(line: str) -> str | None:
    """Return what a line of pip's verbose output says of how far it is; None where it says nothing of that."""
    if compiled := _COMPILED.match(line):
        return f"compiling: {compiled[1]} of {compiled[2]} steps"
    words = line.strip()
    return words[:_WIDTH] if words.startswith(_STAGES) else None


class Progress:
    """Says how far something is, by ``write``; ``clock`` is in seconds."""

    def __init__(self, write: Callable[[str], None], *, rewrites: bool, clock: Callable[[], float]) -> None:
        self._write, self._rewrites, self._clock = write, rewrites, clock
        self._began_s = clock()
        self._said_s = -EVERY_S

    def says(self, words: str) -> None:
        """Show ``words`` and the time so far, unless something was shown just before."""
        elapsed_s = self._clock() - self._began_s
        text = f"  {int(elapsed_s) // 60}:{int(elapsed_s) % 60:02}  {words}"
        if self._rewrites:
            self._write(f"\r{text:{_WIDTH}.{_WIDTH}}")
        elif elapsed_s - self._said_s >= EVERY_S:
            self._said_s = elapsed_s
            self._write(f"{text}\n")

    def ends(self) -> None:
        """Leave what is shown, and go to the next line."""
        if self._rewrites:
            self._write("\n")


def run(command: Sequence[str], environ: Mapping[str, str], log: Path, progress: Progress) -> None:
    """Run ``command``, showing how far it is; all it says is added to ``log``.

    Raises:
        RuntimeError: it failed; with its last words.

    """
    last: list[str] = []
    with (
        log.open("a", encoding="utf-8") as kept,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=dict(environ),
            start_new_session=True,  # a group of its own, to be ended as a whole
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                last = [*last[1 - _LAST_LINES :], line]
                if words := stage(line):
                    progress.says(words)
        except BaseException:  # Ctrl-C; ninja, asked to end, ends its compilers
            os.killpg(process.pid, signal.SIGTERM)
            raise
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed ({log} has all it said):\n{''.join(last)}")


def on_standard_output() -> Progress:
    """Return the progress of something that begins now."""

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    return Progress(write, rewrites=sys.stdout.isatty(), clock=time.monotonic)
