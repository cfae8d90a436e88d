"""The example configuration: every setting with its default and its purpose."""

from pathlib import Path

_NAME = "gateway.example.yaml"


def example() -> str:
    """Return its text."""
    return example_path().read_text(encoding="utf-8")


def example_path() -> Path:
    """Return its path: besides this module in the wheel, in ``config/`` of a checkout."""
    shipped = Path(__file__).with_name(_NAME)
    return shipped if shipped.is_file() else Path(__file__).resolve().parents[2] / "config" / _NAME
