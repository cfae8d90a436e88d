"""What all sections of the file have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


def without_nulls(value: object) -> object:
    """Remove keys without a value, like ``race:`` with every line commented out: as if they were left out."""
    return {key: entry for key, entry in value.items() if entry is not None} if isinstance(value, dict) else value


class Section(BaseModel):
    """A part of the file. Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _take_empty_as_unsaid(cls, value: object) -> object:
        return without_nulls(value)
