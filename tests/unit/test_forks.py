"""Files of tests in several processes: what each test says arrives, once, and a process that ends fails its test."""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run files of tests in two processes; return the exit code, and what was printed."""

    def files(*arguments: str, **texts: str) -> tuple[int, str]:
        for name, text in texts.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            "/dev/null",
            "--rootdir",
            str(tmp_path),
            "-p",
            "no:cacheprovider",
        ]
        command += ["-p", "no:xdist", "-p", "tests.forks", "--numprocesses", "2", *arguments, str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return files


def counts(printed: str) -> Mapping[str, int]:
    last = printed.strip().splitlines()[-1]
    return {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last)}


SHARED = """
import os, pytest
@pytest.fixture(scope="session")
def server():
    yield os.getpid()
    print("ended", os.getpid())
@pytest.mark.parametrize("number", range(20))
def test_of_a_file_runs_in_one_process(server, number):
    seen.add(os.getpid())
    assert seen == {server}
seen = set()
"""


def test_each_test_is_told_once_and_a_file_runs_in_one_process(run: Run) -> None:
    code, printed = run(a=SHARED, b=SHARED, c=SHARED)

    assert (code, counts(printed)["passed"]) == (0, 60), printed


def test_failures_skips_and_output_are_told_as_by_one_process(run: Run) -> None:
    failing = "import pytest\ndef test_no():\n  print('said before')\n  assert [1, 2] == [1, 3]\n"
    skipped = "import pytest\n@pytest.mark.skip(reason='not here')\ndef test_skipped(): pass\n"
    code, printed = run("-rs", a=failing, b=skipped, c="def test_yes(): pass")

    assert code == 1
    assert {**counts(printed)} | {"failed": 1, "passed": 1, "skipped": 1} == counts(printed)
    assert "assert [1, 2] == [1, 3]" in printed
    assert "said before" in printed
    assert "not here" in printed


def test_a_test_that_ends_its_process_fails_and_others_run(run: Run) -> None:
    code, printed = run(a="import os\ndef test_ends(): os._exit(7)", b="def test_b(): pass", c="def test_c(): pass")

    assert code == 1
    assert {**counts(printed)} | {"failed": 1} == counts(printed)
    assert "its process has ended with 7" in printed


def test_after_the_first_failure_no_more_begin_where_that_was_asked(run: Run) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(500))\ndef test_many(n): pass\n"
    code, printed = run("-x", a="def test_no(): assert 0", **{f"m{number}": many for number in range(9)})

    assert code == 1
    assert counts(printed)["failed"] == 1
    assert counts(printed).get("passed", 0) < 9 * 500


def test_what_a_plugin_raises_ends_the_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_runtest_protocol(item): raise OSError('of a plugin')")
    code, printed = run(a="def test_a(): pass", b="def test_b(): pass")

    assert code == pytest.ExitCode.INTERNAL_ERROR
    assert "of a plugin" in printed
