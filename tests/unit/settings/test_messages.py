"""What is wrong or doubtful in a configuration is said in these words: ``messages.txt``, all of them in one place."""

from pathlib import Path

import pytest

from tests.support import told
from tests.unit.settings.messages import FILE, said_of


@pytest.mark.parametrize("case", told.cases(FILE), ids=str)
def test_it_is_said(case: told.Case, tmp_path: Path) -> None:
    told.check(case, said_of(case, tmp_path))
