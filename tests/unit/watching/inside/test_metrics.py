"""What is counted, and the page it makes, read by Prometheus' own parser."""

import asyncio
import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from gateway.app.gauges import TargetFigures
from gateway.core.attempts import AttemptStart, Outcome, Role, TokensSource
from gateway.core.targets import Burn, Counts, Definition, Standing, Target, burn_rate
from gateway.racing.measurement import Gaps
from gateway.steering import edge_s
from gateway.watching import Family, Metrics, forget_process, series
from gateway.watching.metrics import MULTIPROCESS_FOLDER
from gateway.watching.series import ADHOC_LABEL, GAP_BUCKETS, GAP_EDGES, MOST_CLIENTS, OTHER_CLIENTS
from tests.app.gateway.lacking import refusing
from tests.unit.ledger.records import NOON, attempt, call, failed, lost, new_id, raced_call, won

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def page_of(metrics: Metrics) -> Page:
    body, content_type = await metrics.render()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def at(page: Page, name: str, **labels: str) -> float | None:
    return page.get((name, frozenset(labels.items())))


def answered(page: Page) -> float | None:
    return at(page, "holeshot_calls_total", model="llama", mode="auto", status="200")


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def standing(bad: int) -> Standing:
    burn = Burn("fast", 3600, 10, 1, burn_rate(10, 1, 0.9), "")
    return Standing(Target("fast", Definition(), 0.9), Counts(100, bad), (burn,), "", "")


def started(deployment: str = "groq/llama") -> AttemptStart:
    return AttemptStart(new_id(), 1, NOON, Role.PRIMARY, "groq", deployment, 0.0)


def knowing(*models: str) -> Metrics:
    known: dict[str, object] = dict.fromkeys(models)
    return Metrics(lambda: known)


@pytest.fixture(params=["alone", "one of several"])
def metrics(request: pytest.FixtureRequest) -> Iterator[Metrics]:
    if request.param == "alone":
        yield knowing("llama")
        return
    folder = request.getfixturevalue("tmp_path")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MULTIPROCESS_FOLDER, str(folder))
        yield knowing("llama")


async def test_a_race_is_counted_by_model_and_by_deployment(metrics: Metrics) -> None:
    record = raced_call(ttft_ms=200.0, overhead_ms=0.5, cost_usd=0.03, duplicate_cost_usd=0.01)
    for _ in record.attempts:
        metrics.attempt_started("llama", started())
    winner, loser = record.attempts
    metrics.attempt_ended("llama", winner)
    page = await page_of(metrics)
    assert at(page, "holeshot_in_flight_attempts", deployment="groq/llama") == 1
    metrics.attempt_ended("llama", loser)
    metrics.call_finished(record)
    page = await page_of(metrics)
    assert at(page, "holeshot_calls_total", model="llama", mode="auto", status="200") == 1
    assert at(page, "holeshot_attempts_total", deployment="groq/llama", role="primary", outcome="won") == 1
    assert at(page, "holeshot_attempts_total", deployment="cerebras/llama", role="race", outcome="lost") == 1
    assert at(page, "holeshot_cost_usd_total", model="llama", share="answer") == pytest.approx(0.02)
    assert at(page, "holeshot_cost_usd_total", model="llama", share="duplicate") == 0.01
    assert at(page, "holeshot_ttft_seconds_count", model="llama") == 1
    assert at(page, "holeshot_ttft_seconds_sum", model="llama") == 0.2
    assert at(page, "holeshot_decode_tokens_per_second_sum", deployment="groq/llama") == 60.0
    assert at(page, "holeshot_overhead_seconds_count") == 1


async def test_an_attempt_ends_where_it_was_counted_though_a_reload_has_renamed_its_model() -> None:
    models: list[dict[str, object]] = [{"llama": None}, {"new-name": None}]
    metrics = Metrics(lambda: models[0])
    start = started()
    metrics.attempt_started("llama", start)
    del models[0]
    metrics.attempt_ended("llama", attempt(new_id(), id=start.id))
    page = await page_of(metrics)
    assert at(page, "holeshot_in_flight_attempts", deployment="groq/llama") == 0
    assert at(page, "holeshot_in_flight_attempts", deployment=ADHOC_LABEL) == 0


async def test_a_buckets_bound_is_in_it_and_buckets_add_up(metrics: Metrics) -> None:
    for ttft_ms in (50.0, 50.1, 119_999.0, 500_000.0):
        metrics.call_finished(raced_call(ttft_ms=ttft_ms))
    page = await page_of(metrics)
    counts = [at(page, "holeshot_ttft_seconds_bucket", model="llama", le=le) for le in ("0.05", "0.1", "120.0", "+Inf")]
    assert counts == [1, 2, 3, 4]
    assert at(page, "holeshot_ttft_seconds_count", model="llama") == 4


