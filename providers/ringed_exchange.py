"""An exchange with one of several keys, which notifies the key ring of its end."""

from collections.abc import Callable, Mapping, Sequence

from providers.errors import UpstreamError
from providers.exchange import Exchange


class RingedExchange:
    """An ``Exchange`` around another, with the ring's headers."""

    def __init__(
        self,
        exchange: Exchange,
        headers: Mapping[str, str],
        *,
        failed: Callable[[UpstreamError], object],
        over: Callable[[], None],  # called once, at the end
    ) -> None:
        self.status = exchange.status
        self.headers = headers
        self.connect_ms = exchange.connect_ms
        self.secrets: Sequence[str] = exchange.secrets
        self._exchange = exchange
        self._failed = failed
        self._over: Callable[[], None] | None = over

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything."""
        return self._exchange.ended

    async def read(self) -> bytes:
        """Return the next bytes of the event stream, ``b""`` at its end.

        Raises:
            UpstreamError: as of the inner exchange.

        """
        try:
            block = await self._exchange.read()
        except UpstreamError as error:
            self._failed(error)
            self._end()
            raise
        except BaseException:
            self._end()
            raise
        if not block:
            self._end()
        return block

    @property
    def finishing(self) -> bool:
        """Whether the answer is said to end, and its end is held back."""
        return self._exchange.finishing

    def conclude(self) -> bytes:
        """Return the end that was held back."""
        self._end()
        return self._exchange.conclude()

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Call ``listener`` with data that arrives while ``read`` waits."""
        self._exchange.offer_to(listener)

    def abort(self) -> None:
        """Drop the exchange at once; without effect after the end or an abort."""
        self._end()
        self._exchange.abort()

    def _end(self) -> None:
        over, self._over = self._over, None
        if over is not None:
            over()
