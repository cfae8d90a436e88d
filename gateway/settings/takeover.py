"""The section of takeovers: who finishes an answer that breaks."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from gateway.settings.section import Section


class When(StrEnum):
    """For which calls an answer that breaks is finished by another deployment."""

    NEVER = "never"
    ASKED = "asked"  # those that ask for it
    ALWAYS = "always"  # all but those that do not want it


class TakeoverSettings(Section):
    """Whether an answer that breaks is finished by another deployment; in the file true is ``when: always``."""

    when: When = When.NEVER
    within_s: Annotated[float, Field(gt=0, le=120)] = 10.0  # so long its client waits for more, then it is told

    @model_validator(mode="before")
    @classmethod
    def _accept_a_plain_value(cls, value: object) -> object:
        if isinstance(value, bool):
            return {"when": When.ALWAYS if value else When.NEVER}
        return {"when": value} if isinstance(value, str) else value
