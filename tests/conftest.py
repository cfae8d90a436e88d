"""What holds for every test: none leaves the process's logging other than it found it."""

from collections.abc import Iterator

import hypothesis
import pytest
import structlog

# What an example takes depends on what else the machine does.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a command under test has set up: it would hide another test's warnings."""
    yield
    structlog.reset_defaults()
