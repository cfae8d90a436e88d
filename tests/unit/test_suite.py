"""``make suite``: each file of tests is in one part, what fails or ends its process is told, defects have places."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.defects.run import DEFECTS, Defect
from tests.suite import LAST_FAILED, PARTS, dealt, found, options

ROOT = Path(__file__).parents[2]
FAILS = "def test_no():\n    print('said before')\n    assert [1, 2] == [1, 3]\n"
ENDS = "import os\ndef test_ends():\n    os._exit(7)\n"
PASSES = "async def test_yes():\n    pass\n"
RUN = "import pathlib, sys; from tests.suite import main; sys.exit(main([sys.argv[1]], pathlib.Path(sys.argv[2])))"


def test_each_file_of_tests_is_in_one_part() -> None:
    parts = dealt([*found(options()["testpaths"])], PARTS)
    files = [file for part in parts for file in part]
    there = {file for room in options()["testpaths"] for file in (ROOT / room).rglob("test_*.py")}
    apart = {file for file in there if {"browser", "oidc", "clickhouse"} & {*file.relative_to(ROOT).parts[1:-1]}}
    assert len(files) == len(set(files))
    assert set(files) == there - apart
    assert len(parts) == PARTS


def test_what_fails_and_what_ends_its_process_is_told_and_the_others_run(tmp_path: Path) -> None:
    for name, text in (("fails", FAILS), ("ends", ENDS), ("passes", PASSES)):
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")  # by which pytest knows its options
    told = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), str(tmp_path / "cache")],
        cwd=ROOT,
        env={**{name: value for name, value in os.environ.items() if name != "COSTS_INTO"}, "JOBS": "2"},  # of its own
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1, told
    assert "test_ends.py: ENDED WITH 7, so not all of it has run" in told.stdout
    assert "test_fails.py: FAILED" in told.stdout
    assert "assert [1, 2] == [1, 3]" in told.stdout
    assert "said before" in told.stdout
    assert "test_passes.py: passed" in told.stdout
    assert "test_fails.py::test_no" in (tmp_path / "cache" / LAST_FAILED).read_text()


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_each_defect_has_one_place_in_the_product_and_its_finders(defect: Defect) -> None:
    """``make test WHAT=defects`` puts it in: who changes the line writes the defect again."""
    assert (ROOT / defect.file).read_text(encoding="utf-8").count(defect.right) == 1
    assert [name for name in defect.finders if not (ROOT / name).exists()] == []
