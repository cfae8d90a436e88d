"""Names of models that end in a star: such a name stands for all names that begin with the text before the star.

A client may then ask for names that are not in the file. The star of a deployment's name becomes what the star of the
model's name stood for. For example, under ``claude-*`` with the deployment ``anthropic/claude-*``, a call of
``claude-opus-4-8`` is sent to ``anthropic/claude-opus-4-8``.
"""

import re
from collections.abc import Iterable

from gateway.settings.model import ModelSettings

STAR = "*"
# Names that a client may ask for under a pattern: names in the form of models, without an address, log line or header.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_:@+~\[\]=-]|[./](?![./])){0,199}")


def is_pattern(name: str) -> bool:
    """Whether a model's name stands for several."""
    return name.endswith(STAR)


def may_be_asked(name: str) -> bool:
    """Whether a client may ask for this name under a pattern."""
    return _NAME.fullmatch(name) is not None


def covers(pattern: str, name: str) -> bool:
    """Whether ``pattern`` is this name, or stands for it; also for all names of another pattern."""
    return name == pattern or (is_pattern(pattern) and name.startswith(pattern[:-1]))


def is_covered(name: str, known: Iterable[str]) -> bool:
    """Whether one of the ``known`` names and patterns covers ``name``."""
    return any(covers(each, name) for each in known)


def is_any(name: str, known: Iterable[str]) -> bool:
    """Whether ``name`` has something in common with the ``known`` names and patterns; either may be a pattern."""
    return any(covers(each, name) or covers(name, each) for each in known)


def longest_of(patterns: Iterable[str], name: str) -> str | None:
    """Return which of ``patterns`` decides over a name: the longest that covers the name; None: no pattern does."""
    return max((each for each in patterns if is_pattern(each) and covers(each, name)), key=len, default=None)


def named(settings: ModelSettings, pattern: str, name: str) -> ModelSettings:
    """Return the settings of ``pattern`` for one ``name`` under it, with the deployments of that name."""
    stands_for = name[len(pattern) - 1 :]
    deployments = tuple(
        each.model_copy(
            update={
                "deployment": each.deployment.replace(STAR, stands_for),
                **({} if each.same_as is None else {"same_as": each.same_as.replace(STAR, stands_for)}),
            }
        )
        if STAR in each.deployment
        else each
        for each in settings.deployments
    )
    return settings.model_copy(update={"deployments": deployments})
