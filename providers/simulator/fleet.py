"""Several simulated providers, each on its own port."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType, TracebackType
from typing import Self

from providers.simulator.persona import DEMO_FLEET, Persona
from providers.simulator.simulated import SimulatedProvider


class Fleet:
    """A running fleet: ``async with Fleet(DEMO_FLEET, seed=1) as fleet: fleet.base_urls["sim-swift"]``.

    ``base_port`` 0 takes free ports; otherwise the n-th persona listens on ``base_port + n``.
    """

    def __init__(self, personas: Sequence[Persona] = DEMO_FLEET, *, seed: int = 0, base_port: int = 0) -> None:
        self.providers: Mapping[str, SimulatedProvider] = MappingProxyType(
            {
                persona.name: SimulatedProvider(persona, seed=seed, port=base_port and base_port + number)
                for number, persona in enumerate(personas)
            }
        )
        self._running = AsyncExitStack()

    @property
    def base_urls(self) -> dict[str, str]:
        """Each provider's base URL by its name; known once the fleet is entered."""
        return {name: provider.base_url for name, provider in self.providers.items()}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:
            for provider in self.providers.values():
                await starting.enter_async_context(provider)
            self._running = starting.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()


async def run_fleet(
    announce: Callable[[Mapping[str, str]], None],
    personas: Sequence[Persona] = DEMO_FLEET,
    *,
    seed: int = 0,
    base_port: int = 0,
) -> None:
    """Run a fleet until cancelled; call ``announce`` with the base URLs once all of them answer.

    Raises:
        OSError: a port is taken.

    """
    async with Fleet(personas, seed=seed, base_port=base_port) as fleet:
        announce(fleet.base_urls)
        await asyncio.Event().wait()
