"""What is wrong or doubtful in a configuration is said in these words: ``messages.txt``, all of them in one place."""

from pathlib import Path

import pytest

from tests.unit.settings.messages import FILE, SECRET, Case, read, said_of, with_open_parts

CASES = [case for _, cases in read(FILE.read_text(encoding="utf-8")) for case in cases]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_said(case: Case, tmp_path: Path) -> None:
    said = said_of(case, tmp_path)

    assert with_open_parts(said, case.said) == case.said
    assert SECRET not in "\n".join(said)
