"""Vendors' exports: their documented examples, and what is no export."""

import json
from datetime import date
from pathlib import Path

import pytest

from gateway.cli.invoices import (
    ANTHROPIC,
    EVERYTHING,
    OPENAI,
    OPENROUTER,
    InvoiceError,
    InvoiceLine,
    read_invoice,
    undated,
)

EXAMPLES = Path(__file__).parent / "invoices"
A_DAY = '{"data": [{"starting_at": "2025-08-01T00:00:00Z", "ending_at": "2025-08-02T00:00:00Z", "results": ['


def test_each_example_has_its_address_and_its_date() -> None:
    sources = json.loads((EXAMPLES / "sources.json").read_text())
    assert sources.keys() == {path.name for path in EXAMPLES.glob("*.json")} - {"sources.json"}
    for source in sources.values():
        assert source["address"].startswith("https://")
        assert date.fromisoformat(source["seen"]).year >= 2025


def test_the_documented_example_of_openai_is_in_dollars_and_undivided() -> None:
    invoice = read_invoice([EXAMPLES / "openai.json"])
    assert (invoice.format, invoice.days) == (OPENAI, {date(2024, 11, 1)})
    assert invoice.lines == (InvoiceLine(date(2024, 11, 1), EVERYTHING, 0.06),)
    assert invoice.is_whole


def test_the_documented_example_of_anthropic_is_in_cents_and_has_more_pages() -> None:
    invoice = read_invoice([EXAMPLES / "anthropic.json"])
    assert (invoice.format, invoice.days) == (ANTHROPIC, {date(2025, 8, 1)})
    [line] = invoice.lines
    assert (line.what, line.usd, line.reason) == ("claude-opus-5", pytest.approx(1.2378912), None)
    assert not invoice.is_whole
    assert "Priority Tier" in invoice.format.lacks


def test_the_documented_example_of_openrouter_names_what_others_bill() -> None:
    invoice = read_invoice([EXAMPLES / "openrouter.json"])
    assert (invoice.format, invoice.days) == (OPENROUTER, {date(2025, 8, 24)})
    [line] = invoice.lines
    assert (line.what, line.usd) == ("openai/gpt-4.1", 0.015)
    assert line.models == ("openai/gpt-4.1", "openai/gpt-4.1-2025-04-14")
    assert line.reason == "$0.012 more were spent with keys of one's own, which their vendors bill"


def openai(tmp_path: Path, name: str, day: int, **of_page: object) -> Path:
    def cost(item: str | None, value: object) -> dict[str, object]:
        amount = {"value": value, "currency": "usd"}
        return {"object": "organization.costs.result", "amount": amount, "line_item": item, "project_id": None}

    results = [
        cost("gpt-4o-2024-08-06, input", 0.5),
        cost("gpt-4o-2024-08-06, output", "0.2500000000000000000000001"),
        cost("gpt-audio-mini-2025-12-15 audio, input", 0.125),
        cost("ft-gpt-4o-2024-08-06, input", 0.0625),
        cost("evals | gpt-4o-mini-2024-07-18, input", 0.03),
        cost("assistants api | file search", 0.02),
        cost("web search tool calls", 0.01),
    ]
    begins = 1730419200 + 86_400 * day
    buckets = [
        {"object": "bucket", "start_time": begins, "end_time": begins + 86_400, "results": results},
        {"object": "bucket", "start_time": begins + 86_400, "end_time": begins + 172_800, "results": []},
    ]
    path = tmp_path / name
    path.write_text(json.dumps({"object": "page", "data": buckets, "has_more": False} | of_page, indent=1))
    return path


