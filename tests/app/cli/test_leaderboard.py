"""holeshot leaderboard, asking a gateway over a real socket, or the ledger."""

import asyncio
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from gateway.core.calls import CallRecord
from gateway.ledger import Ledger
from tests.unit.ledger.records import call, new_id, won

Holeshot = Callable[..., Result]

ROW = {
    "deployment": "groq/x",
    "n": 12,
    "n_first_token": 9,
    "n_censored": 3,
    "ttft_p50_ms": 212.4,
    "error_rate": 0.0833,
    "new": 1,
}
MODELS = {"models": [{"model": "m", "deployments": [ROW, {"deployment": "slow/x", "ttft_p50_ms": None}]}]}


def test_each_model_is_a_table_of_what_the_gateway_sent(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS

    result = holeshot("leaderboard", "--url", site.url)

    assert result.exit_code == 0
    for words in ("m", "groq/x", "212", "8.3%", "slow/x", "–"):  # noqa: RUF001 - the dash the tables print
        assert words in result.output
    assert "errors" in result.output
    assert "won" not in result.output  # nobody sent it


def test_models_of_which_nothing_is_known_are_one_line_below_the_others(holeshot: Holeshot, site: Any) -> None:
    unasked = {"deployment": "groq/embed", "state": "ok", "n": 0, "ttft_p50_ms": None, "error_rate": None}
    silent = {"model": "embed", "deployments": [unasked]}
    broken = {"model": "gone", "deployments": [unasked | {"deployment": "groq/gone", "state": "out"}]}
    site.answers["/leaderboard"] = {"models": [silent, *MODELS["models"], broken]}
    output = holeshot("leaderboard", "--url", site.url).output
    assert "groq/x" in output
    assert "groq/gone" in output
    assert "groq/embed" not in output
    assert "nothing measured yet: embed" in output.splitlines()

    site.answers["/leaderboard"] = {"models": [silent]}
    assert "groq/embed" in holeshot("leaderboard", "--url", site.url).output


def full_row(name: str, **changed: object) -> dict[str, object]:
    """A row as a gateway sends it after many calls."""
    row = {
        "rank": 1,
        "deployment": name,
        "state": "ok",
        "n": 12_345,
        "n_first_token": 12_000,
        "n_censored": 345,
        "is_biased": False,
    }
    row |= {"ttft_p50_ms": 212.4, "ttft_p50_low_ms": 200.1, "ttft_p50_high_ms": 220.9, "ttft_p95_ms": 2310.0}
    row |= {
        "ttft_p99_ms": 4410.0,
        "decode_mean_tps": 112.3,
        "e2e_mean_tps": 81.4,
        "win_share": 0.312,
        "error_rate": 0.0833,
    }
    return row | {"n_rate_limited": 17, "in_flight": 3, "is_buffered": False} | changed


FULL = {
    "model": "m",
    "window_s": 600.0,
    "deployments": [
        full_row("together/meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        full_row("groq/x", rank=2, state="cooling 12.5 s", is_biased=True),
        full_row("dead/x", rank=None, state="out", ttft_p50_ms=None, ttft_p95_ms=None, reason="the key is refused"),
    ],
}
ALWAYS = ("#", "deployment", "p50", "p95", "errors", "429s", "state")


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120])
def test_what_matters_is_there_on_every_screen_and_a_note_names_the_rest(
    holeshot: Holeshot, site: Any, width: int
) -> None:
    site.answers["/leaderboard"] = {"models": [FULL]}

    lines = holeshot("leaderboard", "--url", site.url, COLUMNS=str(width)).output.splitlines()

    assert max(map(len, lines)) <= width
    heads = next(line for line in lines if " deployment " in line).replace("95 %", "95%").split()
    assert lines[1].strip() == ""  # the title is one line
    notes = " ".join(" ".join(lines).split()).replace("95 %", "95%")
    left_out = notes.partition("also shows: ")[2].partition(" ?")[0].split(", ") if "also shows" in notes else []
    everything = "# deployment n cancelled p50 95% p95 p99 tok/s e2e won errors 429s state now"
    assert set(ALWAYS) <= set(heads)
    assert sorted([*heads, *left_out]) == sorted(everything.split())
    cells = next(line for line in lines if "groq/x" in line).split()
    assert {"2", "212?", "2310?", "8.3%", "17", "cooling"} <= set(cells)


@pytest.mark.parametrize("width", [80, 130])
def test_each_deployment_is_one_line_with_its_counts(holeshot: Holeshot, site: Any, width: int) -> None:
    names = ("sim-swift/demo-chat", "sim-slow/demo-chat")
    rows = [full_row(each, n=10, ttft_p50_low_ms=1076.0, ttft_p50_high_ms=1810.0, in_flight=0) for each in names]
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": [*rows, full_row("a/x", n=9)]}]}

    lines = holeshot("leaderboard", "--url", site.url, COLUMNS=str(width)).output.splitlines()

    heads = next(line for line in lines if " deployment " in line).split()
    assert {"n", "cancelled"} <= set(heads)
    assert [line.split()[1] for line in lines[4:7]] == [*names, "a/x"]
    assert ("1076–1810" in lines[4]) is (width > 80)  # noqa: RUF001 - as printed


