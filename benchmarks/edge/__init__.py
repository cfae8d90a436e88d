"""The gateway's edge, attacked and timed: each measure is a file in ``measures``, and runs against any checkout."""