def test_line_items_of_openai_are_models_searches_or_not_comparable(tmp_path: Path) -> None:
    invoice = read_invoice([openai(tmp_path, "costs.json", 0)])
    assert invoice.days == {date(2024, 11, 1), date(2024, 11, 2)}  # also the one on which nothing was billed
    assert [(line.what, line.usd, line.reason is None) for line in invoice.lines] == [
        ("gpt-4o", 0.5, True),
        ("gpt-4o", 0.25, True),
        ("gpt-audio-mini", 0.125, True),
        ("ft-gpt-4o", 0.0625, True),
        ("evals | gpt-4o-mini-2024-07-18, input", 0.03, False),
        ("assistants api | file search", 0.02, False),
        ("web_search", 0.01, True),
    ]


def test_pages_belong_together_and_each_is_given_once(tmp_path: Path) -> None:
    first = openai(tmp_path, "1.json", 0, has_more=True, next_page="p2")
    second = openai(tmp_path, "2.json", 2)
    whole = read_invoice([first, second])
    assert (whole.is_whole, len(whole.days)) == (True, 4)
    assert not read_invoice([first]).is_whole
    with pytest.raises(InvoiceError, match=r"2024-11-01 is in .*1\.json and in .*1\.json: give each page once"):
        read_invoice([first, first])
    with pytest.raises(InvoiceError, match=r"is Anthropic's cost report, but .* is OpenAI's costs"):
        read_invoice([first, EXAMPLES / "anthropic.json"])


def test_a_page_that_is_missing_in_the_middle_is_noticed(tmp_path: Path) -> None:
    first = openai(tmp_path, "1.json", 0, has_more=True, next_page="p2")
    second = openai(tmp_path, "2.json", 2, has_more=True, next_page="p3")
    third = openai(tmp_path, "3.json", 4)
    assert read_invoice([first, second, third]).is_whole
    without = read_invoice([third, first])
    assert not without.is_whole
    assert without.days == {date(2024, 11, 1), date(2024, 11, 2), date(2024, 11, 5), date(2024, 11, 6)}
    merged = tmp_path / "merged.json"
    merged.write_text(json.dumps({"data": [*buckets_of(first), *buckets_of(third)]}))
    assert not read_invoice([merged]).is_whole


def buckets_of(path: Path) -> list[dict[str, object]]:
    buckets: list[dict[str, object]] = json.loads(path.read_text())["data"]
    return buckets


def test_a_day_twice_in_one_file_is_refused(tmp_path: Path) -> None:
    first, merged = openai(tmp_path, "1.json", 0), tmp_path / "merged.json"
    merged.write_text(json.dumps({"data": [*buckets_of(first), *buckets_of(first)]}))
    with pytest.raises(InvoiceError, match=r"merged\.json, line 1: 2024-11-01 is there a second time: give each page"):
        read_invoice([merged])
    [bucket] = buckets_of(EXAMPLES / "anthropic.json")
    merged.write_text(json.dumps({"data": [bucket, bucket]}, indent=1))
    with pytest.raises(InvoiceError, match=r"merged\.json, line 21: 2025-08-01 is there a second time"):
        read_invoice([merged])


def test_a_day_without_activity_at_openrouter_is_covered(tmp_path: Path) -> None:
    item = json.loads((EXAMPLES / "openrouter.json").read_text())["data"][0]
    path = tmp_path / "activity.json"
    path.write_text(json.dumps({"data": [item | {"date": "2025-08-26 00:00:00"}, item]}))
    invoice = read_invoice([path])
    assert invoice.days == {date(2025, 8, 24), date(2025, 8, 25), date(2025, 8, 26)}
    assert invoice.is_whole


