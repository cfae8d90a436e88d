"""What is said of configurations: ``messages.txt`` has them, and below each its problems or its notes.

``python -m tests.unit.settings.messages`` writes what is said today; the diff is what has changed. A new case is a
configuration with ``?`` below it.
"""

from pathlib import Path

from gateway.settings import ConfigurationError, doubtful, doubtful_model, doubtful_takeovers, load
from tests.support import told
from tests.unit.settings.conftest import CATALOG

FILE = Path(__file__).with_name("messages.txt")


def said_of(case: told.Case, folder: Path) -> list[str]:
    """Load the configuration from ``folder``; return its problems, or if there are none what is noted."""
    path = folder / "gateway.yaml"
    path.write_text(case.text, encoding="utf-8")
    try:
        settings = load(path, case.environ, case.options, catalog=CATALOG)
    except ConfigurationError as error:
        return [str(problem).replace(f"{folder}/", "") for problem in error.problems]
    notes = [*doubtful_takeovers(settings, CATALOG), *doubtful(settings)]
    for name, model in settings.models.items():
        is_priced = any(each.price_per_mtok is not None for each in model.deployments)
        notes += doubtful_model(name, model, priced=is_priced)
    return [f"note: {note}" for note in notes] or ["(nothing)"]


if __name__ == "__main__":
    told.write(FILE, said_of)
