"""How an answer in SQL is written."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.cli.sql import ResultError, _write
from gateway.ledger.queries import ResultStream

Batch = list[tuple[Any, ...]]


def answer(columns: tuple[str, ...], *batches: Batch) -> ResultStream:
    async def come() -> AsyncIterator[Batch]:
        for batch in batches:
            yield batch

    return ResultStream(columns, come())


def written(answered: ResultStream, form: str, capsys: pytest.CaptureFixture[str], limit: int = 0) -> str:
    asyncio.run(_write(answered, form, limit))
    return capsys.readouterr().out


def test_lists_and_objects_are_json_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(answer(("tags", "ids", "n"), [({"a": "b"}, [1, 2], None)]), "csv", capsys)
    assert list(csv.reader(io.StringIO(text))) == [["tags", "ids", "n"], ['{"a":"b"}', "[1,2]", ""]]


def test_lines_of_json_are_an_object_each(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(answer(("a", "b"), [(1, "x\ny")], [(2, None)]), "jsonl", capsys)
    assert [json.loads(line) for line in text.splitlines()] == [{"a": 1, "b": "x\ny"}, {"a": 2, "b": None}]


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_an_object_loses_no_column_of_another_ones_name(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ResultError, match="several columns are named id: rename them with AS"):
        written(answer(("id", "n", "id"), [(1, 2, 3)]), form, capsys)
    assert capsys.readouterr().out == ""


def test_a_table_counts_what_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(answer(("a",), [(1,), (2,)], [(3,), (4,)]), "table", capsys, limit=3)
    assert "1 more row;" in text
    assert "4" not in text


def test_text_that_a_spreadsheet_would_run_is_marked_and_numbers_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    row = ("=1+1", "+a", "-a", " @a", "a=1", -1.5)
    text = written(answer(("=a", "b", "c", "d", "e", "f"), [row]), "excel", capsys)
    assert list(csv.reader(io.StringIO(text))) == [
        ["'=a", "b", "c", "d", "e", "f"],
        ["'=1+1", "'+a", "'-a", "' @a", "a=1", "-1.5"],
    ]
    assert "'" not in written(answer(("a",), [("=1+1",)]), "csv", capsys)
