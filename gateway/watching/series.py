"""The numbers behind the metrics: cells in each process, which the other workers can read.

A single process keeps its cells in a list. Each of several workers maps a file of the shared folder into memory,
``PID-….cells``: counting needs no system call, and counts survive a ``kill -9``. The file ``PID-….series`` has, in JSON
lines, where each series begins.
"""

import errno
import mmap
import os
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, MutableSequence, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import msgspec
import structlog

from gateway.core.attempts import AttemptRecord

SHARED_CELLS = 262_144  # 2 MiB, 13,000 histograms: series come from the configuration, never from clients
NOWHERE = SHARED_CELLS - 64  # series that do not fit are counted here, and never read


class Family(msgspec.Struct, frozen=True):
    """The series of one name. A histogram's ``bounds`` are inclusive; one more bucket is above the last.

    ``merge``: how several workers' gauges are combined. A gauge that is NaN is left out.
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


class CellsPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where the cells of a series begin."""

    family: str
    values: tuple[str, ...]  # of the labels
    first: int


class CellTable(msgspec.Struct, frozen=True):
    """The cells of one process."""

    alive: bool  # a dead worker's gauges no longer count
    places: Sequence[CellsPlace]
    cells: Sequence[float]


class Series:
    """The series of this process. Count like this: ``series.cells[series.first_cell(family, *values)] += 1``."""

    def __init__(self, folder: Path | None = None) -> None:
        """Keep the cells in memory, or in ``folder``, for all processes that share it.

        Where the folder refuses them, they are in memory all the same, and only this process shows them.
        """
        self.cells: MutableSequence[float] = []
        self._folder = folder
        self._places: dict[tuple[str, tuple[str, ...]], CellsPlace] = {}
        self._used = 0
        self._index: Path | None = None  # where others read which series there are
        self._descriptor = -1  # of the index
        self._unwritten = b""  # lines of the index that the disk has refused
        self._is_refused = False  # and that was logged
        if folder is not None:
            try:
                self.cells, self._index, self._descriptor = _shared(folder)
            except OSError as error:
                self.cells = array("d", bytes(SHARED_CELLS * array("d").itemsize))
                self._log_refusal(error)

    def first_cell(self, family: Family, *values: str) -> int:
        """Return where a series begins; it is made when first used."""
        place = self._places.get((family.name, values))
        if place is None:
            place = self._places[family.name, values] = self._made(family, values)
        return place.first

    def tables(self) -> Iterator[CellTable | None]:
        """Yield the cells of this process and of all that share its folder, but for those that cannot be read.

        None is yielded between the parts of a long list of series: the event loop may run other tasks.
        """
        if self._folder is None:
            yield CellTable(True, list(self._places.values()), self.cells)  # noqa: FBT003 - alive
            return
        yield CellTable(True, [each for each in self._places.values() if each.first != NOWHERE], self.cells)  # noqa: FBT003
        own = None if self._index is None else self._index.name
        for index in sorted(self._folder.glob("*.series")):
            if index.name != own and (table := (yield from _table_steps(index))) is not None:
                yield table

    def _made(self, family: Family, values: tuple[str, ...]) -> CellsPlace:
        place = CellsPlace(family.name, values, self._used)
        if self._folder is None:
            cast("list[float]", self.cells).extend([0.0] * family.width)
        elif self._used + family.width > NOWHERE:
            return CellsPlace(family.name, values, NOWHERE)
        elif self._index is not None:
            self._unwritten += _ENCODER.encode(place) + b"\n"
            self.share_new()
        self._used += family.width
        return place

    def share_new(self) -> None:
        """Tell the other processes of new series. What a full disk refuses is told once there is space again."""
        if not self._unwritten:
            return
        try:
            size_bytes = os.fstat(self._descriptor).st_size
            if os.write(self._descriptor, self._unwritten) != len(self._unwritten):
                os.ftruncate(self._descriptor, size_bytes)  # half a line would spoil the next one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - as the next write would
        except OSError as error:
            self._log_refusal(error)
        else:
            self._unwritten, self._is_refused = b"", False

    def _log_refusal(self, error: OSError) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        # Event metrics.not_shared: The folder in which workers share their metrics refuses new series (`error`), which
        # are missing where another worker answers for `/metrics`.
        # Do: Free space there (`TMPDIR`, usually /tmp); a worker that started without space needs a restart.
        structlog.get_logger().error(
            "metrics.not_shared",
            folder=str(self._folder),
            error=error.strerror or str(error),
            hint="what this worker counts is missing in answers of others; free space there",
        )


