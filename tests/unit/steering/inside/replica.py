"""A replica that shares its strikes with others, for steering tests, and words for what happens to it."""

from collections.abc import Sequence
from random import Random

from gateway.core.attempts import Role
from gateway.steering import MemoryBoard, Steering, Strikes
from gateway.steering.constants import WELL_S
from tests.unit.steering.virtual_replica import VirtualReplica

UNIX_S = 1_800_000_000.0


class Replica(VirtualReplica):
    """A replica that shares its strikes."""

    def __init__(self, deployments: Sequence[str] = "abcdef") -> None:
        super().__init__(deployments)
        self.strikes = Strikes(self.unix_s)
        self.steering = Steering(
            MemoryBoard(), clock=lambda: self.now_s, unix_clock=self.unix_s, random=Random(1), strikes=self.strikes
        )
        self.steering.reset({"llama": self.deployments})

    def unix_s(self) -> float:
        return UNIX_S + self.now_s


def later(seconds: float, *replicas: Replica) -> None:
    for replica in replicas:
        replica.now_s += seconds


def well(*replicas: Replica) -> None:
    """Let each have answers from all its deployments, long enough ago to be no news."""
    for replica in replicas:
        replica.warm_up(5, **dict.fromkeys(replica.deployments, 0.3))
        replica.now_s += WELL_S


def struck(replica: Replica, times: int, deployment: str = "a") -> None:
    """Fail at one deployment, and be answered by another, as a call that fails over is."""
    for _ in range(times):
        replica.fail(deployment)
        replica.win("b", role=Role.FAILOVER)
