"""Commands print this, to people and to programs, and end with this code: ``printed.txt``."""

from pathlib import Path

import pytest

from tests.support import told
from tests.unit.cli.printed import FILE, said_of


@pytest.mark.parametrize("case", told.cases(FILE), ids=str)
def test_it_is_printed(case: told.Case, tmp_path: Path) -> None:
    told.check(case, said_of(case, tmp_path))
