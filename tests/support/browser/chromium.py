"""Where a Chromium is, if there is one."""

import os
import shutil

HOW = "Debian and Ubuntu: apt-get install chromium; elsewhere HOLESHOT_CHROMIUM=/path/to/chromium"
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def chromium() -> str | None:
    """Return the path of a Chromium; None without one."""
    named = os.environ.get("HOLESHOT_CHROMIUM")
    return named or next((path for path in map(shutil.which, _NAMES) if path), None)