def test_rows_are_numbered_in_the_order_in_which_they_stand(holeshot: Holeshot, site: Any) -> None:
    rows = [full_row(f"{name}/x", rank=rank) for name, rank in (("a", 1), ("b", 3), ("c", 2), ("d", None), ("e", 4))]
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": rows}]}

    lines = holeshot("leaderboard", "--url", site.url).output.splitlines()

    numbered = [line.split()[:2] for line in lines if "/x" in line]
    assert numbered == [["1", "a/x"], ["2", "b/x"], ["3", "c/x"], ["4", "d/x"], ["5", "e/x"]]


def test_figures_that_may_be_too_high_are_marked_and_the_mark_is_explained_once(holeshot: Holeshot, site: Any) -> None:
    rows = [full_row("a/x", is_biased=True), full_row("b/x", is_biased=True, ttft_p50_ms=None), full_row("c/x")]
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": rows}]}

    output = holeshot("leaderboard", "--url", site.url).output

    assert output.count("212?") == 1
    assert output.count("? may be too high") == 1


def test_an_interval_without_an_upper_end_is_explained_once_and_apart_from_figures_that_may_be_too_high(
    holeshot: Holeshot, site: Any
) -> None:
    rows = [full_row("a/x", ttft_p50_high_ms=None), full_row("b/x", ttft_p50_high_ms=None), full_row("c/x")]
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": rows}]}

    output = holeshot("leaderboard", "--url", site.url, COLUMNS="130").output

    assert output.count("200–?") == 2  # noqa: RUF001 - as printed
    assert output.count("without a known upper end") == 1
    assert "may be too high" not in output


