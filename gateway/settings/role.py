"""What a client is allowed to do besides its own calls."""

from enum import StrEnum


class Role(StrEnum):
    """Each role may read what the one before it may read."""

    CLIENT = "client"  # makes calls
    VIEWER = "viewer"  # reads the page, /metrics, /leaderboard and the list of keys; makes no calls and changes nothing
    ADMIN = "admin"  # makes calls, reads all of that, and changes keys
