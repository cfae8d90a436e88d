"""The page in a real Chromium.

    python -m benchmarks.page pictures                       # writes docs/pictures, of simulated providers
    python -m benchmarks.page timings http://127.0.0.1:4000  # of a gateway that lets this machine look without a key

Both need ``pip install -r tools/requirements/browser.lock`` and a Chromium (HOLESHOT_CHROMIUM=/path/to/one, if it is
not on the path).
"""

import argparse
import asyncio
from pathlib import Path

from benchmarks.page import pictures, timings
from tests.support.measured.servers import ROOT


def main() -> None:
    """Do what the command says."""
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__, formatter_class=words)
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("pictures", help="write the pictures of README.md")
    taking.add_argument("--folder", type=Path, default=ROOT / "docs" / "pictures")
    taking.add_argument("--warm-up", type=float, default=150.0, metavar="S", help="seconds of calls before the first")
    which = taking.add_mutually_exclusive_group()
    which.add_argument("--only-lanes", action="store_true", help="leave the stills as they are")
    which.add_argument("--only-races", action="store_true", help="only the site's first picture")
    timing = commands.add_parser("timings", help="how soon each view is drawn")
    timing.add_argument("url")
    timing.add_argument("--visits", type=int, default=5)
    timing.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.command == "pictures":
        asyncio.run(pictures.draw_races(options.folder))
    if options.command == "pictures" and not options.only_races:
        asyncio.run(pictures.take(options.folder, options.warm_up, stills=not options.only_lanes))
    if options.command == "timings":
        asyncio.run(timings.time_views(options.url, options.visits, as_json=options.json))


if __name__ == "__main__":
    main()