def forget_process(folder: Path, pid: int) -> None:
    """Mark a worker as dead: its counters stay, its gauges do not."""
    for cells in folder.glob(f"{pid}-*.cells"):
        with suppress(OSError):  # the parent of all workers has to go on
            cells.rename(cells.with_suffix(".dead"))


def _shared(folder: Path) -> tuple[MutableSequence[float], Path, int]:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{os.getpid()}-", suffix=".cells", delete=False) as file:
        try:
            # Written, not only extended: counting in a hole of a file would kill us on a full disk.
            file.write(bytes(SHARED_CELLS * array("d").itemsize))
            file.flush()
            cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
            path = Path(file.name).with_suffix(".series")
            index = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
    return cast("MutableSequence[float]", cells), path, index


def _table_steps(index: Path) -> Generator[None, None, CellTable | None]:
    """Return what another process counts; None where its files are gone, as cleaners of /tmp delete, or are spoiled."""
    try:
        lines = index.read_bytes()
        begin, end = 0, lines.rfind(b"\n") + 1  # the last line may be incomplete
        places: list[CellsPlace] = []
        while begin < end:
            following = lines.find(b"\n", min(begin + _BYTES_A_TURN, end - 1)) + 1
            places += _DECODER.decode_lines(lines[begin:following])
            begin = following
            yield
        try:
            return CellTable(True, places, _mapped(index.with_suffix(".cells")))  # noqa: FBT003 - alive
        except FileNotFoundError:
            return CellTable(False, places, _mapped(index.with_suffix(".dead")))  # noqa: FBT003 - dead
    except (OSError, ValueError, TypeError):  # the last of cells that are cut within one
        return None


def _mapped(path: Path) -> Sequence[float]:
    with path.open("rb") as file:
        return cast("Sequence[float]", memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("d"))


_BYTES_A_TURN = 65_536  # of another process's list of series; about a millisecond
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(CellsPlace)


# The families of metrics of calls and attempts: names, help texts, kinds, labels and buckets.

# Seconds. Dense in the range of first tokens, up to the default first-token timeout.
TTFT_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60, 120)
TPS_BUCKETS = (5, 10, 20, 30, 45, 60, 80, 100, 150, 200, 300, 500, 1000, 2000)
QUEUE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
# Every half octave where answers stream, else every octave: edges of the ledger's buckets, so that counts carry over.
GAP_EDGES = (-24, -16, *range(-12, 33, 4), 40, 48, 56, 64, 72, 80)  # numbers of the ledger's buckets
GAP_BUCKETS = tuple(0.01 * 2 ** (edge / 8) for edge in GAP_EDGES)
OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)

