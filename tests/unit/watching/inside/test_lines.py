"""The log's way out: in order, whole, and never waited for."""

import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from gateway.watching import LogLines
from gateway.watching.logs import HELD_BYTES, WAITING_BYTES

LINE = b"x" * 299 + b"\n"


class Pipe:
    """A pipe into which lines are written, and read by whoever likes."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.lines = LogLines(self.writing, lambda dropped: b"dropped %d\n" % dropped)
        self.arrived = os.fdopen(self.reading, "rb")

    def fill(self) -> int:
        """Write until lines are dropped; return how many were offered."""
        offered = 0
        while not self.lines.dropped:
            self.lines.hold(b"%d %s" % (offered, LINE))
            offered += 1
        return offered


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    with closing(pipe.arrived):
        yield pipe  # the end written to stays open: a thread may be in the middle of it


def test_lines_keep_their_order_whether_held_or_not(pipe: Pipe) -> None:
    pipe.lines.hold(b"first\n")
    pipe.lines.hold(b"second\n")
    pipe.lines.write(b"third\n")
    assert [pipe.arrived.readline() for _ in range(3)] == [b"first\n", b"second\n", b"third\n"]


def test_a_held_line_is_written_though_no_other_follows(pipe: Pipe) -> None:
    pipe.lines.hold(b"alone\n")
    assert pipe.arrived.readline() == b"alone\n"


def test_a_pipe_that_nobody_reads_holds_up_nobody_and_what_was_dropped_is_announced(pipe: Pipe) -> None:
    offered = pipe.fill()
    for _ in range(99):
        pipe.lines.write(b"dropped, as those before it\n")
    dropped = pipe.lines.dropped
    assert dropped == 100
    assert offered > WAITING_BYTES // (2 * len(LINE))
    numbers = [int(pipe.arrived.readline().split()[0]) for _ in range(offered - 1)]
    assert numbers == list(range(offered - 1))
    assert pipe.arrived.readline() == b"dropped 100\n"
    pipe.lines.write(b"again\n")
    assert pipe.arrived.readline() == b"again\n"
    assert pipe.lines.dropped == dropped


def test_draining_gives_up_on_a_pipe_that_nobody_reads(pipe: Pipe) -> None:
    pipe.fill()
    assert not pipe.lines.drain(limit_s=0)


def test_drained_lines_are_out(pipe: Pipe) -> None:
    pipe.lines.hold(b"held\n")
    assert pipe.lines.drain(limit_s=20)
    assert os.read(pipe.reading, 100) == b"held\n"
    assert pipe.lines.drain(limit_s=0)


def test_a_line_larger_than_everything_that_may_wait_is_dropped_alone(pipe: Pipe) -> None:
    pipe.lines.write(b"x" * WAITING_BYTES + b"\n")
    pipe.lines.write(b"next\n")
    assert pipe.arrived.readline() == b"next\n"
    assert pipe.arrived.readline() == b"dropped 1\n"
    assert pipe.lines.dropped == 1


def test_lines_for_a_closed_pipe_are_counted(pipe: Pipe) -> None:
    pipe.arrived.close()
    for _ in range(3):
        pipe.lines.write(b"nobody\n")
    assert pipe.lines.drain(limit_s=20)
    assert pipe.lines.dropped == 3


def test_a_pipe_made_not_to_block_by_another_process_loses_nothing(pipe: Pipe) -> None:
    fcntl.fcntl(pipe.writing, fcntl.F_SETFL, fcntl.fcntl(pipe.writing, fcntl.F_GETFL) | os.O_NONBLOCK)
    for number in range(2_000):
        pipe.lines.hold(b"%d %s" % (number, LINE))
    assert [int(pipe.arrived.readline().split()[0]) for _ in range(2_000)] == list(range(2_000))


def test_what_is_written_at_once_fits_into_a_pipe_whole() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # which keeps writes apart
    with ours, theirs:
        lines = LogLines(ours.fileno(), lambda _: b"")
        for _ in range(1_000):
            lines.hold(LINE)
        sizes: list[int] = []
        while sum(sizes) < 1_000 * len(LINE):
            sizes.append(len(theirs.recv(1 << 20)))
        assert max(sizes) <= HELD_BYTES
        assert all(size % len(LINE) == 0 for size in sizes)
        assert lines.drain(limit_s=20)


def test_a_line_that_is_longer_is_written_whole_all_the_same(pipe: Pipe) -> None:
    long = b"y" * (3 * HELD_BYTES) + b"\n"
    pipe.lines.hold(b"before\n")
    pipe.lines.hold(long)
    pipe.lines.hold(b"after\n")
    assert [pipe.arrived.readline() for _ in range(3)] == [b"before\n", long, b"after\n"]


def test_a_finalizer_may_log_in_the_middle_of_a_line(pipe: Pipe) -> None:
    with pipe.lines._lock:
        pipe.lines.write(b"from a finalizer\n")
    assert pipe.arrived.readline() == b"from a finalizer\n"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # that is what it is about
def test_a_forked_process_writes_its_own_lines_and_none_of_its_parents(pipe: Pipe) -> None:
    offered = pipe.fill()  # its thread waits for a reader
    locked, forked = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with pipe.lines._lock:
            locked.set()
            forked.wait()

    holder = threading.Thread(target=hold_the_lock)
    holder.start()
    locked.wait()
    child = os.fork()
    if not child:
        pipe.lines.write(b"0 the child's\n")
        os._exit(0 if not pipe.lines.dropped and pipe.lines.drain(limit_s=20) else 1)
    forked.set()
    holder.join()
    received = [pipe.arrived.readline() for _ in range(offered + 1)]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert received.count(b"0 the child's\n") == 1
    assert received.count(b"dropped 1\n") == 1
    assert len(set(received)) == offered + 1
