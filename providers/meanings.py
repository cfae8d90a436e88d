"""What a refusal means to the program that reads it: one word for the many codes and words of vendors."""

from enum import StrEnum


class Meaning(StrEnum):
    """What a refusal means. Each is a row of the table in ``dialects/meanings.py``."""

    TOO_LONG = "too_long"  # the prompt, or the answer asked for beside it, has more tokens than the context
