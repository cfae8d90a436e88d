"""Which files are checked as on macOS: all whose types may differ there."""

import re
from pathlib import Path

import mypy
import pytest

from tools.darwin import PRODUCT, files, modules_that_differ

STUBS = Path(str(mypy.__file__)).parent / "typeshed" / "stdlib"


def test_the_modules_that_differ_are_those_of_typeshed() -> None:
    differing = modules_that_differ(STUBS)
    assert {"os", "sys", "socket", "signal", "fcntl", "resource", "select", "ctypes", "time", "errno"} <= differing
    assert not {"re", "pathlib", "json", "asyncio", "threading"} & differing


@pytest.mark.parametrize(
    ("source", "is_checked"),
    [
        ("import os\n\ncores = os.sched_getaffinity(0)", True),
        ("from os import sched_getaffinity", True),
        ("def late() -> None:\n    import fcntl", True),
        ("import re", False),
    ],
)
def test_a_file_is_checked_that_imports_one(tmp_path: Path, source: str, is_checked: bool) -> None:
    for folder in PRODUCT:
        (tmp_path / folder).mkdir()
    (tmp_path / "gateway" / "module.py").write_text(source)
    assert files(tmp_path) == (["gateway/module.py"] if is_checked else [])


def test_every_file_that_names_a_platform_is_checked() -> None:
    root = Path(__file__).parents[2]
    named = re.compile(r"\bsys\.platform\b|\bplatform\.system\b")
    naming = {
        str(path.relative_to(root))
        for folder in PRODUCT
        for path in (root / folder).rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
    }
    assert naming - set(files()) <= {"gateway/cli/main.py"}  # which prints its name
