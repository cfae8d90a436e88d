"""Every row of the APIs answers as it was recorded on 7d335f51: statuses, headers, errors. What differs was wanted."""

from pathlib import Path

import pytest

from tests.app.gateway.process import started
from tests.app.gateway.recorded.asked import ROWS, Row, of_row
from tests.app.gateway.recorded.recording import answers, configured, read, upstream
from tests.support.searched import some

ALWAYS = [row for row in ROWS if row.name in {"chat streamed", "embeddings"}]


@pytest.mark.parametrize("row", some(ROWS, ALWAYS, 2), ids=lambda row: row.name)
async def test_a_row_answers_as_it_was_recorded(row: Row, tmp_path: Path) -> None:
    async with upstream() as base, started(configured(row, tmp_path, base), tmp_path) as gateway:
        found = await answers(gateway.url, row, list(of_row(row)))
    recorded = read(row)
    assert {name: answer for name, answer in found.items() if recorded.get(name) != answer} == {}
    assert recorded.keys() == found.keys()