BROKEN = "broken"  # the status of a call whose stream broke after it had begun, with a status of 200
CALLS = Family(
    "holeshot_calls_total",
    "Finished calls; status broken: a stream that broke.",
    "counter",
    ("mode", "model", "status"),
)
ATTEMPTS = Family(
    "holeshot_attempts_total",
    "Ended upstream attempts; outcome lost counts cancelled losers.",
    "counter",
    ("deployment", "outcome", "role"),
)
ERRORS = Family(
    "holeshot_attempt_errors_total", "Failed upstream attempts by cause.", "counter", ("deployment", "kind")
)
REFUSED = Family(
    "holeshot_refused_launches_total",
    "Extra attempts that were not launched, by the reason, also those that the plan left out.",
    "counter",
    ("limit", "model"),
)
REFUSALS = Family(
    "holeshot_refusals_total",
    "Requests that the gateway refused before they became calls.",
    "counter",
    ("reason", "status"),
)
CLIENT_REFUSALS = Family(
    "holeshot_client_refusals_total",
    "Requests that the gateway refused before they became calls, of clients whose key is known.",
    "counter",
    ("client", "reason"),
)
CLIENT_CALLS = Family(
    "holeshot_client_calls_total",
    "Finished calls of a client; status broken: a stream that broke.",
    "counter",
    ("client", "status"),
)
# What the dollars of metrics are: neither of the two bounds of the ledger.
_ESTIMATE = "Of a loser the best estimate, as cost_usd in SQL."
CLIENT_TOKENS = Family(
    "holeshot_client_tokens_total",
    "Tokens of a client's calls, without losers: those that answered report, else estimates.",
    "counter",
    ("client", "kind"),
)
CLIENT_COST = Family(
    "holeshot_client_cost_usd_total",
    f"US dollars at list price of all attempts for a client's calls. {_ESTIMATE}",
    "counter",
    ("client",),
)
SHED = Family(
    "holeshot_shed_calls_total",
    "Calls refused under overload: by reason (queue_full, queue_timeout, displaced), and by what set the limit.",
    "counter",
    ("limit", "reason"),
)
PROBES = Family(
    "holeshot_probes_total", "Probes of quiet deployments by how they ended.", "counter", ("deployment", "outcome")
)
TOKENS = Family(
    "holeshot_tokens_total",
    "Tokens of the attempts whose provider reported them; what was cancelled before its report is in neither kind.",
    "counter",
    ("deployment", "kind"),
)
FAR_OFF = Family(
    "holeshot_usage_far_off_total",
    "Comparisons, one every 20 answers, in which counts of tokens are far from the other deployments', or cannot be.",
    "counter",
    ("deployment",),
)
COST = Family(
    "holeshot_cost_usd_total",
    f"US dollars at list price of all attempts: of those that racing added (duplicate), and of the others. {_ESTIMATE}",
    "counter",
    ("model", "share"),
)
TTFT = Family("holeshot_ttft_seconds", "Call received to first token.", "histogram", ("model",), TTFT_BUCKETS)
ATTEMPT_TTFT = Family(
    "holeshot_attempt_ttft_seconds",
    "Attempt launched to first token, of those that had one.",
    "histogram",
    ("deployment",),
    TTFT_BUCKETS,
)
SENTENCE = Family(
    "holeshot_attempt_first_sentence_seconds",
    "Attempt launched to the end of the first clause that can be spoken, of models with win_on: sentence.",
    "histogram",
    ("deployment",),
    TTFT_BUCKETS,
)
VALID = Family(
    "holeshot_win_on_valid_calls_total",
    "Calls with win_on: valid, by whether the first answer to begin was valid, invalid, or unknown (cancelled).",
    "counter",
    ("first", "model"),
)
TAKEOVERS = Family(
    "holeshot_takeovers_total",
    "Streamed answers that broke where takeover is on: finished by another deployment (or rescued), or why not.",
    "counter",
    ("end", "model"),
)
KEPT = Family(
    "holeshot_kept_rivals_total",
    "Attempts that ran on behind a winner (keep_rival): outcome won means that it broke, and they answered.",
    "counter",
    ("deployment", "outcome"),
)
DRIBBLED = Family(
    "holeshot_would_take_over_total",
    "Streamed answers that for 5 s came at less than a fifth of their deployment's slowest usual speed: only counted.",
    "counter",
    ("deployment",),
)
DECODE = Family("holeshot_decode_tokens_per_second", "Decode speed.", "histogram", ("deployment",), TPS_BUCKETS)
GAPS = Family(
    "holeshot_gap_seconds",
    "Gaps between the chunks of answers with a meaningful delta (inter-token latency); several tokens may be in one.",
    "histogram",
    ("deployment",),
    GAP_BUCKETS,
)
OVERHEAD = Family(
    "holeshot_overhead_seconds", "The gateway's own share of the TTFT.", "histogram", (), OVERHEAD_BUCKETS
)
WAITED = Family(
    "holeshot_queue_seconds",
    "Calls that waited because of max_in_flight, by the end of the wait: seated, timed_out, left.",
    "histogram",
    ("end", "model"),
    QUEUE_BUCKETS,
)
IN_FLIGHT = Family("holeshot_in_flight_attempts", "Attempts that are running.", "gauge", ("deployment",))
ALERTS = Family("holeshot_alerts_total", "Alerts that this process opened.", "counter", ("kind",))
ALERTS_RESOLVED = Family("holeshot_alerts_resolved_total", "Alerts that this process resolved.", "counter", ("kind",))
ALERT_MESSAGES = Family(
    "holeshot_alert_messages_total",
    "Attempts to send a message about an alert: sent, failed (and repeated) or given_up.",
    "counter",
    ("result", "webhook"),
)

