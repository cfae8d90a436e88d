"""A spool whose files are deleted, moved or replaced while it is in use: nothing is lost, or else it is said."""

import asyncio
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from structlog.typing import EventDict

from gateway.core.calls import CallRecord
from gateway.ledger.entries import Entry, Finished, Started
from gateway.ledger.folders import LOCK_NAME, claim, make_locked, orphaned, segment_numbers, segment_path
from gateway.ledger.segments import copy_segment
from gateway.ledger.spool import SEGMENT_MAX_AGE_S, Reader, Spool
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
        return Reader(self.spool.folder).read(limit=100_000).entries


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


def replace_by_copy(spool: Spool) -> None:
    move_folder(spool)
    shutil.copytree(spool.folder.with_name("moved"), spool.folder)


def replace_by_file(spool: Spool) -> None:
    shutil.rmtree(spool.folder)
    spool.folder.write_text("not a folder")


ACCIDENTS = [
    delete_segment,
    delete_older_segment,
    delete_lock,
    delete_folder,
    delete_spool_dir,
    move_folder,
    move_spool_dir,
    replace_by_empty_folder,
    replace_by_copy,
    replace_by_file,
]


@pytest.mark.parametrize("accident", ACCIDENTS)
async def test_all_that_was_spooled_is_put_back(kept: Kept, accident: Callable[[Spool], None], tmp_path: Path) -> None:
    under_way = raced_call()
    kept.spool.call_started(start_of(under_way))
    before = kept.ended(3)
    kept.spool.rotate(now_s=1.0)
    before += kept.ended(3)
    everything = kept.found()
    accident(kept.spool)
    between = kept.ended(3)
    await kept.keeper.keep()
    after = kept.ended(3)
    assert kept.keeper.problem is None
    found = kept.found()
    assert found[: len(everything)] == everything
    assert [entry.call for entry in found if isinstance(entry, Finished)] == before + between + after
    assert [entry for entry in found if isinstance(entry, Started) and entry.call.id == under_way.id]
    assert list(orphaned(kept.spool.folder.parent)) == []  # we live: nobody may adopt it, nor what was moved
    assert (kept.spool.lost, kept.spool.unspooled) == (0, 0)
    kept.spool.rotate(now_s=2.0)
    assert segment_numbers(kept.spool.folder) == [1, 2, 3]


@pytest.mark.parametrize("accident", ACCIDENTS)
async def test_where_the_owner_reads_and_ships_is_the_same_place_afterwards(
    kept: Kept, accident: Callable[[Spool], None]
) -> None:
    records = kept.ended(3)
    kept.spool.rotate(now_s=1.0)
    records += kept.ended(3)
    reader = Reader(kept.spool.folder)
    reader.advance(reader.read(2, kept.spool.files.open_from(reader.segment)))
    accident(kept.spool)
    read = reader.read(100, kept.spool.files.open_from(reader.segment)).entries
    assert [entry.call for entry in read if isinstance(entry, Finished)] == records[1:]
    await kept.keeper.keep()
    reader.folder = kept.spool.folder
    assert reader.read(100, kept.spool.files.open_from(reader.segment)).entries == read
    assert reader.read(100).entries == read


async def test_several_workers_make_the_folder_they_share_anew_each_for_itself(tmp_path: Path) -> None:
    workers = [Kept(tmp_path / "spool" / f"worker-{number}") for number in range(4)]
    records = [worker.ended(3) for worker in workers]
    shutil.rmtree(tmp_path / "spool")
    await asyncio.gather(*(worker.keeper.keep() for worker in workers))
    for worker, ended in zip(workers, records, strict=True):
        assert [entry.call for entry in worker.found() if isinstance(entry, Finished)] == ended
    assert list(orphaned(tmp_path / "spool")) == []
    for worker in workers:
        worker.spool.close(remove=True)
    assert list((tmp_path / "spool").iterdir()) == []


async def test_what_is_written_while_a_segment_is_copied_is_in_the_copy(kept: Kept) -> None:
    records = kept.ended(3)
    delete_folder(kept.spool)
    kept.spool.files.take_over(*claim(kept.spool.folder))
    source = kept.spool.files.open_segment(1)
    assert source is not None
    copied = copy_segment(source, segment_path(kept.spool.folder, 1))
    records += kept.ended(3)
    kept.spool.files.put_back(1, *copied)
    records += kept.ended(3)
    assert [entry.call for entry in kept.found() if isinstance(entry, Finished)] == records


