"""Rounds that are patient: on a busy machine they may take longer than they are allowed."""

import pytest

from gateway.steering import redis_board
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def patient_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_board, "REDIS_TIMEOUT_S", PATIENCE_S)
