"""How figures look in a table."""

import json
from decimal import Decimal
from uuid import UUID

import pytest

from gateway.cli.terminal import cell, write_json, write_table


def test_the_unit_decides_the_digits() -> None:
    assert cell(1234.56, "ttft_p50_ms") == "1,235"
    assert cell(99.95, "decode_tps") == "100.0"
    assert cell(0.0001234, "cost_usd") == "0.000123"
    assert cell(0.5, "share") == "0.500"


def test_what_is_not_known_is_a_dash() -> None:
    assert cell(None) == "–"  # noqa: RUF001 - the dash the tables print


def test_truth_is_yes_or_no_and_whole_numbers_stay_whole() -> None:
    assert (cell(value=True), cell(7, "n"), cell("groq/x")) == ("yes", "7", "groq/x")


def test_lists_and_objects_are_json() -> None:
    assert cell({"a": [1, None], "b": Decimal("1.50")}, "tags") == '{"a":[1,null],"b":1.50}'
    assert cell(["x"]) == '["x"]'


def test_decimals_are_json_numbers_and_what_is_no_number_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    write_json([{"n": Decimal("12.50"), "nan": Decimal("NaN"), "id": UUID(int=1)}])

    assert json.loads(capsys.readouterr().out) == [{"n": 12.5, "nan": None, "id": str(UUID(int=1))}]


def test_what_is_too_wide_for_the_screen_is_laid_on_its_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # 80 characters, no colours
    columns = ["deployment", *(f"ttft_p{share}_ms" for share in range(80, 99))]

    write_table(columns, [["groq/x", *range(19)], ["slow/x", *range(19)]])

    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if "deployment" in line).split() == ["deployment", "groq/x", "slow/x"]
    assert next(line for line in lines if "ttft_p97_ms" in line).split() == ["ttft_p97_ms", "17", "17"]
    assert max(map(len, lines)) <= 80


def test_a_pipe_has_room_for_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    write_table([f"column_{number}" for number in range(15)], [range(15)])

    assert "column_0 " in capsys.readouterr().out.splitlines()[1]
