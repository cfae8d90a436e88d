"""The spool folder: what is in it after every kind of accident."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
import structlog.testing

from gateway.ledger import Finished
from gateway.ledger.entries import Audited, Entry, Started, decode, encode
from gateway.ledger.errors import SpoolError
from gateway.ledger.folders import folder_name, orphaned, segment_numbers, segment_path
from gateway.ledger.spool import SEGMENT_MAX_AGE_S, Batch, Spool, SpoolReader, sync_files
from tests.unit.ledger.records import call, lost, new_id, raced_call, start_of, won


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "worker", now_s=0.0)
    yield spool
    spool.close(remove=False)


def read_all(folder: Path) -> list[Entry]:
    return SpoolReader(folder).read(limit=10_000).entries


def ship(spool: Spool, reader: SpoolReader, batch: Batch) -> None:
    reader.advance(batch)
    for path in spool.files.release(batch.segment):
        path.unlink()


def test_a_finished_call_is_on_disk_when_the_method_returns(spool: Spool) -> None:
    record = raced_call()
    spool.call_finished(record)
    assert read_all(spool.folder) == [Finished(record)]


def test_a_header_that_is_no_utf8_does_not_keep_a_call_out_of_the_ledger(spool: Spool) -> None:
    spool.call_finished(raced_call(tags={"name": "caf\udce9"}))
    (entry,) = read_all(spool.folder)
    assert isinstance(entry, Finished)
    assert entry.call.tags == {"name": "caf?"}


def test_what_an_older_version_spooled_is_read_with_the_new_fields_unknown(tmp_path: Path) -> None:
    record = raced_call()
    entries: list[Entry] = [Started(start_of(record)), Finished(record), Audited(record.id, (lost(record.id),))]
    lines = []
    for entry in entries:
        line = msgspec.json.decode(encode(entry))
        for part in _objects(line):
            for field in ("request_id", "answered_model", "dropped", "cache_write_tokens", "cache_saved_usd"):
                part.pop(field, None)
            if "deployment" in part:
                part.pop("model", None)  # a call has had one from the first
        lines.append(msgspec.json.encode(line) + b"\n")
    segment_path(tmp_path, 1).write_bytes(b"".join(lines))
    assert b"cache_saved_usd" not in b"".join(lines)
    assert read_all(tmp_path) == entries


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for item in list(value.values()) if isinstance(value, dict) else value:
            yield from _objects(item)


@pytest.mark.parametrize(("name", "stored"), [("caf\xe9", "caf\xe9"), ("caf\udce9", "caf?")])
def test_nul_characters_are_dropped_in_memory_as_on_disk(spool: Spool, name: str, stored: str) -> None:
    call_id = new_id()
    spool.call_finished(
        call(won(call_id, error_message="x\x00"), client="a\x00b\\u0000", tags={"k\x00": "\x00v", "n": name})
    )
    batch = spool.take_latest(shipped=0, limit=10)
    assert batch is not None
    assert batch.entries == read_all(spool.folder)
    (entry,) = batch.entries
    assert isinstance(entry, Finished)
    assert (entry.call.client, entry.call.tags) == ("ab\\u0000", {"k": "v", "n": stored})
    assert entry.call.attempts[0].error_message == "x"


def test_the_latest_entries_are_in_memory_as_they_are_on_disk(spool: Spool) -> None:
    ended = [raced_call() for _ in range(3)]
    spool.call_started(start_of(ended[0]))
    for record in ended[:2]:
        spool.call_finished(record)
    spool.rotate(now_s=1.0)
    spool.call_finished(ended[2])
    reader = SpoolReader(spool.folder)
    first = spool.take_latest(shipped=0, limit=2)
    assert first is not None
    assert first.entries == [Finished(record) for record in ended[:2]]
    ship(spool, reader, first)
    assert reader.read(limit=10).entries == [Finished(ended[2])]
    rest = spool.take_latest(shipped=2, limit=10)
    assert rest == reader.read(limit=10)
    assert rest is not None
    ship(spool, reader, rest)
    assert segment_numbers(spool.folder) == [2]
    assert spool.take_latest(shipped=3, limit=10) == reader.read(limit=10)


def test_entries_taken_from_memory_that_could_not_be_shipped_are_to_be_read_from_disk(spool: Spool) -> None:
    first, second = raced_call(), raced_call()
    spool.call_finished(first)
    taken = spool.take_latest(shipped=0, limit=10)
    spool.call_finished(second)
    assert spool.take_latest(shipped=0, limit=10) is None
    assert taken is not None
    assert SpoolReader(spool.folder).read(limit=1).entries == taken.entries
    again = spool.take_latest(shipped=1, limit=10)
    assert again is not None
    assert again.entries == [Finished(second)]


def test_what_memory_does_not_hold_is_to_be_read_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.spool.LATEST_MAX_ENTRIES", 2)
    spool = Spool(tmp_path / "worker", now_s=0.0)
    ended = [raced_call() for _ in range(4)]
    for record in ended:
        spool.call_finished(record)
    assert spool.take_latest(shipped=0, limit=10) is None
    assert spool.take_latest(shipped=1, limit=10) is None
    batch = spool.take_latest(shipped=2, limit=10)
    assert batch is not None
    assert batch.entries == [Finished(record) for record in ended[2:]]
    spool.close(remove=True)


def test_read_only_tags_are_encoded_like_any_other() -> None:
    entry = decode(encode(Finished(raced_call(tags=MappingProxyType({"a": "b"})))))
    assert isinstance(entry, Finished)
    assert entry.call.tags == {"a": "b"}


def test_an_entry_that_cannot_be_encoded_is_counted_as_lost_and_raises_nothing(spool: Spool) -> None:
    spool.call_finished(raced_call(tags={"a": object()}))
    assert (spool.lost, read_all(spool.folder)) == (1, [])


def test_a_start_that_cannot_be_encoded_does_not_spoil_the_next_segment(spool: Spool) -> None:
    spool.call_started(start_of(raced_call(tags={"a": object()})))
    record = raced_call()
    spool.call_finished(record)
    spool.rotate(now_s=1.0)
    assert (segment_numbers(spool.folder), spool.appended, spool.lost) == ([1, 2], 1, 0)


def test_a_call_that_ends_after_the_spool_was_closed_is_kept_in_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "worker", now_s=0.0)
    spool.close(remove=True)
    spool.call_finished(raced_call())
    assert spool.unspooled == 1


def test_a_segment_is_kept_while_it_is_young_and_small(spool: Spool) -> None:
    spool.call_finished(raced_call())
    spool.rotate_if_due(SEGMENT_MAX_AGE_S - 1)
    assert segment_numbers(spool.folder) == [1]
    spool.rotate_if_due(SEGMENT_MAX_AGE_S)
    assert segment_numbers(spool.folder) == [1, 2]


def test_an_empty_segment_never_grows_old(spool: Spool) -> None:
    spool.rotate_if_due(10 * SEGMENT_MAX_AGE_S)
    assert segment_numbers(spool.folder) == [1]


def test_a_new_segment_begins_with_the_calls_still_open(spool: Spool) -> None:
    open_call, ended = raced_call(), raced_call()
    spool.call_started(start_of(open_call))
    spool.call_started(start_of(ended))
    spool.call_finished(ended)
    spool.rotate(now_s=1.0)
    reader = SpoolReader(spool.folder)
    ship(spool, reader, reader.read(limit=100))
    assert segment_numbers(spool.folder) == [2]
    assert read_all(spool.folder) == [Started(start_of(open_call))]


def test_a_shipped_segment_is_deleted_only_when_all_of_it_is_shipped(spool: Spool) -> None:
    for _ in range(3):
        spool.call_finished(raced_call())
    spool.rotate(now_s=1.0)
    reader = SpoolReader(spool.folder)
    ship(spool, reader, reader.read(limit=2))
    assert segment_numbers(spool.folder) == [1, 2]
    ship(spool, reader, reader.read(limit=2))
    assert segment_numbers(spool.folder) == [2]


def test_reading_again_before_advancing_gives_the_same_entries(spool: Spool) -> None:
    spool.call_finished(raced_call())
    reader = SpoolReader(spool.folder)
    assert reader.read(limit=10).entries == reader.read(limit=10).entries != []


def test_a_line_torn_by_a_crash_is_left_alone(spool: Spool) -> None:
    record = raced_call()
    spool.call_finished(record)
    with segment_path(spool.folder, 1).open("ab") as segment:
        segment.write(encode(Finished(raced_call()))[:50])
    assert read_all(spool.folder) == [Finished(record)]


@pytest.mark.parametrize(
    "garbage", [b"\x00\x00\x00\n", b'{"type":"finished"}\n', b"\xff\xfe\n", b'{"type":"finished","call":"\xff"}\n']
)
def test_a_corrupt_line_is_set_aside_and_the_rest_is_read(spool: Spool, garbage: bytes) -> None:
    first, second = raced_call(), raced_call()
    spool.call_finished(first)
    with segment_path(spool.folder, 1).open("ab") as segment:
        segment.write(garbage)
    spool.call_finished(second)
    reader = SpoolReader(spool.folder)
    batch = reader.read(limit=10)
    assert batch.entries == [Finished(first), Finished(second)]
    ship(spool, reader, batch)
    assert (spool.folder.parent / "worker.bad").read_bytes() == garbage


def test_a_full_disk_keeps_entries_in_memory_and_the_torn_line_spoils_none_after_it(spool: Spool) -> None:
    before, during, after = raced_call(), raced_call(), raced_call()
    spool.call_finished(before)
    size_bytes = segment_path(spool.folder, 1).stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 100, limits[1]))  # the kernel writes 100 bytes, then none
    try:
        spool.call_finished(during)
        spool.rotate(now_s=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    spool.call_finished(after)
    assert (spool.unspooled, spool.lost) == (1, 0)
    assert spool.take_memory(10) == [Finished(during)]
    assert {entry.call.id for entry in read_all(spool.folder)} == {before.id, after.id}  # type: ignore[union-attr]  # no Audited here


def test_a_start_the_full_disk_did_not_take_is_in_the_next_segment(spool: Spool) -> None:
    record = raced_call()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        spool.call_started(start_of(record))
        spool.rotate(now_s=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert segment_numbers(spool.folder) == [1]
    spool.rotate(now_s=2.0)
    assert read_all(spool.folder) == [Started(start_of(record))]


def test_memory_is_bounded_and_says_what_it_dropped(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.spool.MEMORY_MAX_ENTRIES", 2)
    records = [raced_call() for _ in range(3)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        for record in records:
            spool.call_finished(record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (spool.unspooled, spool.lost) == (3, 1)
    taken = spool.take_memory(10)
    spool.give_back(taken)
    assert spool.take_memory(10) == [Finished(record) for record in records[1:]]


def test_only_what_was_written_since_is_synced(spool: Spool) -> None:
    spool.call_finished(raced_call())
    spool.rotate(now_s=1.0)
    spool.call_finished(raced_call())
    unsynced = spool.files.take_unsynced()
    assert len(unsynced) == 2
    sync_files(unsynced)
    assert spool.files.take_unsynced() == []


def test_a_live_workers_spool_is_no_orphan(spool: Spool) -> None:
    assert list(orphaned(spool.folder.parent)) == []


def test_a_dead_workers_spool_is_adopted_by_one(tmp_path: Path) -> None:
    dead = Spool(tmp_path / "dead", now_s=0.0)
    dead.call_finished(raced_call())
    dead.close(remove=False)
    ((folder, lock),) = orphaned(tmp_path)
    try:
        assert folder == tmp_path / "dead"
        assert list(orphaned(tmp_path)) == []
    finally:
        os.close(lock)


def test_a_spool_of_another_user_is_skipped_and_the_others_are_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for worker in ("another-users", "ours"):
        Spool(tmp_path / worker, now_s=0.0).close(remove=False)
    real_open = os.open

    def open_as_ourselves(path: str | Path, *arguments: int) -> int:  # root may open everything
        if Path(path).parent.name == "another-users":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real_open(path, *arguments)

    monkeypatch.setattr(os, "open", open_as_ourselves)
    with structlog.testing.capture_logs() as logs:
        ((folder, lock),) = orphaned(tmp_path)
    os.close(lock)
    assert folder == tmp_path / "ours"
    assert [(log["event"], log["log_level"], log["spool"]) for log in logs] == [
        ("ledger.spool_skipped", "warning", str(tmp_path / "another-users"))
    ]


def test_a_spool_closed_with_a_call_still_open_is_not_removed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "worker", now_s=0.0)
    spool.call_started(start_of(raced_call()))
    spool.close(remove=True)
    assert (tmp_path / "worker").is_dir()


def test_an_empty_spool_leaves_nothing_behind(tmp_path: Path) -> None:
    Spool(tmp_path / "worker", now_s=0.0).close(remove=True)
    assert list(tmp_path.iterdir()) == []


def test_a_spool_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="spool_dir"):
        Spool(tmp_path / "file" / "worker", now_s=0.0)


@pytest.mark.parametrize(
    ("worker", "name"), [("host-1", "host-1"), ("eu/west 1", "eu-west-1"), ("../x", "-x"), ("..", "worker")]
)
def test_any_worker_name_makes_a_folder_that_can_be_seen(worker: str, name: str) -> None:
    assert folder_name(worker) == name


def test_nobody_else_can_read_a_spool_its_outer_folders_and_lines_set_aside(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spool = Spool(tmp_path / "outer" / "spool" / "worker", now_s=0.0)
        spool.call_finished(raced_call())
        spool.rotate(1.0)
        bad_file = tmp_path / "outer" / "spool" / "worker.bad"
        SpoolReader(spool.folder).set_aside(b"{}", "unknown")
        assert bad_file.stat().st_mode & 0o777 == 0o600
        bad_file.chmod(0o644)
        SpoolReader(spool.folder).set_aside(b"{}", "unknown")
        assert bad_file.read_bytes() == b"{}\n{}\n"
        modes = {oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*") if path.is_dir()}
        assert modes == {"0o700"}
        assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*") if path.is_file()} == {"0o600"}
        spool.close(remove=False)
    finally:
        os.umask(before)
