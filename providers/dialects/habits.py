"""How one model is to be asked, where models of the same dialect differ."""

import msgspec


class Habits(msgspec.Struct, frozen=True):
    """What matters to every dialect; one in which models differ in more has a subclass."""

    thinks: bool = True  # if not, it takes no word of how hard
    takes_thoughts: bool = False  # in chat it wants its reasoning_content back with the calls that came of it
