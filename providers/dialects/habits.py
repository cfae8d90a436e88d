"""How one model must be asked, where models that speak the same dialect differ."""

import msgspec


class Habits(msgspec.Struct, frozen=True):
    """What matters in every dialect; a dialect in which models differ in more has a subclass."""

    thinks: bool = True  # False: the model refuses a reasoning effort
    takes_thoughts: bool = False  # in chat, its reasoning_content must be sent back with the tool calls it led to
