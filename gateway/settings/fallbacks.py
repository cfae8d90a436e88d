"""Which model answers when another one could not."""

from enum import StrEnum

from gateway.settings.section import Section


class Cause(StrEnum):
    """Why a fallback is tried."""

    FAILED = "failed"  # every deployment failed, or is cooling down
    CONTEXT = "context"  # the prompt is too long for it
    CONTENT_FILTER = "content_filter"  # its providers refuse the content


class FallbackSettings(Section):
    """A model that is tried when another could not answer; in the file only its name if it is for every cause."""

    model: str
    causes: tuple[Cause, ...] = tuple(Cause)
