"""How an answer in SQL is written."""

import csv
import io

import pytest

from gateway.cli.sql import _write
from gateway.ledger.queries import Result


def test_lists_and_objects_are_json_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    _write(Result(("tags", "ids", "n"), [({"a": "b"}, [1, 2], None)]), as_json=False, as_csv=True, limit=0)

    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [["tags", "ids", "n"], ['{"a":"b"}', "[1,2]", ""]]