def test_a_mark_that_no_figure_has_is_not_explained(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": [full_row("a/x")]}]}

    output = holeshot("leaderboard", "--url", site.url, COLUMNS="130").output
    assert ("may be" in output, "upper end" in output) == (False, False)


def test_answers_out_of_a_buffer_have_no_decode_speed_and_say_why(holeshot: Holeshot, site: Any) -> None:
    rows = [full_row("a/x", is_buffered=True)]
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": rows}]}

    output = holeshot("leaderboard", "--url", site.url).output

    assert "112.3*" in output
    assert "* not the decode speed" in output


def test_each_state_but_ok_has_its_reason(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = {"models": [FULL]}

    lines = holeshot("leaderboard", "--url", site.url).output.splitlines()

    assert lines[-4].startswith("? ")  # the one that is ok has no line
    assert lines[-3] == "groq/x: cooling 12.5 s, it was rate-limited"  # what the state means
    assert lines[-2] == "dead/x: out, the key is refused"  # what the gateway says


def test_before_the_first_figure_every_heading_has_its_column(holeshot: Holeshot, site: Any) -> None:
    rows = [{"deployment": "a/x", "n": 0, "n_censored": 1, "is_biased": True, "state": "ok", "in_flight": 0}]
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": rows}]}

    lines = holeshot("leaderboard", "--url", site.url, COLUMNS="80").output.splitlines()

    heads, _, row = (line.split() for line in lines[2:5])
    assert heads == ["#", "deployment", "n", "cancelled", "p50", "p95", "errors", "429s", "state", "now"]
    assert len(row) == len(heads)


def test_json_is_what_the_gateway_sent(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS

    for path in ("/leaderboard", "/v1/"):  # the second as clients have it
        assert json.loads(holeshot("leaderboard", "m", "--json", HOLESHOT_URL=f"{site.url}{path}").stdout) == MODELS


def test_an_unknown_model_is_answered_with_those_there_are(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS

    result = holeshot("leaderboard", "n", "--url", site.url)

    assert result.exit_code == 1
    assert result.stderr == "holeshot: no model 'n' on the leaderboard; there are: m\n"


def test_a_key_is_sent_and_a_missing_one_is_explained(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS
    site.key = "hs-secret"

    assert "--key or HOLESHOT_KEY" in holeshot("leaderboard", "--url", site.url).stderr
    assert holeshot("leaderboard", "--url", site.url, HOLESHOT_KEY="hs-secret").exit_code == 0


@pytest.mark.parametrize("key", ["hs-secret\r", "hs-secret\n", "hs-\u0435", "“hs-secret”", "hs-sécret"])
def test_a_key_that_cannot_be_sent_is_one_line_without_it(holeshot: Holeshot, site: Any, key: str) -> None:
    site.answers["/leaderboard"] = MODELS

    result = holeshot("leaderboard", "--url", site.url, HOLESHOT_KEY=key)

    assert (result.exit_code, site.asked) == (1, [])
    assert result.stderr == (
        "holeshot: the key has a character that no key has, such as a line break or a curly quote: look where it is"
        " set\n"
    )


@pytest.mark.parametrize(
    "url",
    [
        *("http://[::1", "http://127.0.0.1:70000", "http://127.0.0.1/ä", "127.0.0.1:4000"),
        *("http://\u0435.example", f"http://{'a' * 70}.example"),
    ],
)
def test_an_address_that_is_none_is_one_line(holeshot: Holeshot, url: str) -> None:
    result = holeshot("leaderboard", "--url", url)

    assert result.exit_code == 1
    assert result.stderr == f"holeshot: '{url}/leaderboard' is no http:// or https:// address\n"


@pytest.mark.parametrize("url", ["http://me:s3cret@127.0.0.1:1", "http://me:s3/cret@h:x", "ftp://me:s3cret@h"])
@pytest.mark.parametrize("command", [["leaderboard"], ["tail"], ["explain", "m"]], ids=" ".join)
def test_a_password_in_the_address_is_refused_unshown(holeshot: Holeshot, command: list[str], url: str) -> None:
    result = holeshot(*command, "--url", url)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "holeshot: --url has a user or a password, which a gateway does not take: give its key with --key\n"
    )


def test_no_gateway_is_one_line_that_says_what_to_do(holeshot: Holeshot, site: Any) -> None:
    site.close_url = site.url.rsplit(":", 1)[0] + ":1"

    result = holeshot("leaderboard", "--url", site.close_url)

    assert result.exit_code == 1
    assert "start one with `holeshot serve`" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_empty_leaderboard_says_so(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = {"models": []}

    assert "fills with calls" in holeshot("leaderboard", "--url", site.url).output


def test_something_else_on_the_port_is_not_taken_for_a_gateway(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = ["surprise"]

    assert "does not answer like a Holeshot gateway" in holeshot("leaderboard", "--url", site.url).stderr


def test_since_answers_from_the_ledger_without_a_gateway(
    holeshot: Holeshot, tmp_path: Path, migrated_file: Path
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    now = datetime.now(UTC)
    shutil.copy(migrated_file, tmp_path / "ledger.db")
    asyncio.run(
        _store(url, tmp_path, [_call(now - timedelta(minutes=30), ttft_ms) for ttft_ms in (100.0, 200.0, 900.0)])
    )

    told = json.loads(holeshot("leaderboard", "--since", "1h", "--json", HOLESHOT_DATABASE_URL=url).stdout)

    (board,) = told["models"]
    assert (board["model"], board["window_s"]) == ("llama", 3600)
    (row,) = board["deployments"]
    assert (row["rank"], row["n"], row["state"]) == (1, 3, None)
    assert row["ttft_p50_ms"] == pytest.approx(200, rel=0.05)
    table = holeshot("leaderboard", "llama", "--since", "1h", HOLESHOT_DATABASE_URL=url).stdout
    assert "over 60 min" in table
    assert "state" not in table
    assert holeshot("leaderboard", "llama", "--since", "10m", HOLESHOT_DATABASE_URL=url).exit_code == 1


@pytest.mark.parametrize(
    ("since", "words"), [("yesterday", "write 90s, 10m, 1h or 2d"), ("99999999d", "is more than ten years")]
)
def test_a_length_of_time_that_is_none_is_refused(holeshot: Holeshot, since: str, words: str) -> None:
    result = holeshot("leaderboard", "--since", since)

    assert result.exit_code == 2
    assert words in result.stderr


def _call(at: datetime, ttft_ms: float) -> CallRecord:
    return call(won(new_id(), started_at=at, ttft_ms=ttft_ms), started_at=at)


async def _store(url: str, folder: Path, records: list[CallRecord]) -> None:
    ledger = Ledger(url, folder / "spool", "w1")
    for record in records:
        ledger.call_finished(record)
    await ledger.flush()
    await ledger.close()


def test_times_to_the_first_sentence_are_shown_where_there_are_any(holeshot: Holeshot, site: Any) -> None:
    spoken = {"n_sentence": 9, "sentence_p50_ms": 611.4, "sentence_p95_ms": 980.0, "is_sentence_biased": True}
    rows = [full_row("a/x", **spoken), full_row("b/x", sentence_p50_ms=None, sentence_p95_ms=None)]
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": rows}]}

    output = holeshot("leaderboard", "--url", site.url, COLUMNS="200").output

    assert "sentence p95" in output
    assert {"611?", "980?", "212"} <= set(output.split())
    site.answers["/leaderboard"] = {"models": [{"model": "m", "deployments": rows[1:]}]}
    assert "sentence" not in holeshot("leaderboard", "--url", site.url, COLUMNS="200").output
