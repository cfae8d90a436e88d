"""Writes docs/reference/metrics.md, and the alert rules of config/monitoring/ with their tests."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

from tools.monitoring.alerts import ALERTS
from tools.monitoring.metrics_page import page
from tools.monitoring.registry import families
from tools.monitoring.rules import RULES_FILE, rule_tests, rules

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "config/monitoring"
METRICS_PAGE = "docs/reference/metrics.md"


def texts() -> Mapping[str, str]:
    """Return the files, by path below the checkout."""
    return {
        METRICS_PAGE: page(asyncio.run(families()), ALERTS),
        f"{FOLDER}/{RULES_FILE}": rules(ALERTS),
        f"{FOLDER}/holeshot.tests.yml": rule_tests(ALERTS),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.monitoring", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is not current")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # no store: hide that
    only_check = parser.parse_args().check
    made = texts()
    stale = [path for path, text in made.items() if not _is_current(ROOT / path, text)]
    for path in stale:
        sys.stdout.write(f"{'not current' if only_check else 'written'}: {path}\n")
        if not only_check:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(made[path], encoding="utf-8")
    if only_check and stale:
        parser.exit(1, "run python -m tools.monitoring\n")


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    main()
