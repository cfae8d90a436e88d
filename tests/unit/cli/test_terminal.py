"""How figures look in a table."""

from gateway.cli.terminal import cell


def test_the_unit_decides_the_digits() -> None:
    assert cell(1234.56, "ttft_p50_ms") == "1,235"
    assert cell(99.95, "decode_tps") == "100.0"
    assert cell(0.0001234, "cost_usd") == "0.000123"
    assert cell(0.5, "share") == "0.500"


def test_what_is_not_known_is_a_dash() -> None:
    assert cell(None) == "–"  # noqa: RUF001 - the dash the tables print


def test_truth_is_yes_or_no_and_whole_numbers_stay_whole() -> None:
    assert (cell(value=True), cell(7, "n"), cell("groq/x")) == ("yes", "7", "groq/x")
