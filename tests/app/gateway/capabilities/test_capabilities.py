"""Each yes of docs/reference/capabilities.md is tried over HTTP. ``HOLES=1`` tries what is not there yet as well."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.app.gateway.capabilities.asked import SENDS
from tests.app.gateway.capabilities.trials import TRIALS, cells_of
from tests.patience import PATIENCE_S
from tools.documentation.capabilities import ASKED, CAPABILITIES, HOLE, MOST_WORDS

TRIES_HOLES = bool(os.environ.get("HOLES"))
HOLE_S = 8.0  # then nothing comes of it


@pytest.fixture(autouse=True)
def noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a silence be long that is short."""
    monkeypatch.setattr("gateway.racing.timeouts.UNKNOWN_S", 0.2)
    monkeypatch.setattr("gateway.racing.timeouts.LEAST_S", 0.2)
    monkeypatch.setattr("gateway.racing.timeouts.LONG_S", 0.1)


@pytest.mark.parametrize("name", CAPABILITIES)
async def test_each_yes_is_seen(folder: Path, name: str) -> None:
    capability, trial = CAPABILITIES[name], TRIALS[name]
    kinds = [asked for asked in ASKED if asked not in capability.no or (TRIES_HOLES and capability.is_hole(asked))]
    async with cells_of(name, folder, kinds) as cells:
        limit_s = HOLE_S if TRIES_HOLES else PATIENCE_S
        tried = (asyncio.wait_for(trial.see(cell), limit_s) for cell in cells)
        ends = await asyncio.gather(*tried, return_exceptions=True)
    failed = {cell.asked: repr(end) for cell, end in zip(cells, ends, strict=True) if end is not None}
    assert failed.keys() == {asked for asked in kinds if capability.is_hole(asked)}, failed


def test_each_capability_has_a_trial_and_each_question_is_asked() -> None:
    assert CAPABILITIES.keys() == TRIALS.keys()
    assert ASKED.keys() == SENDS.keys()


def test_a_reason_has_few_words() -> None:
    for capability in CAPABILITIES.values():
        assert capability.no.keys() <= ASKED.keys()
        assert all(len(reason.removeprefix(HOLE).split()) > 0 for reason in capability.no.values())
        assert all(len(reason.split()) <= MOST_WORDS for reason in capability.no.values()), capability
