"""The request limit of a simulated account: a number of requests per window, and the delay until the next one."""

from collections import deque


class RateLimit:
    """At most ``requests`` in ``window_s`` seconds. Refused requests do not count."""

    def __init__(self, requests: int, window_s: float) -> None:
        self._requests = requests
        self._window_s = window_s
        self._admitted_at_s: deque[float] = deque()

    def admit(self, now_s: float) -> float | None:
        """Count a request and return None, or return the seconds until the next one will be admitted."""
        while self._admitted_at_s and self._admitted_at_s[0] <= now_s - self._window_s:
            self._admitted_at_s.popleft()
        if len(self._admitted_at_s) >= self._requests:
            return self._admitted_at_s[0] + self._window_s - now_s
        self._admitted_at_s.append(now_s)
        return None
