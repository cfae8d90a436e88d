"""The phases of a gateway's shutdown."""

from enum import Enum, auto


class Phase(Enum):
    """The gateway's state for requests. It only moves forward."""

    SERVING = auto()
    LAME_DUCK = auto()  # not ready; calls are still answered, each with `connection: close`
    DRAINING = auto()  # no new connections; running calls may finish
    CUTTING = auto()  # the grace time is over: running calls are cut, and no new ones begin
