"""Problems of a configuration: each a sentence with the file and line it is about."""

from collections.abc import Sequence

import msgspec

Place = tuple[str | int, ...]  # the path to a value: ("models", "llama-70b", "deployments", 0)


class Complaint(msgspec.Struct, frozen=True):
    """A problem at a place in the configuration, whatever its source."""

    place: Place
    message: str


class Problem(msgspec.Struct, frozen=True):
    """One thing to correct. Never contains a configured value that may be a secret."""

    message: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """``config/gateway.yaml:12: providers.groq: unknown key 'api_kye'; did you mean 'api_key'?``."""
        where = [str(part) for part in (self.file, self.line) if part is not None]
        return ": ".join((":".join(where), self.message)) if where else self.message


class ConfigurationError(Exception):
    """The configuration cannot be used. ``problems`` has all of them, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def written(place: Place) -> str:
    """Return ``place`` as text: ``models.llama-70b.deployments[0]``; invisible characters are escaped."""
    text = ""
    for step in place:
        shown = step if isinstance(step, int) or step.isprintable() else ascii(step)[1:-1]
        text += f"[{shown}]" if isinstance(step, int) else f".{shown}" if text else str(shown)
    return text


def within(place: Place, outer: Place) -> bool:
    """Whether ``place`` is ``outer`` or inside it."""
    return place[: len(outer)] == outer