async def test_takeovers_are_counted_by_how_they_ended(metrics: Metrics) -> None:
    for end in ("finished", "finished", "tools", None):
        metrics.call_finished(raced_call(takeover=end))
    page = await page_of(metrics)
    assert at(page, "holeshot_takeovers_total", model="llama", end="finished") == 2
    assert at(page, "holeshot_takeovers_total", model="llama", end="tools") == 1
    assert sum(name == "holeshot_takeovers_total" for name, _ in page) == 2


async def test_rivals_that_were_kept_are_counted_by_what_came_of_them(metrics: Metrics) -> None:
    call_id = new_id()
    for each in (won(call_id, is_kept=True), lost(call_id, is_kept=True), won(call_id, is_kept=False), won(call_id)):
        metrics.attempt_ended("llama", each)
    page = await page_of(metrics)
    counted = {labels: count for (name, labels), count in page.items() if name == "holeshot_kept_rivals_total"}
    assert sorted(counted.values()) == [1, 1]
    assert at(page, "holeshot_kept_rivals_total", deployment="groq/llama", outcome="won") == 1


async def test_streams_that_dribbled_are_counted(metrics: Metrics) -> None:
    for found in (True, False, None):
        metrics.attempt_ended("llama", won(new_id(), would_take_over=found))
    assert at(await page_of(metrics), "holeshot_would_take_over_total", deployment="groq/llama") == 1


async def test_errors_tokens_and_refusals_are_counted_by_kind(metrics: Metrics) -> None:
    call_id = new_id()
    metrics.attempt_ended("llama", failed(call_id))
    metrics.attempt_ended("llama", won(call_id, prompt_tokens=7, completion_tokens=11))
    for estimated in (TokensSource.ESTIMATED, TokensSource.IMPLAUSIBLE, None):  # a loser's answer, as far as it came
        metrics.attempt_ended("llama", lost(call_id, completion_tokens=5, prompt_tokens=9, tokens_source=estimated))
    metrics.launch_refused("llama", "budget")
    page = await page_of(metrics)
    assert at(page, "holeshot_attempt_errors_total", deployment="groq/llama", kind="server_error") == 1
    assert at(page, "holeshot_tokens_total", deployment="groq/llama", kind="prompt") == 7
    assert at(page, "holeshot_tokens_total", deployment="groq/llama", kind="completion") == 11
    assert at(page, "holeshot_refused_launches_total", model="llama", limit="budget") == 1


async def test_who_states_tokens_unlike_the_others_is_counted_from_zero(metrics: Metrics) -> None:
    metrics.attempt_started("llama", started())
    before = await page_of(metrics)
    metrics.usage_far_off("llama", "groq/llama")
    metrics.usage_far_off("made-up", "made/up")
    page = await page_of(metrics)
    counts = [at(each, "holeshot_usage_far_off_total", deployment="groq/llama") for each in (before, page)]
    assert counts == [0, 1]
    assert at(page, "holeshot_usage_far_off_total", deployment=ADHOC_LABEL) == 1


async def test_names_made_up_by_clients_are_no_series(metrics: Metrics) -> None:
    for number in range(3):
        call_id = new_id()
        metrics.attempt_ended(f"made-up-{number}", lost(call_id, deployment=f"made/up-{number}"))
        metrics.call_finished(call(won(call_id), model=f"made-up-{number}"))
    body, _ = await metrics.render()
    assert b"made" not in body
    page = await page_of(metrics)
    assert at(page, "holeshot_calls_total", model=ADHOC_LABEL, mode="auto", status="200") == 3


async def test_a_model_that_a_reload_brings_gets_its_own_series_and_one_it_takes_away_loses_them() -> None:
    known: dict[str, object] = {"llama": None}
    metrics = Metrics(lambda: known)
    metrics.call_finished(raced_call(model="llama"))
    metrics.call_finished(raced_call(model="qwen"))
    known = {"qwen": None}
    metrics.call_finished(raced_call(model="llama"))
    metrics.call_finished(raced_call(model="qwen"))
    page = await page_of(metrics)
    counts = {name: at(page, "holeshot_ttft_seconds_count", model=name) for name in ("llama", "qwen", ADHOC_LABEL)}
    assert counts == {"llama": 1, "qwen": 1, ADHOC_LABEL: 2}


