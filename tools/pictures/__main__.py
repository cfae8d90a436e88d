"""``python -m tools.pictures`` writes docs/pictures: the page before simulated providers, in a real Chromium.

It needs ``pip install -r tools/requirements/browser.lock`` and a Chromium (HOLESHOT_CHROMIUM=/path/to/one, if it is not
on the path).
"""

import argparse
import asyncio
from pathlib import Path

from tests.support.measured.servers import ROOT
from tools.pictures import pictures


def main() -> None:
    """Do what the command says."""
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__, formatter_class=words)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--warm-up", type=float, default=150.0, metavar="S", help="seconds of calls before the first")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only-lanes", action="store_true", help="leave the stills as they are")
    which.add_argument("--only-races", action="store_true", help="only the site's first picture")
    options = parser.parse_args()
    asyncio.run(pictures.draw_races(options.folder))
    if not options.only_races:
        asyncio.run(pictures.take(options.folder, options.warm_up, stills=not options.only_lanes))


if __name__ == "__main__":
    main()
