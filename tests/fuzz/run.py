"""Fuzz both parsers, guided by what of their code an input reaches: ``make test WHAT=fuzz``, or ``run.py 600 http2``.

What is found is written to var/fuzz, and said; so are the inputs that reach something new, from which the next run goes
on. The parts written in C and Rust (httptools, and jh2's tables) are run, but do not guide.
"""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TARGETS = ("http1", "http2")
LONGEST_BYTES = 70_000
_FIGURES = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_COVERED = re.compile(r"cov: (\d+)")


def fuzz(target: str, seconds: int) -> bool:
    """Fuzz ``target`` in a process of its own, print a line, and return whether nothing was found."""
    found = ROOT / "var" / "fuzz" / target
    found.mkdir(parents=True, exist_ok=True)
    before = set(found.glob("*-*"))  # crash-…, timeout-…, oom-…
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, __file__, "--inside", target, str(seconds)]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    new = sorted(set(found.glob("*-*")) - before)
    runs = _FIGURES.search(done.stderr)
    covered = _COVERED.findall(done.stderr)
    figures = f"{runs.group(1) if runs else '?'} inputs, {covered[-1] if covered else '?'} branches"
    if done.returncode == 0:
        _say(f"{target}: nothing found in {seconds} s ({figures})")
        return True
    _say(done.stderr[-4000:])
    _say(f"{target}: {'found ' + ', '.join(map(str, new)) if new else 'it could not be run'} ({figures})")
    return False


def run_inside(target: str, seconds: int) -> None:
    """Fuzz in this process; it does not return."""
    atheris = importlib.import_module("atheris")  # not among what the other tests need
    with atheris.instrument_imports(include=["providers.http"]):
        driver = importlib.import_module(f"tests.fuzz.{target}_target")
    corpus = ROOT / "var" / "fuzz" / target / "corpus"
    corpus.mkdir(exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_BYTES}",
        f"-artifact_prefix={corpus.parent}/",
        "-timeout=10",
        "-rss_limit_mb=1024",
        "-print_final_stats=1",
        f"-dict={HERE / 'seeds' / target}.dict",
    ]
    atheris.Setup([__file__, *options, str(corpus), str(HERE / "seeds" / target)], driver.drive)
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--inside"]:
        run_inside(arguments[1], int(arguments[2]))
    seconds = int(arguments[0]) if arguments else 60
    targets = arguments[1:] or TARGETS
    whole = [fuzz(target, seconds) for target in targets]
    return 0 if all(whole) else 1


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