async def test_a_segment_that_came_into_sql_while_it_was_copied_is_not_kept(kept: Kept) -> None:
    kept.ended(3)
    kept.spool.rotate(now_s=1.0)
    delete_folder(kept.spool)
    kept.spool.files.take_over(*claim(kept.spool.folder))
    source = kept.spool.files.open_segment(1)
    assert source is not None
    copied = copy_segment(source, segment_path(kept.spool.folder, 1))
    kept.spool.files.release(2)
    kept.spool.files.put_back(1, *copied)
    await kept.keeper.keep()
    assert segment_numbers(kept.spool.folder) == [2]


async def test_a_folder_that_another_holds_now_is_left_to_them(kept: Kept, tmp_path: Path) -> None:
    [record] = kept.ended()
    shutil.rmtree(kept.spool.folder)
    theirs = tmp_path / "spool" / "worker"
    lock = make_locked(theirs)
    segment_path(theirs, 1).write_text("theirs")
    await kept.keeper.keep()
    assert kept.spool.folder.name == "worker.2"
    assert [entry.call for entry in kept.found() if isinstance(entry, Finished)] == [record]
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


async def test_it_is_said_once_that_it_was_put_back(kept: Kept, logs: list[EventDict]) -> None:
    kept.ended()
    delete_folder(kept.spool)
    await kept.keeper.keep()
    await kept.keeper.keep()
    [entry] = logs
    assert (entry["event"], entry["log_level"], entry["lost"]) == ("ledger.spool_restored", "error", 0)
    assert entry["missing"] == ["lock", "00000001.jsonl"]


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


def full(_spool: Spool) -> Any:
    return no_file_larger_than(100)


@pytest.mark.parametrize("hindrance", [no_folder, full])
async def test_it_is_said_until_it_can_be_put_back_and_then_all_of_it_is(
    kept: Kept, logs: list[EventDict], hindrance: Callable[[Spool], Any]
) -> None:
    records = kept.ended(3)
    delete_spool_dir(kept.spool)
    with hindrance(kept.spool):
        for second in range(int(2.5 * REMIND_S)):
            kept.now_s = second * 1.0
            await kept.keeper.keep()
            assert kept.keeper.problem == "missing"
        if hindrance is no_folder:
            records += kept.ended(3)  # the file that was deleted takes them
    assert events(logs) == ["ledger.spool_missing"] * 3
    assert all(entry["log_level"] == "error" and entry["cause"] for entry in logs)
    kept.now_s = SEGMENT_MAX_AGE_S - 1
    await kept.keeper.keep()
    assert kept.keeper.problem is None
    assert [entry.call for entry in kept.found() if isinstance(entry, Finished)] == records
    assert events(logs)[3:] == ["ledger.spool_restored"]


async def test_nobody_adopts_a_spool_that_is_only_half_put_back(kept: Kept) -> None:
    kept.ended(3)
    delete_spool_dir(kept.spool)
    with no_file_larger_than(100):
        await kept.keeper.keep()
    assert (kept.spool.folder / LOCK_NAME).exists()
    assert segment_numbers(kept.spool.folder) == []
    assert list(orphaned(kept.spool.folder.parent)) == []


async def test_a_folder_that_was_moved_away_and_back_is_taken_as_it_is(kept: Kept, logs: list[EventDict]) -> None:
    records = kept.ended(3)
    spool_dir = kept.spool.folder.parent
    spool_dir.rename(spool_dir.with_name("away"))
    with no_folder(kept.spool):
        await kept.keeper.keep()
    spool_dir.with_name("away").rename(spool_dir)
    await kept.keeper.keep()
    assert kept.keeper.problem is None
    assert [entry.call for entry in kept.found() if isinstance(entry, Finished)] == records
    assert events(logs) == ["ledger.spool_missing", "ledger.spool_recovered"]


async def test_what_nobody_holds_open_any_more_is_counted_as_lost(
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
    assert [entry.call for entry in kept.found() if isinstance(entry, Finished)] == records[15:]
    reader = Reader(kept.spool.folder)
    left = reader.read(100, kept.spool.files.open_from(1)).entries
    assert sum(isinstance(entry, Finished) for entry in left) == kept.spool.spooled - kept.taken == 5
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
