"""All dashboards, by their file names."""

from collections.abc import Mapping

from monitoring.board import Board
from monitoring.clients import CLIENTS
from monitoring.deployments import DEPLOYMENTS
from monitoring.overview import OVERVIEW
from monitoring.process import PROCESS

# A row for targets (``slo:``) belongs at the end of the overview, once they have metrics.
BOARDS: Mapping[str, Board] = {
    "overview": OVERVIEW,
    "deployments": DEPLOYMENTS,
    "clients": CLIENTS,
    "process": PROCESS,
}
