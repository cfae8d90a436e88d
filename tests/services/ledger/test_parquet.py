"""holeshot sql --parquet: what is read back from the file is what the ledger has, in types of its own."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from gateway.cli import parquet as export
from gateway.cli.parquet import ResultError
from gateway.cli.sql import _export
from gateway.ledger.errors import QueryError
from gateway.ledger.writer import Ledger
from tests.unit.ledger.records import NOON, call, lost, new_id, won

INSTANT = pa.timestamp("us", tz="UTC")
NUMBERS = "with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {}) "


@pytest.fixture
async def filled_url(ledger_url: str, tmp_path: Path) -> str:
    ledger = Ledger(ledger_url, tmp_path / "spool", "export")
    for number in range(3):
        at = NOON + timedelta(hours=number, microseconds=number)
        winner = won(new_id(), started_at=at, itl={"0": 3}, prompt_tokens=7)
        ledger.call_finished(call(winner, lost(winner.call_id, started_at=at), started_at=at, tags={"team": "a"}))
    await ledger.flush()
    await ledger.close()
    return ledger_url


async def exported(url: str, sql: str, path: Path) -> pa.Table:
    number = await _export(url, sql, path)
    table = parquet.read_table(path)
    assert table.num_rows == number
    return table


async def test_a_file_has_the_ledgers_rows_and_types(filled_url: str, tmp_path: Path) -> None:
    table = await exported(filled_url, "select * from calls order by started_at", tmp_path / "calls.parquet")
    types = {name: table.schema.field(name).type for name in table.column_names}
    assert types["started_at"] == INSTANT
    assert (types["id"], types["tags"], types["model"]) == (pa.string(), pa.string(), pa.string())
    assert (types["ttft_ms"], types["cost_usd"], types["launched"]) == (pa.float64(), pa.float64(), pa.int64())
    assert types["streamed"] in {pa.bool_(), pa.int64()}  # SQLite has none
    first, _, last = table.to_pylist()
    assert (first["started_at"], last["started_at"]) == (NOON, NOON + timedelta(hours=2, microseconds=2))
    assert (first["tags"].replace(" ", ""), len(first["id"]), first["launched"]) == ('{"team":"a"}', 36, 2)


async def test_a_column_of_nulls_has_its_type_all_the_same(filled_url: str, tmp_path: Path) -> None:
    sql = "select e2e_tps, sends, audited, connect_ms, client from attempts where 1 = 0"
    table = await exported(filled_url, sql, tmp_path / "f")
    assert table.num_rows == 0
    assert [table.schema.field(name).type for name in ("e2e_tps", "sends", "connect_ms", "client")] == [
        pa.float64(), pa.int64(), pa.float64(), pa.string(),
    ]  # fmt: skip


async def test_sums_and_whole_views_are_written(filled_url: str, tmp_path: Path) -> None:
    sums = (
        "select sum(prompt_tokens) * 1.5 as n, min(started_at) as first, max(cast(itl as text)) as gaps from attempts"
    )
    [row] = (await exported(filled_url, sums, tmp_path / "sums")).to_pylist()
    assert (row["n"], row["first"], row["gaps"].replace(" ", "")) == (31.5, NOON, '{"0":3}')
    assert (await exported(filled_url, "select * from throughput", tmp_path / "view")).num_rows > 0


async def test_integers_and_fractions_in_one_column_of_sqlite_are_doubles(sqlite_url: str, tmp_path: Path) -> None:
    mixed = "case when n < 2500 then n else n + 0.5 end as mixed, case when n >= 2000 then 'x' end as late"
    sql = NUMBERS.format(3000) + f"select n, {mixed} from numbers"
    table = await exported(sqlite_url, sql, tmp_path / "mixed")
    assert [field.type for field in table.schema] == [pa.int64(), pa.float64(), pa.string()]
    assert table["mixed"].to_pylist()[-1] == 3000.5


async def test_other_types_of_postgres_are_text_or_their_own(postgres_url: str, tmp_path: Path) -> None:
    sql = """
      select 1.25::numeric as price, '2026-03-04'::date as day, timestamp '2026-03-04 12:00' as bare,
        array[1, 2] as list, '1 hour'::interval as span, '{"a": 1}'::jsonb as thing, true as yes, null::int as none,
        gen_random_uuid() as id
    """
    table = await exported(postgres_url, sql, tmp_path / "types")
    [row] = table.to_pylist()
    assert (row["price"], str(row["day"]), row["bare"]) == (1.25, "2026-03-04", NOON)
    assert (row["yes"], row["none"]) == (True, None)
    assert (row["list"], row["span"], row["thing"].replace(" ", "")) == ("[1,2]", "1:00:00", '{"a":1}')
    assert len(row["id"]) == 36


async def test_row_groups_are_bounded(ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "GROUP_ROWS", 2000)
    table = await exported(ledger_url, NUMBERS.format(5500) + "select n from numbers order by n", tmp_path / "many")
    assert table["n"].to_pylist() == list(range(1, 5501))
    described = parquet.ParquetFile(tmp_path / "many").metadata
    assert [described.row_group(at).num_rows for at in range(described.num_row_groups)] == [2000, 2000, 1500]


async def test_an_export_that_fails_late_leaves_the_old_file_and_no_other(postgres_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    path = folder / "numbers.parquet"
    path.write_bytes(b"of yesterday")
    with pytest.raises(QueryError):
        await _export(postgres_url, "select 1 / (3000 - n) from generate_series(1, 4000) as n", path)
    assert path.read_bytes() == b"of yesterday"
    assert [each.name for each in folder.iterdir()] == ["numbers.parquet"]


async def test_two_columns_of_one_name_are_refused(ledger_url: str, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="several columns are named id: rename them with AS"):
        await _export(ledger_url, "select 1 as id, 2 as id, 3 as n", tmp_path / "f")


async def test_a_folder_that_is_not_there_is_named(ledger_url: str, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"cannot write .*No such file"):
        await _export(ledger_url, "select 1 as one", tmp_path / "nowhere" / "f")


def test_an_instant_is_utc_whatever_the_clock_of_this_machine() -> None:
    assert export._instant("2026-03-04 12:00:00.000000") == datetime(2026, 3, 4, 12, tzinfo=UTC)