TARGET_CALLS = Family(
    "holeshot_target_calls", "Calls that count for a target, in its window.", "gauge", ("target",), merge="max"
)
TARGET_BAD = Family("holeshot_target_bad_calls", "Those of them that were bad.", "gauge", ("target",), merge="max")
TARGET_BUDGET = Family(
    "holeshot_target_budget_left",
    "The share of a target's error budget that is left in its window; below 0 it is missed.",
    "gauge",
    ("target",),
    merge="min",
)
TARGET_BURN = Family(
    "holeshot_target_burn_rate",
    "The share of bad calls over the share that may be bad, in the last 1h, 6h and 3d.",
    "gauge",
    ("target", "window"),
    merge="max",
)

SLOWER = Family(
    "holeshot_deployment_slower",
    "How many times as slow as expected a deployment is (errors: as many) while a slowdown goes on; only the one "
    "process that looks has it.",
    "gauge",
    ("deployment", "metric"),
)

ACCEPTED = Family("holeshot_connections_accepted_total", "Connections from clients that were accepted.", "counter")
CUT = Family(
    "holeshot_connections_cut_total",
    "Connections closed for a limit (address, strangers, descriptors, late_head, large_head, stalled, ahead) or a key.",
    "counter",
    ("reason",),
)


# The cells of one deployment, model or client: looked up once, then only added to.

_LEDGERS_BUCKETS = range(-56, 112)  # of gaps; eight per octave, number 0 begins at 10 ms
# The bucket of ours that contains a bucket of the ledger's, by the latter's number as JSON text.
_GAPS_AT = {str(number): bisect_left(GAP_EDGES, number + 1) for number in _LEDGERS_BUCKETS}


class ModelCells:
    """The cells of one model's calls."""

    __slots__ = ("_calls", "_series", "answer_usd", "duplicate_usd", "label", "ttft")

    def __init__(self, series: Series, label: str) -> None:
        self._series = series
        self._calls: dict[tuple[str, str], int] = {}
        self.label = label
        self.ttft = series.first_cell(TTFT, label)
        self.answer_usd = series.first_cell(COST, label, "answer")
        self.duplicate_usd = series.first_cell(COST, label, "duplicate")

    def call(self, mode: str, status: str) -> int:
        """Return the cell of calls with this mode and status."""
        cell = self._calls.get((mode, status))
        if cell is None:
            cell = self._series.first_cell(CALLS, str(mode), self.label, status)
            self._calls[mode, status] = cell
        return cell


class DeploymentCells:
    """The cells of one deployment's attempts."""

    __slots__ = (
        "_outcomes",
        "_series",
        "completion_tokens",
        "decode",
        "far_off",
        "gaps",
        "in_flight",
        "label",
        "prompt_tokens",
        "ttft",
    )

    def __init__(self, series: Series, label: str) -> None:
        self._series = series
        self._outcomes: dict[tuple[str, str], int] = {}
        self.label = label
        self.in_flight = series.first_cell(IN_FLIGHT, label)
        self.ttft = series.first_cell(ATTEMPT_TTFT, label)
        self.decode = series.first_cell(DECODE, label)
        self.gaps = series.first_cell(GAPS, label)
        self.completion_tokens = series.first_cell(TOKENS, label, "completion")
        self.prompt_tokens = series.first_cell(TOKENS, label, "prompt")
        self.far_off = series.first_cell(FAR_OFF, label)  # starts at 0: a series that starts at 1 shows no increase

    def outcome(self, outcome: str, role: str) -> int:
        """Return the cell of attempts with this outcome and role."""
        cell = self._outcomes.get((outcome, role))
        if cell is None:
            cell = self._outcomes[outcome, role] = self._series.first_cell(
                ATTEMPTS, self.label, str(outcome), str(role)
            )
        return cell


