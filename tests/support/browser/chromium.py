"""Where a Chromium is, if there is one: first the one that has no windows, which takes a third of the CPU."""

import os
import shutil

HOW = "Debian: apt-get install chromium-headless-shell, Ubuntu: chromium; elsewhere HOLESHOT_CHROMIUM=/path/to/chromium"
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def chromium() -> str | None:
    """Return the path of a Chromium; None without one."""
    named = os.environ.get("HOLESHOT_CHROMIUM")
    return named or next((path for path in map(shutil.which, _NAMES) if path), None)
