"""A spool whose files are deleted or moved while it is in use: it is told, and rows are shipped all the same."""

import asyncio
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import structlog.testing
from structlog.typing import EventDict

from gateway.core.calls import CallRecord
from gateway.ledger import Finished
from gateway.ledger.entries import Entry, Started
from gateway.ledger.folders import LOCK_NAME, make_locked, orphaned, segment_numbers, segment_path
from gateway.ledger.spool import SEGMENT_MAX_AGE_S, Spool, SpoolReader
from gateway.ledger.writer import REMIND_S, Keeper
from tests.unit.ledger.records import NOON, raced_call, start_of

pytestmark = pytest.mark.asyncio


class Kept:
    """A spool with its keeper, a clock that stands still, and what was shipped: nothing."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.taken = 0
        self.spool = Spool(folder, now_s=0.0)
        self.keeper = Keeper(
            self.spool, lambda: self.now_s, lambda: NOON + timedelta(seconds=self.now_s), lambda: self.taken
        )

    def ended(self, number: int = 1) -> list[CallRecord]:
        records = [raced_call() for _ in range(number)]
        for record in records:
            self.spool.call_started(start_of(record))
            self.spool.call_finished(record)
        return records

    def found(self) -> list[Entry]:
        """What an heir would find."""
        return SpoolReader(self.spool.folder).read(limit=100_000).entries

    def read(self) -> list[CallRecord]:
        """What the spool itself ships, from all the files that it holds open."""
        reader = SpoolReader(self.spool.folder)
        entries = reader.read(100_000, self.spool.files.open_from(1)).entries
        return [entry.call for entry in entries if isinstance(entry, Finished)]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path / "spool" / "worker")
    yield kept
    kept.spool.close(remove=False)


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


def events(logs: list[EventDict]) -> list[str]:
    return [entry["event"] for entry in logs]


def delete_segment(spool: Spool) -> None:
    segment_path(spool.folder, spool.files.number).unlink()


def delete_older_segment(spool: Spool) -> None:
    segment_path(spool.folder, 1).unlink()


def delete_lock(spool: Spool) -> None:
    (spool.folder / LOCK_NAME).unlink()


def delete_folder(spool: Spool) -> None:
    shutil.rmtree(spool.folder)


def delete_spool_dir(spool: Spool) -> None:
    shutil.rmtree(spool.folder.parent)


def move_folder(spool: Spool) -> None:
    spool.folder.rename(spool.folder.with_name("moved"))


def move_spool_dir(spool: Spool) -> None:
    spool.folder.parent.rename(spool.folder.parent.with_name("elsewhere"))


def replace_by_empty_folder(spool: Spool) -> None:
    shutil.rmtree(spool.folder)
    spool.folder.mkdir()


DELETIONS = [
    delete_segment,
    delete_older_segment,
    delete_lock,
    delete_folder,
    delete_spool_dir,
    replace_by_empty_folder,
]


def finished(entries: list[Entry]) -> list[CallRecord]:
    return [entry.call for entry in entries if isinstance(entry, Finished)]


@pytest.mark.parametrize("accident", DELETIONS)
async def test_what_is_written_after_a_deletion_is_on_disk_and_what_was_before_is_shipped(
    kept: Kept, accident: Callable[[Spool], None]
) -> None:
    under_way = raced_call()
    kept.spool.call_started(start_of(under_way))
    before = kept.ended(3)
    kept.spool.rotate(now_s=1.0)
    before += kept.ended(3)
    accident(kept.spool)
    between = kept.ended(3)
    await kept.keeper.keep()
    after = kept.ended(3)

    assert kept.read() == before + between + after
    found = kept.found()
    assert finished(found)[-3:] == after
    assert [entry for entry in found if isinstance(entry, Started) and entry.call.id == under_way.id]
    assert list(orphaned(kept.spool.folder.parent)) == []  # we live: no other process may adopt it
    assert (kept.spool.lost, kept.spool.unspooled) == (0, 0)

    kept.spool.files.release(kept.spool.files.number)  # all of the older segments is in SQL
    await kept.keeper.keep()
    assert kept.keeper.problem is None


@pytest.mark.parametrize("accident", [move_folder, move_spool_dir])
async def test_what_was_moved_is_written_where_it_is_now_until_it_is_moved_back(
    kept: Kept, accident: Callable[[Spool], None], logs: list[EventDict]
) -> None:
    records = kept.ended(3)
    folder, spool_dir = kept.spool.folder, kept.spool.folder.parent
    accident(kept.spool)
    records += kept.ended(3)
    await kept.keeper.keep()
    assert (kept.keeper.problem, kept.read()) == ("missing", records)
    assert list(orphaned(spool_dir)) == []
    if accident is move_folder:
        folder.with_name("moved").rename(folder)
    else:
        spool_dir.with_name("elsewhere").rename(spool_dir)
    await kept.keeper.keep()
    assert kept.keeper.problem is None
    assert finished(kept.found()) == records
    assert events(logs) == ["ledger.spool_missing", "ledger.spool_recovered"]


async def test_several_workers_make_the_folder_they_share_anew_each_for_itself(tmp_path: Path) -> None:
    workers = [Kept(tmp_path / "spool" / f"worker-{number}") for number in range(4)]
    shutil.rmtree(tmp_path / "spool")
    await asyncio.gather(*(worker.keeper.keep() for worker in workers))
    records = [worker.ended(3) for worker in workers]
    for worker, ended in zip(workers, records, strict=True):
        assert finished(worker.found()) == ended
    assert list(orphaned(tmp_path / "spool")) == []
    for worker in workers:
        worker.spool.close(remove=True)
    assert list((tmp_path / "spool").iterdir()) == []


async def test_a_folder_that_another_holds_now_is_left_to_them(kept: Kept, tmp_path: Path) -> None:
    records = kept.ended()
    shutil.rmtree(kept.spool.folder)
    theirs = tmp_path / "spool" / "worker"
    lock = make_locked(theirs)
    segment_path(theirs, 1).write_text("theirs")
    await kept.keeper.keep()
    assert (kept.keeper.problem, kept.read()) == ("missing", records)
    kept.spool.close(remove=True)
    assert segment_path(theirs, 1).read_text() == "theirs"
    os.close(lock)
    kept.spool = Spool(tmp_path / "spool" / "unused", now_s=0.0)


async def test_a_folder_that_is_not_ours_is_not_removed_with_ours(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "worker", now_s=0.0)
    shutil.rmtree(spool.folder)
    spool.folder.mkdir()
    (spool.folder / "theirs").touch()
    spool.close(remove=True)
    assert (tmp_path / "worker" / "theirs").exists()


async def test_it_is_said_once_that_files_were_deleted(kept: Kept, logs: list[EventDict]) -> None:
    kept.ended()
    delete_folder(kept.spool)
    await kept.keeper.keep()
    await kept.keeper.keep()
    [entry] = logs
    assert (entry["event"], entry["log_level"], entry["lost"]) == ("ledger.spool_missing", "error", 0)
    assert (entry["missing"], entry["cause"]) == (["lock", "00000001.jsonl"], None)


@contextmanager
def no_file_larger_than(size_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def no_folder(spool: Spool) -> Iterator[None]:
    """Where the spool's folder should be made there is a file: like a read-only parent, but for root as well."""
    parent = spool.folder.parent
    parent.write_text("")
    yield
    parent.unlink()


