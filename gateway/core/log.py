"""The logger for modules that an engine loads; structlog is imported when the first line is logged."""

from typing import Any


def get_logger() -> Any:
    """Return structlog's logger, as the process has set it up.

    structlog imports rich where that is installed, together a fifth of a first race's imports, and most races log
    nothing.
    """
    import structlog  # noqa: PLC0415 - see above

    return structlog.get_logger()
