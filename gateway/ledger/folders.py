"""Private folders on disk, and folders of spools: the lock that marks the owner, and the names of segments."""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import structlog

LOCK_NAME = "lock"
_NO_LOCKS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS})  # of disks without locks
_SEGMENT_NAME = re.compile(r"\d{8}\.jsonl")


def make_private(folder: Path) -> None:
    """Make ``folder`` and missing folders above it, for this user only, despite the umask. Existing ones stay.

    Raises:
        OSError: the folder cannot be made, or is not a folder.

    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def folder_name(worker: str) -> str:
    """Return ``worker`` as the name of a visible folder."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", worker).lstrip(".") or "worker"


def segment_path(folder: Path, number: int) -> Path:
    """Return the file of a segment; the first number is 1."""
    return folder / f"{number:08}.jsonl"


def segment_numbers(folder: Path) -> list[int]:
    """Return the numbers of a spool's segments, the oldest first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(name[:8]) for name in names if _SEGMENT_NAME.fullmatch(name))


def make_locked(folder: Path) -> int:
    """Make ``folder``, which is locked from the moment it is visible; return the lock's descriptor.

    Raises:
        OSError: the folder exists and is not empty, or cannot be made.

    """
    unseen = folder.with_name(f".{folder.name}")
    make_private(unseen)
    descriptor = -1
    try:
        descriptor = _new_lock(unseen / LOCK_NAME)
        unseen.rename(folder)
    except OSError:
        if descriptor >= 0:
            os.close(descriptor)
        shutil.rmtree(unseen, ignore_errors=True)
        raise
    return descriptor


def lock_again(folder: Path) -> int:
    """Return a new lock for a folder without its lock; if the folder is missing, make it.

    Raises:
        OSError: another process holds the folder, or no folder can be made.

    """
    return _new_lock(folder / LOCK_NAME) if folder.is_dir() else make_locked(folder)


def orphaned(spool_dir: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folders of dead owners, each with the lock's descriptor. The lock is ours until this is closed.

    Folders that cannot be used, such as another user's, are skipped with a warning.
    """
    try:
        folders = sorted(spool_dir.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        warn_of_skipped(spool_dir, error)
        return
    for folder in folders:
        if folder.name.startswith("."):
            continue
        try:
            descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            warn_of_skipped(folder, error)
            continue
        try:
            is_ours = lock_file(descriptor, folder / LOCK_NAME)
        except OSError as error:
            warn_of_skipped(folder, error)
            is_ours = False
        if is_ours:
            yield folder, descriptor
        else:
            os.close(descriptor)


def warn_of_skipped(folder: Path, error: OSError) -> None:
    """Log that a dead process's rows must wait, and why; the next look may succeed."""
    hint = "if it belongs to another user, only a gateway of that user can ship it"
    # Event ledger.spool_skipped: A folder with rows of a process that died cannot be used (`error`), as where it
    # belongs to another user. It is tried again.
    # Do: Start a gateway as that user once, or give the folder to this gateway's user.
    structlog.get_logger().warning(
        "ledger.spool_skipped",
        spool=str(folder),
        error=error.strerror or str(error),
        hint=hint if isinstance(error, PermissionError) else "it is left as it is; see whether its disk is well",
    )


def is_at(descriptor: int, path: Path) -> bool:
    """Whether ``descriptor`` is open on the file at ``path``."""
    try:
        held, there = os.fstat(descriptor), path.stat()
    except OSError:  # missing, not accessible, or on a file system that is gone
        return False
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)


def _new_lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _flock(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _flock(descriptor: int) -> None:
    """Lock an open file.

    Raises:
        BlockingIOError: another process holds the file.
        OSError: the file cannot be locked.

    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise OSError(error.errno, "its file system has no locks (flock); a local disk has them") from None
        raise


def lock_file(descriptor: int, path: Path) -> bool:
    """Lock an open file; False if another process holds it, or if it was deleted or replaced since it was opened."""
    try:
        _flock(descriptor)
    except BlockingIOError:
        return False
    return is_at(descriptor, path)
