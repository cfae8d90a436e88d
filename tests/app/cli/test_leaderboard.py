"""holeshot leaderboard, asking over a real socket."""

import json
from collections.abc import Callable
from typing import Any

from typer.testing import Result

Holeshot = Callable[..., Result]

ROW = {
    "deployment": "groq/x",
    "n": 12,
    "events": 9,
    "censored": 3,
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


def test_json_is_what_the_gateway_sent(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS

    assert json.loads(holeshot("leaderboard", "m", "--json", HOLESHOT_URL=f"{site.url}/leaderboard").stdout) == MODELS


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

    assert "does not answer as a gateway does" in holeshot("leaderboard", "--url", site.url).stderr
