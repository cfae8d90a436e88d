"""holeshot tail where there is nothing to show."""

from collections.abc import Callable
from typing import Any

from typer.testing import Result

Holeshot = Callable[..., Result]


def test_a_gateway_that_is_away_or_a_model_that_nobody_has_is_a_sentence(holeshot: Holeshot, site: Any) -> None:
    site.answers["/api/leaderboard"] = {"models": [{"model": "chat"}]}
    unknown = holeshot("tail", "--url", site.url, "--model", "nope")
    assert (unknown.exit_code, unknown.stderr) == (1, "holeshot: no model 'nope'; there are: chat\n")
    away = holeshot("tail", "--url", "http://127.0.0.1:9")
    assert away.exit_code == 1
    assert away.stderr.startswith("holeshot: no gateway at http://127.0.0.1:9/api/live")
    assert "holeshot serve" in away.stderr
