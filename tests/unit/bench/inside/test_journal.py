import errno
import os
from pathlib import Path

import pytest

from gateway.bench import JournalError, Key, continued_journal, new_journal, read_journal
from tests.unit.bench.inside.samples import plan, sample

KEY = Key(0, 1, "a/m", "short", 0)


def written(path: Path) -> None:
    with new_journal(path, plan("a/m", "b/m")) as journal:
        journal.sitting(0)
        journal.sent(KEY, 0, 0.5)
        journal.done(sample(KEY))
        journal.sent(KEY, 1, 0.5)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written(tmp_path / "bench.jsonl")
    past = read_journal(tmp_path / "bench.jsonl")
    assert past.plan == plan("a/m", "b/m")
    assert past.sittings == 1
    assert [(sent.key, sent.sitting, sent.most_usd) for sent in past.sent] == [(KEY, 0, 0.5), (KEY, 1, 0.5)]
    assert past.samples == [sample(KEY)]


def test_a_line_that_was_cut_off_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    written(path)
    whole = path.read_bytes()
    for length in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:length])
        with continued_journal(path) as (journal, past):
            assert len(past.samples) == whole[:length].count(b'\n{"done"') - (not whole[:length].endswith(b"\n")) * (
                whole[:length].rpartition(b"\n")[2].startswith(b'{"done"')
            )
            journal.sitting(7)
        lines = path.read_bytes().splitlines()
        assert lines == [*whole[:length].rpartition(b"\n")[0].splitlines(), b'{"sitting":7}']


def test_two_benches_cannot_write_the_same_journal(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    written(path)
    with (
        continued_journal(path),
        pytest.raises(JournalError, match="is being written by another bench"),
        continued_journal(path),
    ):
        pass


def test_a_disk_without_locks_is_no_other_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    path = tmp_path / "bench.jsonl"
    written(path)
    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(JournalError, match=r"cannot be locked.*a local disk"), continued_journal(path):
        pass


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not the journal of a bench"),
        (b'{"a": 1}\n', "is not the journal of a bench"),
        (b"no json\n", "is not the journal of a bench, or is damaged after byte 0"),
        (b"\xff\xfe\n", "is not the journal of a bench"),
    ],
)
def test_another_file_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=told), continued_journal(path):
        pass
    assert path.read_bytes() == content


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    written(path)
    path.write_bytes(path.read_bytes().replace(b'"holeshot_bench":1', b'"holeshot_bench":99'))
    with pytest.raises(JournalError, match="another version"):
        read_journal(path)


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text("mine")
    with pytest.raises(JournalError, match="already exists"), new_journal(path, plan("a/m")):
        pass
    assert path.read_text() == "mine"
    with pytest.raises(JournalError, match="is a folder: name a file in it"), new_journal(tmp_path, plan("a/m")):
        pass
    with pytest.raises(JournalError, match="cannot be continued: No such file"), continued_journal(tmp_path / "none"):
        pass
