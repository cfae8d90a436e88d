"""The journal of a bench: a file of JSON lines, one for each request sent and each one finished.

A line is one ``write``, so a bench that is killed loses nothing but the requests under way. These are known to have
been sent, so their cost counts against the cap, and they are asked again.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gateway.bench.plan import Plan
from gateway.bench.sample import Key, Sample

VERSION = 1
_LONGEST_LINE = 1_000_000


class JournalError(Exception):
    """The journal cannot be used; the message says why."""


class Sent(msgspec.Struct, frozen=True):
    """A request that was sent, and what it costs at most."""

    key: Key
    sitting: int
    most_usd: float


class Past(msgspec.Struct):
    """What a journal knows."""

    plan: Plan
    sittings: int = 0  # how often the bench was started
    sent: list[Sent] = []
    samples: list[Sample] = []


class Line(msgspec.Struct, omit_defaults=True):
    """A line: one of its fields is set."""

    holeshot_bench: int | None = None
    plan: Plan | None = None
    sitting: int | None = None
    sent: Sent | None = None
    done: Sample | None = None
    rounds: int | None = None  # more than the plan had until then


class Journal:
    """A journal that is open for writing."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self._descriptor = descriptor

    def sitting(self, number: int) -> None:
        """Record a start of the bench."""
        self._write(Line(sitting=number))

    def rounds(self, number: int) -> None:
        """Record that the bench is to have so many rounds from now on."""
        self._write(Line(rounds=number))

    def sent(self, key: Key, sitting: int, most_usd: float) -> None:
        """Record a request just before it is sent."""
        self._write(Line(sent=Sent(key, sitting, most_usd)))

    def done(self, sample: Sample) -> None:
        """Record a finished request."""
        self._write(Line(done=sample))

    def _write(self, line: Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise JournalError(f"{self.path} cannot be written: {error.strerror}") from None
        if written < len(data):
            raise JournalError(f"{self.path} cannot be written: no space left")


@contextmanager
def new_journal(path: Path, plan: Plan) -> Iterator[Journal]:
    """Begin a journal.

    Raises:
        JournalError: the file exists, or cannot be written.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    except FileExistsError:
        raise JournalError(f"{path} already exists; --resume {path} continues it") from None
    except OSError as error:
        raise JournalError(f"{path} cannot be written: {error.strerror}") from None
    with _owned(descriptor, path) as journal:
        journal._write(Line(holeshot_bench=VERSION, plan=plan))  # noqa: SLF001 - the same module
        yield journal


@contextmanager
def continued_journal(path: Path) -> Iterator[tuple[Journal, Past]]:
    """Open a journal to go on with it. A last line that was cut off is removed.

    Raises:
        JournalError: it is none, cannot be written, or another process is writing it.

    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError as error:
        raise JournalError(f"{path} cannot be continued: {error.strerror}") from None
    with _owned(descriptor, path) as journal:
        past, whole = _read(path)
        os.ftruncate(descriptor, whole)
        yield journal, past


def read_journal(path: Path) -> Past:
    """Return what a journal knows, without changing it.

    Raises:
        JournalError: it is none, or cannot be read.

    """
    return _read(path)[0]


@contextmanager
def _owned(descriptor: int, path: Path) -> Iterator[Journal]:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalError(f"{path} is being written by another bench") from None
        yield Journal(descriptor, path)
    finally:
        os.close(descriptor)


def _read(path: Path) -> tuple[Past, int]:
    """Return what the journal knows, and the length of its whole lines."""
    past: Past | None = None
    whole = 0
    decoder: Any = msgspec.json.Decoder(Line)
    try:
        with path.open("rb") as file:
            while data := file.readline(_LONGEST_LINE):
                if not data.endswith(b"\n"):
                    break
                line: Line = decoder.decode(data)
                if past is None:
                    past = Past(_plan(line, path))
                else:
                    _learn(past, line)
                whole += len(data)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise JournalError(f"{path} is not the journal of a bench, or is damaged after byte {whole}") from None
    if past is None:
        raise JournalError(f"{path} is not the journal of a bench")
    return past, whole


def _learn(past: Past, line: Line) -> None:
    if line.sitting is not None:
        past.sittings = line.sitting + 1
    elif line.sent is not None:
        past.sent.append(line.sent)
    elif line.done is not None:
        past.samples.append(line.done)
    elif line.rounds is not None:
        past.plan = msgspec.structs.replace(past.plan, rounds=line.rounds)


def _plan(line: Line, path: Path) -> Plan:
    if line.plan is None or line.holeshot_bench is None:
        raise JournalError(f"{path} is not the journal of a bench")
    if line.holeshot_bench != VERSION:
        raise JournalError(f"{path} was written by another version of holeshot ({line.holeshot_bench}, not {VERSION})")
    return line.plan
