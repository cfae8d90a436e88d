"""Writes docs/reference/ from the code, and SQL's comments from a page of it: ``python -m tools.documentation``."""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from tools.documentation import (
    capabilities,
    commands,
    configuration,
    conversations,
    errors,
    events,
    goals,
    http_api,
    ledger_comments,
    ledger_page,
    policy,
    prose,
    vendors,
)

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "docs/reference"


MADE: Mapping[str, Callable[[], str]] = {
    f"{FOLDER}/configuration.md": configuration.page,
    f"{FOLDER}/command-line.md": commands.page,
    f"{FOLDER}/http-api.md": http_api.page,
    f"{FOLDER}/errors.md": errors.page,
    f"{FOLDER}/events.md": events.page,
    f"{FOLDER}/policy.md": policy.page,
    f"{FOLDER}/conversations.md": conversations.page,
    f"{FOLDER}/vendors.md": vendors.page,
    f"{FOLDER}/capabilities.md": capabilities.page,
    f"{FOLDER}/goals.md": goals.page,
    f"{FOLDER}/ledger.md": ledger_page.page,
    "migrations/comments.json": ledger_comments.text,
}


@cache
def pages() -> Mapping[str, str]:
    """Return the text of each file, by its path below the checkout."""
    return {path: make() for path, make in MADE.items()}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.documentation", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is not current")
    only_check = parser.parse_args().check
    stale = [path for path, text in pages().items() if not _is_current(ROOT / path, text)]
    for path in stale:
        sys.stdout.write(f"{'not current' if only_check else 'written'}: {path}\n")
        if not only_check:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(pages()[path], encoding="utf-8")
    if not only_check:
        sys.stdout.writelines(f"{line}\n" for line in prose.report())
    sys.exit(1 if only_check and stale else 0)


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    main()
