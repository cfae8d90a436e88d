"""Holeshot: an OpenAI-compatible gateway that races LLM providers."""

__version__ = "0.1.0"

OLDEST, NEWEST = (3, 11), (3, 15)  # Python: the tests are run on these and those between; pyproject.toml names each
PYTHONS = f"Python 3.{OLDEST[1]} to 3.{NEWEST[1]}"
