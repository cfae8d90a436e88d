"""The numbers behind the metrics: cells in each process, which the other workers can read.

A single process keeps its cells in a list. Each of several workers maps a file of the shared folder into memory,
``PID-….cells``: counting needs no system call, and counts survive a ``kill -9``. The file ``PID-….series`` has, in JSON
lines, where each series begins.
"""

import mmap
import os
import tempfile
from array import array
from collections.abc import Iterator, MutableSequence, Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec

SHARED_CELLS = 262_144  # 2 MiB, 13,000 histograms: series come from the configuration, never from clients
NOWHERE = SHARED_CELLS - 64  # what does not fit is counted here, and never read


class Family(msgspec.Struct, frozen=True):
    """The series of one name. A histogram's ``bounds`` are inclusive; one more bucket is above the last.

    ``merge``: what the page has of several workers' gauges. A gauge that is NaN is left out.
    """

    name: str
    documentation: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    merge: Literal["sum", "min", "max"] = "sum"

    @property
    def width(self) -> int:
        """The number of cells of a series: one, or a histogram's buckets and its sum."""
        return len(self.bounds) + 2 if self.bounds else 1


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where the cells of a series begin."""

    family: str
    values: tuple[str, ...]  # of the labels
    first: int


class Table(msgspec.Struct, frozen=True):
    """What one process has counted."""

    alive: bool  # a dead worker's gauges no longer count
    places: Sequence[Place]
    cells: Sequence[float]


class Series:
    """The series of this process. Count like this: ``series.cells[series.first_cell(family, *values)] += 1``."""

    def __init__(self, folder: Path | None = None) -> None:
        """Keep the cells in memory, or in ``folder``, for all who share it.

        Raises:
            OSError: the folder has no space for them.

        """
        self.cells: MutableSequence[float] = []
        self._folder = folder
        self._places: dict[tuple[str, tuple[str, ...]], Place] = {}
        self._used = 0
        self._index = -1
        if folder is not None:
            self.cells, self._index = _shared(folder)

    def first_cell(self, family: Family, *values: str) -> int:
        """Return where a series begins; it is made when first used."""
        place = self._places.get((family.name, values))
        if place is None:
            place = self._places[family.name, values] = self._made(family, values)
        return place.first

    def tables(self) -> Iterator[Table]:
        """Yield the counts of this process and of all who share its folder."""
        if self._folder is None:
            yield Table(True, list(self._places.values()), self.cells)  # noqa: FBT003 - alive
            return
        for index in sorted(self._folder.glob("*.series")):
            yield _table(index)

    def _made(self, family: Family, values: tuple[str, ...]) -> Place:
        place = Place(family.name, values, self._used)
        if self._folder is None:
            cast("list[float]", self.cells).extend([0.0] * family.width)
        elif self._used + family.width > NOWHERE:
            return Place(family.name, values, NOWHERE)
        else:
            os.write(self._index, _ENCODER.encode(place) + b"\n")
        self._used += family.width
        return place


def forget_process(folder: Path, pid: int) -> None:
    """Mark a worker as dead: its counters stay, its gauges do not."""
    for cells in folder.glob(f"{pid}-*.cells"):
        cells.rename(cells.with_suffix(".dead"))


def _shared(folder: Path) -> tuple[MutableSequence[float], int]:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{os.getpid()}-", suffix=".cells", delete=False) as file:
        # Written, not only extended: counting in a hole of a file would kill us on a full disk.
        file.write(bytes(SHARED_CELLS * array("d").itemsize))
        file.flush()
        cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
        path = Path(file.name).with_suffix(".series")
    index = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return cast("MutableSequence[float]", cells), index


def _table(index: Path) -> Table:
    lines = index.read_bytes()
    places = _DECODER.decode_lines(lines[: lines.rfind(b"\n") + 1])  # the last line may be incomplete
    try:
        return Table(True, places, _mapped(index.with_suffix(".cells")))  # noqa: FBT003 - alive
    except FileNotFoundError:
        return Table(False, places, _mapped(index.with_suffix(".dead")))  # noqa: FBT003 - dead


def _mapped(path: Path) -> Sequence[float]:
    with path.open("rb") as file:
        return cast("Sequence[float]", memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("d"))


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Place)