async def test_it_is_said_until_a_folder_can_be_made(kept: Kept, logs: list[EventDict]) -> None:
    records = kept.ended(3)
    delete_spool_dir(kept.spool)
    with no_folder(kept.spool):
        for second in range(int(2.5 * REMIND_S)):
            kept.now_s = second * 1.0
            await kept.keeper.keep()
            assert kept.keeper.problem == "missing"
        records += kept.ended(3)  # the file that was deleted takes them
    assert events(logs) == ["ledger.spool_missing"] * 3
    assert all(entry["log_level"] == "error" and entry["cause"] for entry in logs)
    await kept.keeper.keep()
    after = kept.ended(3)
    assert finished(kept.found()) == after
    assert kept.read() == records + after


async def test_a_deleted_spool_on_a_full_disk_is_begun_again_when_there_is_room(
    kept: Kept, logs: list[EventDict]
) -> None:
    under_way = raced_call()
    kept.spool.call_started(start_of(under_way))
    delete_spool_dir(kept.spool)
    with no_file_larger_than(100):
        await kept.keeper.keep()
        assert kept.keeper.problem == "missing"
        assert list(orphaned(kept.spool.folder.parent)) == []
    await kept.keeper.keep()
    assert [entry.call.id for entry in kept.found() if isinstance(entry, Started)] == [under_way.id]
    kept.spool.files.release(kept.spool.files.number)
    await kept.keeper.keep()
    assert kept.keeper.problem is None


async def test_what_is_no_longer_held_open_is_counted_as_lost(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, logs: list[EventDict]
) -> None:
    monkeypatch.setattr("gateway.ledger.segments.HELD_MAX", 1)
    records = []
    for _ in range(4):
        records += kept.ended(5)
        kept.spool.rotate(now_s=0.0)
    kept.taken = 7  # all of the first segment, two of the second
    delete_folder(kept.spool)
    await kept.keeper.keep()
    assert kept.spool.lost == 3 + 5
    assert logs[0]["lost"] == 8
    assert kept.spool.spooled - kept.taken == 5
    assert kept.read() == records[15:]
    await kept.keeper.keep()
    assert kept.spool.lost == 8


async def test_recovery_is_said_only_when_the_disk_has_all_that_it_refused(kept: Kept, logs: list[EventDict]) -> None:
    under_way = raced_call()
    with no_file_larger_than(100):
        kept.spool.call_started(start_of(under_way))
        records = kept.ended(3)
        for second in range(int(2.5 * REMIND_S)):
            kept.now_s = second * 1.0
            await kept.keeper.keep()
            assert kept.keeper.problem == "unwritable"
    assert events(logs) == ["ledger.spool_unwritable"] * 3
    assert kept.spool.unspooled == 7
    numbers = segment_numbers(kept.spool.folder)
    await kept.keeper.keep()
    assert kept.keeper.problem is None
    assert events(logs)[3:] == ["ledger.spool_recovered"]
    found = kept.found()
    assert [entry.call for entry in found if isinstance(entry, Finished)] == records
    assert [entry.call.id for entry in found if isinstance(entry, Started)] == [under_way.id]
    assert len(segment_numbers(kept.spool.folder)) == len(numbers) + 1
    assert kept.spool.take_memory(100) == []
    batch = kept.spool.take_latest(0, 100)
    assert batch is not None
    assert [entry.call for entry in batch.entries if isinstance(entry, Finished)] == records


async def test_old_segments_are_not_multiplied_while_sql_is_away(kept: Kept) -> None:
    kept.ended()
    for minute in range(1, 10):
        kept.now_s = minute * SEGMENT_MAX_AGE_S
        await kept.keeper.keep()
        kept.ended()
    assert segment_numbers(kept.spool.folder) == [1, 2]
