"""The HTML report: whole, escaped, and without a request to anybody."""

import re
from functools import cache
from html.parser import HTMLParser

import pytest

from gateway.bench import CheckOutcome, Contender, GateResult, Report, page, report
from gateway.bench.gate import Check
from gateway.bench.html import scale_of
from tests.unit.bench.inside.samples import GOAL, plan, run, sample

VOID = {"meta", "link", "br", "circle", "rect", "line", "polyline"}


class Nesting(HTMLParser):
    """Fails unless every tag is closed in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@cache
def drawn(*names: str) -> Report:
    of = plan(*names, concurrencies=(1, 4), goal=GOAL)
    samples = run(of, {name: 100.0 * (place + 1) for place, name in enumerate(names)})
    return report(of, samples, sittings=1, at_most_usd=0.1)


def test_it_is_one_document_that_asks_nobody_for_anything() -> None:
    text = page(drawn("a/m", "b/m"))
    nesting = Nesting()
    nesting.feed(text)
    assert nesting.open == []
    assert not nesting.seen & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not re.search(r"(src|href)=|url\(|@import|https?://", text)
    assert "default-src 'none'" in text


def test_each_plot_has_its_figures_as_a_table() -> None:
    text = page(drawn("a/m", "b/m"))
    cards = text.split('<section class="card">')[1:]
    plots = [card for card in cards if '<div class="plot">' in card]
    assert len(plots) > 10
    assert all("<table>" in card.split("</section>")[0] for card in plots)


def test_names_are_escaped() -> None:
    name = '<img src=x onerror="alert(1)">/m&m'
    of = plan(
        contenders=(Contender(name=name, model="<b>", leaves_out={"json": "<i>"}), Contender(name="b/m", model="m"))
    )
    samples = [sample(each.key, error_kind="<u>") for each in run(of, {name: 1.0, "b/m": 2.0})]
    text = page(report(of, samples, sittings=1, at_most_usd=0.0))
    for raw in ("<img", "<b>", "<i>", "<u>", 'onerror="'):
        assert raw not in text.partition("</style>")[2].replace('<b class="value">', "")
    assert "&lt;img src=x" in text


def test_where_and_how_deployments_run_is_told_as_far_as_it_is_configured() -> None:
    contenders = (
        Contender(name="a/m", model="m", region="eu", hardware="8 x <H100>", quantization="fp8"),
        Contender(name="b/m", model="m"),
    )
    text = page(report(plan(contenders=contenders), [], sittings=1, at_most_usd=0.0))
    assert "as configured: a: region eu, hardware 8 x &lt;H100&gt;, precision fp8." in text
    assert "as configured" not in page(report(plan("a/m", "b/m"), [], sittings=1, at_most_usd=0.0))


def test_what_the_gate_says_is_first_and_escaped() -> None:
    checks = [
        Check("<b> ttft_p95_ms > 800", "a/m", 4, CheckOutcome.BROKEN, "it is 900 ms (850 to 950)"),
        Check("errors > 2%", "b/m", 4, CheckOutcome.HOLDS, "none of 40"),
    ]
    text = page(drawn("a/m", "b/m"), GateResult(CheckOutcome.BROKEN, checks, ["<u> has no b/m"]))
    nesting = Nesting()
    nesting.feed(text)
    assert nesting.open == []
    gate, _, rest = text.partition("<h2>Gate</h2>")[2].partition("<h2>")
    assert rest
    for words in ("❌ broken", "✅ holds", "a/m × 4", "&lt;b&gt; ttft_p95_ms &gt; 800", "it is 900 ms (850 to 950)"):  # noqa: RUF001
        assert words in gate
    assert "&lt;u&gt; has no b/m" in gate
    assert "<h2>Gate</h2>" not in page(drawn("a/m", "b/m"))


def test_a_bench_that_measured_nothing_still_has_a_report() -> None:
    text = page(report(plan("a/m", "b/m"), [], sittings=1, at_most_usd=0.0))
    assert "Not everything in the plan was asked." in text
    assert "No difference was shown." in text


def test_a_bench_in_which_everything_failed_still_has_a_report() -> None:
    of = plan("a/m", "b/m", goal=GOAL)
    failed = [
        sample(each.key, error_kind="rate_limited", ttft_ms=None, total_ms=None, decode_tps=None, cost_usd=None)
        for each in run(of, {"a/m": 1.0, "b/m": 1.0})
    ]
    assert "rate_limited 20" in page(report(of, failed, sittings=1, at_most_usd=0.0))


@pytest.mark.parametrize(
    ("values", "low", "high", "ticks"),
    [
        ([100.0, 350.0], 0.0, 400.0, (0.0, 100.0, 200.0, 300.0, 400.0)),
        ([0.0], 0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        ([], 0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        ([12.0, 900.0], 10.0, 1000.0, (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)),
    ],
)
def test_axes_have_round_ticks(values: list[float], low: float, high: float, ticks: tuple[float, ...]) -> None:
    scale = scale_of(values)
    assert (scale.low, scale.high) == (low, high)
    assert scale.ticks == pytest.approx(ticks)
    assert all(0 <= scale.at(value) <= 100 for value in values)
    assert scale.at(high) == 100