async def test_whatever_is_in_a_name_the_page_can_be_read() -> None:
    strange = 'a"b\\c\nd{e="f"}, é'
    metrics = knowing(strange)
    metrics.attempt_ended(strange, won(new_id(), deployment=strange))
    metrics.call_finished(raced_call(model=strange))
    page = await page_of(metrics)
    assert at(page, "holeshot_ttft_seconds_count", model=strange) == 1
    assert at(page, "holeshot_attempts_total", deployment=strange, role="primary", outcome="won") == 1


async def test_gauges_are_read_for_each_page(metrics: Metrics) -> None:
    pending = 3.0
    metrics.gauge("holeshot_ledger_pending", "Calls not yet in SQL.", lambda: pending)
    assert at(await page_of(metrics), "holeshot_ledger_pending") == 3.0
    pending = 0.0
    assert at(await page_of(metrics), "holeshot_ledger_pending") == 0.0


async def test_workers_counts_add_up_and_a_dead_ones_gauges_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    one, other = knowing("llama"), knowing("llama")
    for metrics in (one, other):
        metrics.attempt_started("llama", started())
        metrics.call_finished(raced_call(ttft_ms=200.0))
    other.call_finished(raced_call(status_code=502))
    for page in (await page_of(one), await page_of(other)):
        assert at(page, "holeshot_ttft_seconds_count", model="llama") == 3
        assert at(page, "holeshot_calls_total", model="llama", mode="auto", status="502") == 1
        assert at(page, "holeshot_in_flight_attempts", deployment="groq/llama") == 2
    for path in files(tmp_path, f"{os.getpid()}-*")[:2]:
        shutil.copy(path, tmp_path / f"1-third{path.suffix}")
    before = await page_of(one)
    forget_process(1)
    after = await page_of(one)
    assert at(before, "holeshot_in_flight_attempts", deployment="groq/llama") == 3
    assert at(after, "holeshot_in_flight_attempts", deployment="groq/llama") == 2
    name, labels = "holeshot_ttft_seconds_count", {"model": "llama"}
    assert at(before, name, **labels) == at(after, name, **labels)


async def test_targets_are_the_same_for_all_workers_and_do_not_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    one, other = knowing("llama"), knowing("llama")
    for metrics in (one, other):
        TargetFigures(metrics).show([standing(bad=4)])
    for page in (await page_of(one), await page_of(other)):
        assert at(page, "holeshot_target_calls", target="fast") == 100
        assert at(page, "holeshot_target_bad_calls", target="fast") == 4
        assert at(page, "holeshot_target_budget_left", target="fast") == pytest.approx(0.6)
        assert at(page, "holeshot_target_burn_rate", target="fast", window="1h") == pytest.approx(1.0)


async def test_a_target_that_is_gone_or_without_calls_has_no_figure(metrics: Metrics) -> None:
    figures = TargetFigures(metrics)
    figures.show([standing(bad=4)])
    assert at(await page_of(metrics), "holeshot_target_calls", target="fast") == 100
    figures.show([])
    page = await page_of(metrics)
    for name in ("holeshot_target_calls", "holeshot_target_budget_left"):
        assert at(page, name, target="fast") is None


async def test_a_series_that_another_worker_is_just_adding_is_left_for_the_next_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    metrics = knowing("llama")
    metrics.call_finished(raced_call())
    [index] = files(tmp_path, "*.series")
    with index.open("ab") as file:
        file.write(b'["holeshot_calls_total",["auto","lla')
    assert answered(await page_of(knowing("llama"))) == 1


