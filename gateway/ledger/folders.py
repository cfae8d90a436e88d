"""Spool folders as they lie on disk: the lock that says who owns one, and the names of its segments."""

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

import structlog

LOCK_NAME = "lock"
_SEGMENT_NAME = re.compile(r"\d{8}\.jsonl")


def folder_name(worker: str) -> str:
    """Return ``worker`` as the name of a folder that can be seen."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", worker).lstrip(".") or "worker"


def segment_path(folder: Path, number: int) -> Path:
    """Return the file of a segment; numbers start at 1."""
    return folder / f"{number:08}.jsonl"


def segment_numbers(folder: Path) -> list[int]:
    """Return the numbers of a spool's segments, the oldest first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[:8]) for name in names if _SEGMENT_NAME.fullmatch(name))


def make_locked(folder: Path) -> int:
    """Make ``folder``, its lock held from the first instant anyone can see it; return the lock's descriptor."""
    unseen = folder.with_name(f".{folder.name}")
    unseen.mkdir(parents=True, mode=0o700)
    descriptor = os.open(unseen / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unseen.rename(folder)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def orphaned(spool_dir: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folders whose owner is dead, each with its lock, now ours: close the descriptor to let go of it.

    A folder of another user is theirs to ship; it is skipped with a warning.
    """
    if not spool_dir.is_dir():
        return
    for folder in sorted(spool_dir.iterdir()):
        if folder.name.startswith("."):
            continue
        try:
            descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            structlog.get_logger().warning(
                "ledger.spool_skipped", spool=str(folder), hint="another user's; only a gateway of theirs can ship it"
            )
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            yield folder, descriptor
