"""How figures look in a table."""

import json
from decimal import Decimal
from uuid import UUID

import pytest
import typer

from gateway.cli.terminal import UNKNOWN, cell, console, fail, prose, say, write_json, write_table
from gateway.core.terminal_text import visible
from tests.unit.cli.test_sql_output import answer, written


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


NAME = "together/meta-llama/Llama-3.3-70B-Instruct-Turbo"


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output, as it is now, a terminal of 80 characters without colours."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")


def test_where_it_is_narrow_heads_and_names_are_broken_and_figures_stay_whole(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow(monkeypatch)
    columns = ["deployment", "longest answer", *(f"price per {letter}" for letter in "abcde")]

    write_table(columns, [[NAME, "131,072", *range(5)]], title="a title")

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "a title"
    assert [line.split() for line in lines if " longest " in line] == [["longest", *["per"] * 5]]
    folded = [line.split() for line in lines[lines.index(lines[0]) + 1 :] if line.split()][-2:]
    assert "".join(row[0] for row in folded) == NAME
    assert folded[0][1:] == ["131,072", "0", "1", "2", "3", "4"]
    assert max(map(len, lines)) <= 80


def test_what_is_too_wide_for_the_screen_is_printed_in_parts_with_each_row_on_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    columns = ["deployment", *(f"ttft_p{share}_ms" for share in range(80, 99))]

    write_table(columns, [["groq/x", *range(19)], ["slow/x", *range(19)]], title="a title")

    lines = capsys.readouterr().out.splitlines()
    words = [line.split() for line in lines]
    for name in ("groq/x", "slow/x"):
        assert [int(each) for row in words if row[:1] == [name] for each in row[1:]] == list(range(19))
    heads = [each for row in words if row[:1] == ["deployment"] for each in row[1:]]
    assert heads == columns[1:]
    assert [row for row in words if "title" in row] == [["a", "title"]]
    assert max(map(len, lines)) <= 80


def test_what_would_take_too_many_parts_is_laid_on_its_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    columns = ["deployment", *(f"ttft_p{share}_ms" for share in range(60))]

    write_table(columns, [["groq/x", *range(60)], ["slow/x", *range(60)]], title="a title")

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "a title"
    assert next(line for line in lines if "deployment" in line).split() == ["deployment", "groq/x", "slow/x"]
    assert next(line for line in lines if "ttft_p57_ms" in line).split() == ["ttft_p57_ms", "57", "57"]
    assert max(map(len, lines)) <= 80


def test_an_interval_stays_on_the_line_of_its_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    interval = "1,247 [1,031–1,406]"  # noqa: RUF001 - a range

    write_table(["setting", *(f"p{share}" for share in range(6))], [["single", *[interval] * 5, "954 [12–?]"]])  # noqa: RUF001

    lines = capsys.readouterr().out.splitlines()
    assert sum(line.count(interval) for line in lines) == 5
    assert sum(line.count("954 [12–?]") for line in lines) == 1  # noqa: RUF001 - a range


def test_a_long_note_is_broken_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    note = "note: " + "prices are not known, so that nothing can be said of what racing costs; " * 3

    prose(note)

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(line.strip() for line in lines) == note.strip()


def test_a_pipe_has_room_for_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    write_table([f"column_{number}" for number in range(15)], [range(15)])

    assert "column_0 " in capsys.readouterr().out.splitlines()[1]


EVIL = "\x1b[2J[red]x[/red] \x9b1m \u202egnp.exe :smile: \x7f"
STEERING = set("\x1b\x9b\u202e\x7f\r\b")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_others_say_is_shown_in_a_table_and_steers_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    if is_terminal:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb")
    write_table(["tags", EVIL], [[{"a": EVIL}, EVIL], [[EVIL], EVIL]], title=EVIL)
    console().print(EVIL.replace("\x1b", ""))  # a plain text is no markup either
    say(EVIL)

    shown = capsys.readouterr().out
    assert r"\x1b[2J[red]x[/red] \x9b1m \u202egnp.exe :smile: \x7f" in shown.splitlines()[-1]
    assert not set("".join(line for line in shown.splitlines() if r"\x1b" in line)) & STEERING
    assert shown.count("[red]x[/red]") >= 8


def test_json_keeps_what_others_say_and_escapes_it(capsys: pytest.CaptureFixture[str]) -> None:
    write_json([{"tag": EVIL, "line": "a\nb"}])

    written = capsys.readouterr().out
    assert json.loads(written) == [{"tag": EVIL, "line": "a\nb"}]
    assert not set(written) & STEERING


@pytest.mark.parametrize("form", ["csv", "jsonl", "json", "table"])
def test_an_answer_in_sql_steers_nothing_in_whatever_form(capsys: pytest.CaptureFixture[str], form: str) -> None:
    text = written(answer((EVIL,), [(EVIL,), ({"k": EVIL},)]), form, capsys)
    assert not set(text) & STEERING
    assert r"[2J[red]x[/red]" in text


def test_an_error_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        fail(f"the provider says {EVIL}")

    assert not set(capsys.readouterr().err) & STEERING


def test_letters_of_any_script_and_lines_stay_as_they_are() -> None:
    text = "naïve 日本 עברית 👩‍🚀\n\tlaid out"
    assert visible(text, lines=True) == text
    assert visible(text) == text.replace("\n", r"\n").replace("\t", r"\t")


def test_a_row_for_each_attempt_fits_eighty_columns_with_its_longest_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    columns = ["deployment", "role", "outcome", "ttft_ms", "censored_at_ms", "decode_tps"]

    write_table(columns, [["sim-steady/demo-chat", "failover", "client_gone", 1234.0, None, 515.2]])

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split() for line in lines if "failover" in line] == [
        ["sim-steady/demo-chat", "failover", "client_gone", "1,234", UNKNOWN, "515.2"]
    ]
    assert max(map(len, lines)) <= 80
