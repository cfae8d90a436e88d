"""The ways through the gateway that profiles and instruction counts follow."""

from collections.abc import Mapping

import msgspec

from benchmarks.harness import gateways
from benchmarks.harness.load import Question, asking
from benchmarks.harness.servers import Server


class Way(msgspec.Struct, frozen=True):
    """One kind of call. ``model`` is one of ``gateways.RACES``."""

    model: str
    streamed: bool = True

    def question(self, server: Server) -> Question:
        """Return what a load generator is to ask the gateway."""
        return asking(
            server.port, server.headers, self.model, streamed=self.streamed, launched=len(gateways.RACES[self.model])
        )


WAYS: Mapping[str, Way] = {
    "stream": Way("burst-single"),
    "json": Way("burst-single", streamed=False),
    "race": Way("sure-race"),
}
