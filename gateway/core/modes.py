"""The modes of racing: how many attempts a call has at a time, with texts for people."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Mode(StrEnum):
    """How a call is run; with ``auto`` the policy decides, within the budget."""

    SINGLE = "single"
    RACE = "race"
    HEDGE = "hedge"
    AUTO = "auto"


class ModeText(NamedTuple):
    """The title of a mode on the page, and its effect, in Markdown."""

    title: str
    about: str


SAID: Mapping[Mode, ModeText] = {
    Mode.AUTO: ModeText("By the policy", "the policy decides within the budget"),
    Mode.RACE: ModeText("Race", "`width` at once"),
    Mode.HEDGE: ModeText("Hedge", "a second one if the first is late"),
    Mode.SINGLE: ModeText("One provider alone", "one; another if it fails or, unless `budget` is 0, is silent"),
}
