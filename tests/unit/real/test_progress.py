"""What `make test WHAT=real` shows while it compiles for minutes."""

import os
import sys
from pathlib import Path

import pytest

from tests.real.progress import Progress, run, stage


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  [37/213] Building CXX object ggml/src/ggml.cpp.o\n", "compiling: 37 of 213 steps"),
        ("  Building wheel for llama-cpp-python (pyproject.toml): started\n", "Building wheel for llama-cpp-python"),
        ("  Downloading llama_cpp_python-0.3.36.tar.gz (57.5 MB)\n", "Downloading llama_cpp_python-0.3.36.tar.gz"),
        ("  -- Detecting CXX compiler ABI info - done\n", None),
        ("  warning: a[3/4] is not used\n", None),
    ],
)
def test_the_lines_that_tell_how_far_it_is_are_shown(line: str, words: str | None) -> None:
    found = stage(line)

    assert found == words if words is None else str(found).startswith(words)


def written(*, rewrites: bool) -> list[str]:
    """What is written of a step a second, 25 s long."""
    texts: list[str] = []
    seconds = iter(range(100, 200))
    progress = Progress(texts.append, rewrites=rewrites, clock=lambda: next(seconds))
    for step in range(25):
        progress.says(f"step {step}")
    progress.ends()
    return texts


def test_a_log_gets_a_line_now_and_then() -> None:
    assert written(rewrites=False) == ["  0:01  step 0\n", "  0:11  step 10\n", "  0:21  step 20\n"]


def test_on_a_terminal_one_line_stays_fresh() -> None:
    *steps, end = written(rewrites=True)

    assert [text.strip() for text in steps] == [f"0:{step + 1:02}  step {step}" for step in range(25)]
    assert all(text.startswith("\r") for text in steps)
    assert end == "\n"


def test_what_a_command_says_is_kept_and_told_when_it_fails(tmp_path: Path) -> None:
    log = tmp_path / "install.log"
    shown: list[str] = []
    progress = Progress(shown.append, rewrites=False, clock=lambda: 0.0)
    code = "print('[1/2] Building a'); print('boom'); raise SystemExit(3)"

    with pytest.raises(RuntimeError, match=r"failed[\s\S]*boom"):
        run([sys.executable, "-c", code], os.environ, log, progress)

    assert log.read_text() == "[1/2] Building a\nboom\n"
    assert shown == ["  0:00  compiling: 1 of 2 steps\n"]


def test_who_is_interrupted_leaves_nothing_running(tmp_path: Path) -> None:
    def interrupted(text: str) -> None:
        raise KeyboardInterrupt(text)

    progress = Progress(interrupted, rewrites=False, clock=lambda: 0.0)
    code = "import os, time; print(f'[1/{os.getpid()}] Building a', flush=True); time.sleep(3600)"

    with pytest.raises(KeyboardInterrupt) as raised:
        run([sys.executable, "-c", code], os.environ, tmp_path / "install.log", progress)

    pid = int(str(raised.value).split()[-2])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