class ClientCells:
    """The cells of one client's calls."""

    __slots__ = ("_calls", "_series", "completion_tokens", "label", "prompt_tokens", "usd")

    def __init__(self, series: Series, label: str) -> None:
        self._series = series
        self._calls: dict[str, int] = {}
        self.label = label
        self.completion_tokens = series.first_cell(CLIENT_TOKENS, label, "completion")
        self.prompt_tokens = series.first_cell(CLIENT_TOKENS, label, "prompt")
        self.usd = series.first_cell(CLIENT_COST, label)

    def call(self, status: str) -> int:
        """Return the cell of calls with this status."""
        cell = self._calls.get(status)
        if cell is None:
            cell = self._calls[status] = self._series.first_cell(CLIENT_CALLS, self.label, status)
        return cell


def observe(cells: MutableSequence[float], first: int, bounds: tuple[float, ...], value: float) -> None:
    """Count ``value`` in the histogram that begins at ``first``."""
    cells[first + bisect_left(bounds, value)] += 1.0
    cells[first + len(bounds) + 1] += value


def observe_gaps(cells: MutableSequence[float], first: int, attempt: AttemptRecord) -> None:
    """Add an answer's gaps to the histogram that begins at ``first``; their sum is from the first to the last chunk."""
    number = 0
    for bucket, gaps in (attempt.itl or {}).items():
        cells[first + _GAPS_AT[bucket]] += gaps
        number += gaps
    if number and attempt.last_token_ms is not None and attempt.ttft_ms is not None:
        between = max(number, (attempt.chunks or 0) - 1)  # of very long answers some gaps are not kept
        cells[first + len(GAP_BUCKETS) + 1] += (attempt.last_token_ms - attempt.ttft_ms) / 1000 * number / between


# The cells of all models, deployments and clients: each is looked up once, until the configuration changes.

ADHOC_LABEL = "adhoc"  # names invented by clients must not become time series
ANONYMOUS = "anonymous"  # calls without a key
MOST_CLIENTS = 1000  # with series of their own; an admin may make any number of keys
OTHER_CLIENTS = "(others)"


# Returns what tells, of a model under a pattern and of its deployment, their names in the file; None: it is under none.
ShownAs = Callable[[], Callable[..., tuple[str, str | None] | None]]


class KnownCells:
    """The cells of the currently configured models, and of clients."""

    __slots__ = ("_deployments", "_known_models", "_looked_up_in", "_models", "_series", "_shown_as", "clients")

    def __init__(self, series: Series, known_models: Callable[[], Mapping[str, object]], shown_as: ShownAs) -> None:
        self._series = series
        self._shown_as = shown_as
        self._known_models = known_models
        self._looked_up_in: object = None  # the known models for which the following was looked up
        self._models: dict[str, ModelCells] = {}
        self._deployments: dict[tuple[str, str], DeploymentCells] = {}  # by model and name, only known ones
        self.clients: dict[str | None, ClientCells] = {}

    def model(self, name: str) -> ModelCells:
        """Return the cells of a model; all unknown ones share a label."""
        models = self._known_models()
        if models is not self._looked_up_in:
            self._look_again(models)
        found = self._models.get(name)
        if found is None:
            known = name in models
            if not known and (shown := self._shown_as()(name)) is not None:
                return self.model(shown[0])
            found = ModelCells(self._series, name if known else ADHOC_LABEL)
            if known:
                self._models[name] = found
        return found

    def deployment(self, model: str, name: str) -> DeploymentCells:
        """Return the cells of a deployment of ``model``; those of unknown models share a label."""
        models = self._known_models()
        if models is not self._looked_up_in:
            self._look_again(models)
        found = self._deployments.get((model, name))
        if found is None:
            known = model in models
            if not known and (shown := self._shown_as()(model, name)) is not None:
                return self.deployment(shown[0], shown[1] or name)
            found = DeploymentCells(self._series, name if known else ADHOC_LABEL)
            if known:
                self._deployments[model, name] = found
        return found

    def client(self, name: str | None) -> ClientCells:
        """Return the cells of a client that is not among ``clients``; None: calls without a key."""
        if len(self.clients) < MOST_CLIENTS:
            made = self.clients[name] = ClientCells(self._series, ANONYMOUS if name is None else name)
            return made
        return ClientCells(self._series, OTHER_CLIENTS)

    def _look_again(self, models: Mapping[str, object]) -> None:
        """Look everything up again after a change of the configuration."""
        self._looked_up_in = models
        self._models, self._deployments = {}, {}