@pytest.mark.parametrize("taken", [0, 9])
async def test_a_full_disk_keeps_new_series_from_the_others_until_there_is_space(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    one, other = knowing("llama"), knowing("llama")
    write = os.write
    half = refusing(errno.ENOSPC) if not taken else lambda descriptor, data: write(descriptor, data[:taken])
    with monkeypatch.context() as full, structlog.testing.capture_logs() as logs:
        full.setattr(os, "write", half)
        for _ in range(2):
            one.call_finished(raced_call())
        assert answered(await page_of(one)) == 2
        assert answered(await page_of(other)) is None
    assert [log["event"] for log in logs] == ["metrics.not_shared"]
    one.call_finished(raced_call())
    await page_of(one)  # as each second
    assert answered(await page_of(other)) == 3


async def test_a_worker_without_a_file_for_its_cells_counts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    other = knowing("llama")
    known = files(tmp_path, "*")
    with monkeypatch.context() as scarce, structlog.testing.capture_logs() as logs:
        scarce.setattr(mmap, "mmap", refusing(errno.ENOMEM))
        alone = knowing("llama")
    assert files(tmp_path, "*") == known
    assert [log["event"] for log in logs] == ["metrics.not_shared"]
    alone.call_finished(raced_call())
    assert answered(await page_of(alone)) == 1
    assert answered(await page_of(other)) is None


@pytest.mark.parametrize(
    ("which", "spoil"),
    [
        ("*.series", Path.unlink),
        ("*.series", lambda path: path.write_bytes(b"no JSON\n")),
        ("*.cells", Path.unlink),
        ("*.cells", lambda path: (path.unlink(), path.touch())),
    ],
)
async def test_files_of_another_worker_that_are_spoiled_or_gone_leave_out_only_its_figures(
    which: str, spoil: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    other = knowing("llama")
    other.call_finished(raced_call())
    for path in files(tmp_path, which):
        spoil(path)
    metrics = knowing("llama")
    metrics.call_finished(raced_call())
    assert answered(await page_of(metrics)) == 1


async def test_what_does_not_fit_is_not_counted_and_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    monkeypatch.setattr(series, "NOWHERE", 104)
    metrics = knowing("a", "b", "c", "d", "e", "f")
    for model in "abcdef":
        for _ in range(2):
            metrics.call_finished(raced_call(model=model, ttft_ms=200.0, cost_usd=None))
    page = await page_of(metrics)
    counts = [at(page, "holeshot_ttft_seconds_count", model=model) for model in "abcdef"]
    assert [count for count in counts if count is not None] == [2, 2, 2, 2]


async def test_calls_go_on_while_a_page_is_made() -> None:
    metrics = knowing("llama")
    for number in range(500):
        metrics.attempt_ended("llama", won(new_id(), deployment=f"groq/{number}"))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    serving = asyncio.create_task(others())
    await metrics.render()
    serving.cancel()
    assert turns > 500 * 5 / 32


def test_losing_an_attempt_is_an_outcome_of_its_own(metrics: Metrics) -> None:
    metrics.attempt_ended("llama", lost(new_id(), outcome=Outcome.SUPERSEDED))
    assert 'outcome="superseded"' in asyncio.run(metrics.render())[0].decode()


async def test_gaps_keep_their_buckets_and_their_sum_is_the_time_between_first_and_last_chunk(metrics: Metrics) -> None:
    gaps = Gaps()
    gaps_s = (0.0009, 0.004, 0.011, 0.011, 0.05, 0.7, 12.0)
    for gap_s in gaps_s:
        gaps.add(gap_s)
    figures = gaps.figures()
    assert figures is not None
    total_ms = sum(gaps_s) * 1000
    metrics.attempt_ended(
        "llama", won(new_id(), ttft_ms=100.0, last_token_ms=100.0 + total_ms, chunks=8, itl=figures.counts)
    )
    page = await page_of(metrics)
    name, label = "holeshot_gap_seconds", {"deployment": "groq/llama"}
    for bound in GAP_BUCKETS:
        shorter = sum(gap_s <= bound for gap_s in gaps_s)
        assert at(page, f"{name}_bucket", le=repr(bound), **label) == shorter, bound
    assert at(page, f"{name}_bucket", le="+Inf", **label) == at(page, f"{name}_count", **label) == len(gaps_s)
    assert at(page, f"{name}_sum", **label) == pytest.approx(sum(gaps_s))


def test_each_bound_of_gaps_is_an_edge_of_the_ledgers_buckets() -> None:
    assert pytest.approx([edge_s(number) for number in GAP_EDGES]) == list(GAP_BUCKETS)


async def test_the_sum_of_gaps_counts_those_that_are_kept_of_a_very_long_answer(metrics: Metrics) -> None:
    metrics.attempt_ended("llama", won(new_id(), ttft_ms=0.0, last_token_ms=8000.0, chunks=801, itl={"0": 400}))
    page = await page_of(metrics)
    assert at(page, "holeshot_gap_seconds_sum", deployment="groq/llama") == pytest.approx(4.0)


async def test_what_a_client_used_is_counted_and_calls_without_a_key_are_anonymous(metrics: Metrics) -> None:
    metrics.call_finished(raced_call(client="a", prompt_tokens=7, completion_tokens=11, cost_usd=0.5))
    metrics.call_finished(raced_call(client="a", status_code=502))
    metrics.call_finished(raced_call(client=None))
    page = await page_of(metrics)
    assert at(page, "holeshot_client_calls_total", client="a", status="200") == 1
    assert at(page, "holeshot_client_calls_total", client="a", status="502") == 1
    assert at(page, "holeshot_client_calls_total", client="anonymous", status="200") == 1
    assert at(page, "holeshot_client_tokens_total", client="a", kind="prompt") == 7
    assert at(page, "holeshot_client_tokens_total", client="a", kind="completion") == 11
    assert at(page, "holeshot_client_cost_usd_total", client="a") == 0.5


async def test_a_stream_that_broke_is_no_answer(metrics: Metrics) -> None:
    metrics.call_finished(raced_call(client="a", status_code=200, error_kind="disconnected"))
    page = await page_of(metrics)
    assert at(page, "holeshot_calls_total", model="llama", mode="auto", status="broken") == 1
    assert at(page, "holeshot_client_calls_total", client="a", status="broken") == 1
    assert at(page, "holeshot_client_calls_total", client="a", status="200") is None


async def test_what_an_audited_loser_costs_after_its_call_is_counted_too(metrics: Metrics) -> None:
    metrics.call_finished(raced_call(client="a", cost_usd=0.5, duplicate_cost_usd=0.0))
    late = attempt("call", client="a", outcome=Outcome.SUPERSEDED, cost_usd=0.25)
    metrics.attempt_audited("llama", late, 0.25)
    metrics.attempt_audited("llama", attempt("call", client="a", outcome=Outcome.FAILED, cost_usd=0.125), 0.0)
    page = await page_of(metrics)
    assert at(page, "holeshot_cost_usd_total", model="llama", share="answer") == 0.625
    assert at(page, "holeshot_cost_usd_total", model="llama", share="duplicate") == 0.25
    assert at(page, "holeshot_client_cost_usd_total", client="a") == 0.875


async def test_a_cache_that_an_audited_loser_s_call_lost_is_not_paid_twice(metrics: Metrics) -> None:
    metrics.attempt_audited("llama", attempt("call", outcome=Outcome.SUPERSEDED, cost_usd=0.25), 0.75)
    page = await page_of(metrics)
    assert at(page, "holeshot_cost_usd_total", model="llama", share="duplicate") == 0.25


async def test_clients_beyond_the_first_thousand_share_their_series() -> None:
    metrics = knowing("llama")
    for number in range(MOST_CLIENTS + 3):
        for _ in range(2):
            metrics.call_finished(raced_call(client=f"c{number}"))
    page = await page_of(metrics)
    assert at(page, "holeshot_client_calls_total", client="c0", status="200") == 2
    assert at(page, "holeshot_client_calls_total", client=f"c{MOST_CLIENTS - 1}", status="200") == 2
    assert at(page, "holeshot_client_calls_total", client=OTHER_CLIENTS, status="200") == 6
    assert at(page, "holeshot_client_calls_total", client=f"c{MOST_CLIENTS}", status="200") is None


async def test_a_series_that_is_no_longer_read_is_no_longer_on_the_page(metrics: Metrics) -> None:
    found: dict[tuple[str, ...], float] = {("a",): 1.0, ("b",): 2.0}
    metrics.read_series(Family("x", "X.", "gauge", ("of",)), lambda: found)
    assert at(await page_of(metrics), "x", of="a") == 1.0
    del found["a",]
    page = await page_of(metrics)
    assert (at(page, "x", of="a"), at(page, "x", of="b")) == (None, 2.0)
    found["a",] = 3.0
    assert at(await page_of(metrics), "x", of="a") == 3.0


@pytest.mark.parametrize(("merge", "expected"), [("sum", 5.0), ("min", 2.0), ("max", 3.0)])
async def test_workers_gauges_are_put_together_as_their_family_says(
    merge: Literal["sum", "min", "max"], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    workers = [knowing("llama") for _ in range(3)]
    family = Family("x", "X.", "gauge", merge=merge)
    for worker, number in zip(workers, (2.0, 3.0, None), strict=True):
        known = {} if number is None else {(): number}
        worker.read_series(family, lambda known=known: known)  # type: ignore[misc]  # a default argument binds it
        await page_of(worker)
    assert at(await page_of(workers[0]), "x") == expected


async def test_a_page_of_thousands_of_models_is_made_in_parts_of_which_none_is_long() -> None:
    metrics = Metrics(dict)
    of_models = Family("of_models", "One for each model.", "gauge", ("model",))
    metrics.read_many(of_models, lambda: (((f"model-{number}",), 1.0) for number in range(20_000)))
    parts, _ = await metrics.parts()
    page, _ = await metrics.render()
    assert b"".join(parts) == page
    assert len(page) > 500_000
    assert max(map(len, parts)) < 64 * 1024
