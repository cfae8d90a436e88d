"""How far the gateway is on its way from serving to its end."""

from enum import Enum, auto


class Phase(Enum):
    """What callers meet. A gateway only ever goes on to the next."""

    SERVING = auto()
    LAME_DUCK = auto()  # not ready any more; calls are answered, each with `connection: close`
    DRAINING = auto()  # nobody can connect any more; what is under way may end
    CUTTING = auto()  # the grace time is over: what is still under way is cut, and nothing new begins