def test_days_between_files_of_openrouter_are_not_covered(tmp_path: Path) -> None:
    item = json.loads((EXAMPLES / "openrouter.json").read_text())["data"][0]

    def activity(*days: str) -> Path:
        path = tmp_path / f"{days[0]}.json"
        path.write_text(json.dumps({"data": [item | {"date": day} for day in days]}))
        return path

    single = read_invoice([activity("2025-08-27"), activity("2025-08-24")])
    assert single.days == {date(2025, 8, 24), date(2025, 8, 27)}
    assert not single.is_whole
    mixed = read_invoice([activity("2025-08-20", "2025-08-22", "2025-08-20"), activity("2025-08-24")])
    assert mixed.days == {date(2025, 8, 20), date(2025, 8, 21), date(2025, 8, 22), date(2025, 8, 24)}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("date,model,cost\n2025-08-24,x,1\n", 1, "JSON is malformed"),
        ('{"data": [\n  {"date": "2025-08-24",\n   "usage": nonsense}]}', 3, "JSON is malformed"),
        ('{"error": {"message": "no"}}', 1, "missing required field `data`"),
        ('{\n"data": []}', 1, "data is empty"),
        ('{\n"data": [\n{"id": "chatcmpl-1"}]}', 3, "the elements of data have the fields id"),
        ('{\n"data": [\n{"date": "24.8.2025", "model": "x", "usage": 1}]}', 3, "the date is '24.8.2025'"),
        (
            '{"data": [\n{"date": "2025-08-24", "model": "x", "usage": 1},\n{"date": "2025-08-24", "usage": 1}]}',
            3,
            "missing required field `model`",
        ),
        (
            f'{A_DAY}\n{{"uncached_input_tokens": 1500, "model": "claude-opus-5"}}]}}]}}',
            2,
            "missing required field `amount`",
        ),
        (
            f'{A_DAY}\n{{"amount": "12", "currency": "EUR"}}]}}]}}',
            2,
            "Invalid enum value 'EUR'",
        ),
        (
            '{"data": [{"starting_at": "2025-08-01T00:00:00Z", "ending_at": "2025-09-01T00:00:00Z", "results": []}]}',
            1,
            "which is not one day",
        ),
        (
            '{"data": [\n{"start_time": 1730419200000, "end_time": 1730505600000, "results": []}]}',
            2,
            "it is from 1730419200000 to 1730505600000, which are not seconds since 1970",
        ),
        (
            f'{{"data": [\n{{"start_time": {10**18}, "end_time": {10**18}, "results": []}}]}}',
            2,
            "which are not seconds since 1970",
        ),
        (
            f'{{"data": [\n{{"start_time": {10**30}, "end_time": 0, "results": []}}]}}',
            2,
            "which are not seconds since 1970",
        ),
        (
            A_DAY.replace('{"starting', '\n{"starting').replace("2025-08-01T00:00:00Z", "0001-01-01T00:00:00+01:00")
            + "]}]}",
            2,
            "which are no days of UTC",
        ),
        (
            f'{A_DAY}\n\n{{"amount": "nan", "currency": "USD"}}]}}]}}',
            3,
            "'nan' is no amount",
        ),
    ],
)
def test_a_wrong_file_is_told_by_its_line_and_by_what_is_expected(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(InvoiceError) as error:
        read_invoice([path])
    said = str(error.value)
    assert said.startswith(f"{path}, line {line}: ")
    assert problem in said
    assert "What can be read is JSON of OpenAI's costs (GET /v1/organization/costs?group_by=line_item)" in said


@pytest.mark.parametrize(
    ("encoding", "line", "problem"),
    [("latin-1", 3, "the byte 0xfc is not UTF-8"), ("utf-16", 1, "the byte 0xff is not UTF-8")],
)
def test_a_file_in_another_encoding_is_told(tmp_path: Path, encoding: str, line: int, problem: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes('{"data": [\n{"date": "2025-08-24",\n "model": "für", "usage": 1}]}'.encode(encoding))
    with pytest.raises(InvoiceError) as error:
        read_invoice([path])
    assert str(error.value).startswith(f"{path}, line {line}: {problem}")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvoiceError, match="cannot be read: No such file"):
        read_invoice([tmp_path / "nowhere.json"])


def test_names_of_models_are_compared_without_their_dates() -> None:
    assert undated("gpt-4o-2024-08-06") == undated("gpt-4o")
    assert undated("claude-opus-4-20250514") == "claude-opus-4"
    assert undated("ft:gpt-4o-2024-08-06:acme::abc") == undated("ft-gpt-4o-2024-08-06")
