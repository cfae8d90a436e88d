"""Programs run beside a script: their output in files, ended whatever happens to the script."""

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers import LAUNCHER

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
LOOK_EVERY_S = 0.05


@contextmanager
def running(
    command: Sequence[str], *, log: Path, health_url: str | None, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` until the block ends, its words in ``log``; begin once ``health_url`` answers 200.

    Raises:
        RuntimeError: it does not start; with its last words.

    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", LAUNCHER, "", str(int(signal.SIGKILL)), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            start_new_session=True,  # Ctrl-C ends the script, and the script ends this
        )
    try:
        if health_url is not None:
            try:
                until(lambda: process.poll() is not None or _answers(health_url), START_TIMEOUT_S)
            except TimeoutError:
                raise RuntimeError(f"{command[0]} did not answer at {health_url}: {last_words(log)}") from None
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended at once: {last_words(log)}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until ``condition`` holds.

    Raises:
        TimeoutError: it does not in time.

    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError
        time.sleep(LOOK_EVERY_S)


def last_words(log: Path) -> str:
    """Return the end of a log."""
    return log.read_text(errors="replace")[-2000:].strip()


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=1.0) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def program() -> str:
    """Return the path of ``holeshot``, beside the Python that runs this."""
    return str(Path(sys.executable).with_name("holeshot"))


def output(environ: Mapping[str, str], *arguments: str) -> str:
    """Run a verb of ``holeshot``; return what it printed.

    Raises:
        RuntimeError: it failed; with what it said.

    """
    finished = subprocess.run([program(), *arguments], check=False, capture_output=True, env=dict(environ), cwd=ROOT)
    if finished.returncode:
        raise RuntimeError(f"holeshot {arguments[0]}: {finished.stderr.decode().strip()}")
    return finished.stdout.decode()
