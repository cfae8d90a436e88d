"""Commands ask a gateway that runs in their folder, also while several do, and after one of them has ended."""

import os
import subprocess
from pathlib import Path

import pytest

from gateway.settings import leave_note, load_note, remove_note

FIRST, SECOND = os.getpid(), os.getppid()  # two processes that run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(f"spool_dir: {tmp_path / 'var' / 'spool'}\n", encoding="utf-8")
    return path


@pytest.fixture
def spool(file: Path) -> str:
    return str(file.parent / "var" / "spool")


def asked(file: Path) -> str | None:
    note = load_note(file, {})
    return None if note is None else note.url


def ended() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def leave(spool: str, port: int, pid: int, at_s: int) -> None:
    leave_note(spool, f"http://127.0.0.1:{port}", pid)
    # Older kernels give the files of the same few milliseconds one time.
    os.utime(Path(spool).parent / f"address-{pid}.json", (at_s, at_s))


def test_the_end_of_a_second_gateway_leaves_the_note_of_the_first(file: Path, spool: str) -> None:
    leave(spool, 4000, FIRST, at_s=1)
    leave(spool, 4001, SECOND, at_s=2)
    assert asked(file) == "http://127.0.0.1:4001"  # the one that started last
    remove_note(spool, SECOND)
    assert asked(file) == "http://127.0.0.1:4000"
    remove_note(spool, FIRST)
    assert asked(file) is None


def test_a_gateway_that_runs_is_asked_before_a_later_one_that_was_killed(file: Path, spool: str) -> None:
    leave(spool, 4000, FIRST, at_s=1)
    leave(spool, 4001, ended(), at_s=2)
    assert asked(file) == "http://127.0.0.1:4000"
    remove_note(spool, FIRST)
    note = load_note(file, {})
    assert note is not None
    assert (note.url, note.is_alive()) == ("http://127.0.0.1:4001", False)  # which is told
    leave(spool, 4002, SECOND, at_s=3)
    remove_note(spool, SECOND)
    assert asked(file) is None


def test_of_two_that_remove_the_same_old_note_each_leaves_its_own(
    file: Path, spool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def after_another(path: Path) -> None:
        unlink(path)
        unlink(path)

    leave(spool, 4000, ended(), at_s=1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", after_another)
        leave_note(spool, "http://127.0.0.1:4001", FIRST)
    assert asked(file) == "http://127.0.0.1:4001"
