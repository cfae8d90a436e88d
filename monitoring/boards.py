"""All dashboards, by the name of their file."""

from collections.abc import Mapping

from monitoring.board import Board
from monitoring.clients import CLIENTS
from monitoring.deployments import DEPLOYMENTS
from monitoring.overview import OVERVIEW
from monitoring.process import PROCESS

# A row of targets (``slo:``) belongs at the end of the overview, once there are metrics of them.
BOARDS: Mapping[str, Board] = {
    "overview": OVERVIEW,
    "deployments": DEPLOYMENTS,
    "clients": CLIENTS,
    "process": PROCESS,
}
