"""Runs files of tests in several processes: ``python -m tests.suite [FOLDERS]``, which is ``make suite``.

The files are dealt out in parts. Each part is a run of pytest of its own, in a fork of this process, which has imported
what most tests import: so each file is imported and collected once, and nothing of a test is told from one process to
another. ``JOBS`` run at once; what one of them prints is printed at its end.
"""

import gc
import json
import os
import shutil
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from gateway.core.processes import Lifeline

ROOT = Path(__file__).parents[1]
PARTS = 16  # each starts servers of its own where it needs them; fewer would end less evenly
COMMON = "tests/app/gateway/races/test_explain.py"  # a file that imports what most tests import
SAYS_S = 20.0  # between two lines of progress
LAST_FAILED = Path("v/cache/lastfailed")  # in the folder of pytest's cache


def options() -> dict[str, Any]:
    """Return those of pytest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(settings["tool"]["pytest"]["ini_options"])


def found(rooms: Sequence[str]) -> Iterator[Path]:
    """Yield the files of tests in folders, as pytest finds them."""
    skipped = {name for name in options()["norecursedirs"] if not name.startswith(".")}
    for room in rooms:
        path = ROOT / room
        files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
        yield from (file for file in files if skipped.isdisjoint(file.relative_to(path).parts[:-1]))


def dealt(files: Sequence[Path], parts: int) -> list[list[Path]]:
    """Return parts of about as many bytes, each of neighbours: they share what is made once for a folder."""
    sizes = [file.stat().st_size for file in files]
    made: list[list[Path]] = [[] for _ in range(parts)]
    before = 0
    for file, size in zip(files, sizes, strict=True):
        made[int((before + size / 2) / sum(sizes) * parts)].append(file)
        before += size
    return [part for part in made if part]


def main(rooms: Sequence[str], cache: Path) -> int:
    """Run all, and keep in the folder of pytest's cache what has failed; return the exit code."""
    waiting = [*enumerate(dealt([*found(rooms or options()["testpaths"])], PARTS))]
    _import()
    caches = Path(tempfile.mkdtemp())
    lifeline = Lifeline()
    running: dict[int, tuple[Sequence[Path], IO[bytes]]] = {}
    failed = False
    while waiting or running:
        if waiting and len(running) < int(os.environ.get("JOBS") or "4"):
            number, part = waiting.pop(0)
            printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of who writes to it
            pid = os.fork()
            if pid == 0:
                lifeline.grasp()
                sys.exit(_run(part, printed, caches / str(number)))
            running[pid] = part, printed
        else:
            pid, status = _awaited([printed for _, printed in running.values()], len(waiting))
            failed |= status != 0
            _print(os.waitstatus_to_exitcode(status), *running.pop(pid))
    _keep_failed([*caches.glob(f"*/{LAST_FAILED}")], cache / LAST_FAILED)
    shutil.rmtree(caches)
    return int(failed)


def _import() -> None:
    """Import and make what tests have in common, by pytest itself: its plugins come before all else."""
    pytest.main(["--collect-only", "-qqq", str(ROOT / COMMON)])
    from tests.support.ledgers import plain  # noqa: PLC0415 - after its plugins

    plain()
    sys.stdout.flush()
    gc.disable()  # until a part has collected its tests, as tests/conftest.py has it
    gc.freeze()


def _run(part: Sequence[Path], printed: IO[bytes], cache: Path) -> int:
    for stream in (1, 2):
        os.dup2(printed.fileno(), stream)
    return pytest.main(["-p", "tests.costs", "-o", f"cache_dir={cache}", *map(str, part)])


def _awaited(printing: Sequence[IO[bytes]], waiting: int) -> tuple[int, int]:
    """Return the process that ends next, and how; until then say what the running parts have done, by their dots."""
    ended = threading.Event()

    def say() -> None:
        while not ended.wait(SAYS_S):
            tests = sum(os.fstat(printed.fileno()).st_size for printed in printing)
            sys.stdout.write(f"... about {tests:,} tests in the {len(printing)} parts that run; {waiting} parts wait\n")
            sys.stdout.flush()

    saying = threading.Thread(target=say)
    saying.start()
    try:
        return os.wait()
    finally:
        ended.set()
        saying.join()


def _print(code: int, part: Sequence[Path], printed: IO[bytes]) -> None:
    names = " to ".join(os.path.relpath(file, ROOT) for file in dict.fromkeys((part[0], part[-1])))
    how = {0: "passed", 1: "FAILED"}.get(code, f"ENDED WITH {code}, so not all of it has run")
    printed.seek(0)
    sys.stdout.write(f"\n{names}: {how}\n{printed.read().decode(errors='replace')}")
    sys.stdout.flush()
    printed.close()


def _keep_failed(each: Sequence[Path], together: Path) -> None:
    """Have ``pytest --last-failed`` know what has failed in any part."""
    failed = [name for file in each for name in json.loads(file.read_text(encoding="utf-8"))]
    together.parent.mkdir(parents=True, exist_ok=True)
    together.write_text(json.dumps(dict.fromkeys(failed, True)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ROOT / options()["cache_dir"]))
