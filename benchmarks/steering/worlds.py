"""The worlds: providers and weather as data.

Eight that most of the policy's constants were tuned on, some held out, and those that show a weakness the policy has
had: constants that came with its mending were tried on them (docs/policy.md#constants says which).
"""

from math import exp
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.prompt_classes import Effort

TIMEOUT_S = 120.0  # a hung attempt ends so
CAPACITY_POWER = 4  # waiting grows as 1 + (in flight / seats)^4: felt from half full, x 2 when full
QUEUE_MAX = 10.0
STALL_S = 5.0
COLD_AFTER_S = 60.0
SIZE_SIGMA = 0.5  # of the logarithm of a prompt's and an answer's length
SIZE_MEAN = exp(SIZE_SIGMA**2 / 2)  # of a length, over its median


class Provider(Struct, frozen=True, kw_only=True):
    """One deployment as it is on a calm day."""

    name: str
    median_s: float  # time to first token without prefill
    sigma: float  # of its logarithm
    tail_share: float  # of attempts that are slower x lognormal(6, .5)
    prefill_s: float  # per 1,000 prompt tokens
    tok_s: float
    error_share: float
    hang_share: float = 0.0  # of attempts that never have a first token
    seats: float | None = None  # in flight when its queue doubles the time to first token; None: it never queues
    account: float | None = None  # share of the world's traffic its rate limit lets through; None: no limit
    usd_per_mtok: float = 1.0  # input; output costs three times that
    joins: float = 0.0  # share of the run after which it is there
    stalls: float = 0.0  # share of its answers with STALL_S of silence after the first token
    fakes_from: float = 1.0  # share of the run after which it sends whole answers at their end
    flawed_share: float = 0.0  # of whole answers that are of no use to who asked
    slow_mode: tuple[float, float] | None = None  # share of attempts in a second mode, and how many times slower it is
    pareto: float | None = None  # shape of its time to first token in place of a lognormal; 1.5 has no variance
    cold_s: float = 0.0  # added to the first token if it was not asked for COLD_AFTER_S
    servers: int | None = None  # answers that it writes at a time; others wait for one of them to end
    batch: float | None = None  # requests that slow each other down: with so many in flight all is twice as slow


class Outages(Struct, frozen=True):
    """One provider at a time hangs, errs or slows, in turn for ``lasts_s`` at the end of every ``every_s``."""

    every_s: float = 180.0
    lasts_s: float = 90.0
    error_share: float = 0.9
    slow: float = 6.0


class Spell(Struct, frozen=True, kw_only=True):
    """What goes wrong with one provider, again and again: from ``begins_s`` on, every ``every_s`` for ``lasts_s``."""

    provider: str
    begins_s: float
    lasts_s: float
    every_s: float
    slow: float | None = None  # times as slow; None: it hangs, or
    refuses: bool = False  # fails at once


class Kind(Struct, frozen=True):
    """A kind of work: share of the traffic, median prompt and answer in tokens, and what a request says of it."""

    share: float
    prompt_tokens: float
    answer_tokens: float
    endpoint: str = "chat.completions"
    task: str | None = None  # a tag
    client: str | None = None
    max_tokens: int | None = None
    structured: bool = False  # tools or JSON
    effort: Effort | None = None  # to think, as the request says
    thinks: float = 1.0  # its time to first token, over that of others


KINDS = (Kind(0.55, 700, 220), Kind(0.25, 2500, 40), Kind(0.20, 900, 900))  # chat, extraction, long writing


class World(Struct, frozen=True, kw_only=True):
    """Providers, their weather and the traffic."""

    name: str
    providers: tuple[Provider, ...]
    calls_per_s: float = 8.0
    replicas: int = 1
    drift_sd: float = 0.10  # of log TTFT, Ornstein-Uhlenbeck, each provider on its own
    drift_tau_s: float = 400.0
    shared_sd: float = 0.05  # the same, all providers together
    request_sd: float = 0.10  # of log TTFT, one request at all providers
    day: float = 0.10  # amplitude of the time of day, one day per run, each provider at its own phase
    outages: Outages | None = None
    spell: Spell | None = None
    spells: tuple[Spell, ...] = ()  # of others
    region_slow: float = 1.0  # two regions, each slow together for 60 s in about 240 s
    burst: float = 1.0  # traffic in 10 s of every 60 s, over that of the rest
    fallback: tuple[Provider, ...] = ()  # another model's, which is asked beside this one when that is late
    together: int = 0  # calls that begin at the same instant once a minute, besides the others
    windows: bool = False  # accounts are counted by the minute, and begin again with the next; else they refill
    tells: bool = True  # answers say what is left of an account
    counts_tokens: bool = False  # accounts count the tokens of prompts and answers; else requests
    held_out: bool = False  # nothing was chosen with it in view
    calls_share: float = 1.0  # of the calls asked for: slow worlds would last for days
    prices: bool = False  # prices differ, and the objective cost is run too
    ttft_goal_s: float = 1.0  # the deadline: of the objective cost, and of others that are run with one
    kinds: tuple[Kind, ...] = KINDS

    @property
    def mean_tokens(self) -> float:
        """Return the tokens of a request, prompt and answer, in the mean."""
        return sum(each.share * (each.prompt_tokens + each.answer_tokens) for each in self.kinds) * SIZE_MEAN


def _providers(medians_s: tuple[float, ...], tok_s: tuple[float, ...]) -> tuple[Provider, ...]:
    rows = zip(
        ("alder", "birch", "cedar", "dogwood", "elm", "fir"),
        medians_s,
        (0.35, 0.18, 0.40, 0.30, 0.60, 0.40),
        (0.02, 0.004, 0.03, 0.01, 0.06, 0.03),
        (0.030, 0.045, 0.012, 0.02, 0.10, 0.06),
        tok_s,
        (0.003, 0.001, 0.006, 0.004, 0.01, 0.003),
        strict=True,
    )
    return tuple(
        Provider(name=a, median_s=b, sigma=c, tail_share=d, prefill_s=e, tok_s=f, error_share=g)
        for a, b, c, d, e, f, g in rows
    )


def _each(providers: tuple[Provider, ...], field: str, values: tuple[float | None, ...]) -> tuple[Provider, ...]:
    return tuple(replace(each, **{field: value}) for each, value in zip(providers, values, strict=True))


_SIX = _providers((0.25, 0.33, 0.28, 0.36, 0.60, 0.45), (90, 70, 500, 1500, 40, 60))
_DECODERS = _providers((0.22, 0.33, 0.40, 0.50, 0.28, 0.45), (45, 70, 500, 1500, 40, 60))
_SEATS = (18.0, 18.0, 8.0, 5.0, 40.0, 24.0)
_ACCOUNTS = (0.30, None, 0.25, 0.20, None, None)
_PRICES = (3.0, 0.9, 1.5, 2.0, 0.3, 0.6)
_SIZES = _each(
    _each(_SIX, "median_s", (0.15, 0.50, 0.30, 0.70, 0.22, 0.60)), "prefill_s", (0.30, 0.020, 0.12, 0.005, 0.25, 0.040)
)  # who is best depends on the prompt: up to about 800 tokens, up to 2,000, beyond
_ONE_BEST = _each(_SIX, "median_s", (0.16, 0.33, 0.28, 0.36, 0.60, 0.45))
# From the first to start, which writes slowly, to the last, which writes fast: who is best is a matter of length.
_SPREAD = _providers((0.15, 0.25, 0.40, 0.60, 0.90, 1.20), (40, 70, 150, 400, 60, 1500))
_MIXED_KINDS = (
    Kind(0.20, 600, 5, endpoint="completions", max_tokens=8),
    Kind(0.15, 2500, 40, task="extract", structured=True),
    Kind(0.20, 700, 220, task="chat"),
    Kind(0.10, 900, 900, task="write", max_tokens=4096),
    Kind(0.10, 6000, 4000, client="agent", max_tokens=16_000),
    Kind(0.15, 80, 20),  # these two by the size of the prompt alone
    Kind(0.10, 5000, 700),
)
# One model of one vendor in two service tiers: at half the price slower, and now and then much slower.
_TIERS = (
    Provider(name="flex", median_s=0.40, sigma=0.35, tail_share=0.04, prefill_s=0.03, tok_s=80, error_share=0.004),
    Provider(
        name="standard",
        median_s=0.20,
        sigma=0.25,
        tail_share=0.01,
        prefill_s=0.03,
        tok_s=100,
        error_share=0.0,  # of two, both would fail now and then, whatever the policy
        usd_per_mtok=2.0,
    ),
)
_NEWCOMER = Provider(
    name="ginkgo", median_s=0.16, sigma=0.3, tail_share=0.01, prefill_s=0.02, tok_s=400, error_share=0.003, joins=0.5
)

TUNED = (
    World(name="calm", providers=_SIX, drift_sd=0.0, shared_sd=0.0, day=0.0),
    World(name="drift", providers=_SIX, drift_sd=0.45, drift_tau_s=240.0, day=0.25),
    World(name="outage", providers=_SIX, outages=Outages()),
    World(name="ratelimit", providers=_each(_SIX, "account", _ACCOUNTS)),
    World(name="correlated", providers=_SIX, request_sd=0.45, shared_sd=0.35, region_slow=2.5),
    World(name="decode", providers=_DECODERS),
    World(name="herd", providers=_each(_SIX, "seats", _SEATS), replicas=4),
    World(
        name="mixed",
        providers=_each(
            _each(_SIX, "seats", tuple(2 * seats for seats in _SEATS)),
            "account",
            tuple(account and 1.5 * account for account in _ACCOUNTS),
        ),
        replicas=4,
        drift_sd=0.25,
        drift_tau_s=240.0,
        request_sd=0.20,
        shared_sd=0.15,
        day=0.15,
        outages=Outages(every_s=240.0, lasts_s=60.0, slow=4.0),
        region_slow=1.6,
    ),
)

HELD_OUT = (
    World(name="newcomer", providers=(*_SIX, _NEWCOMER), held_out=True),
    World(
        name="fake",
        providers=tuple(replace(each, fakes_from=0.4) if each.name == "cedar" else each for each in _SIX),
        held_out=True,
    ),
    World(name="prices", providers=_each(_SIX, "usd_per_mtok", _PRICES), held_out=True, prices=True),
    World(
        name="quiet", providers=_SIX, calls_per_s=0.1, drift_sd=0.3, drift_tau_s=1800.0, held_out=True, calls_share=0.25
    ),
    World(
        name="busy",
        providers=_each(_SIX, "seats", tuple(8 * seats for seats in _SEATS)),
        calls_per_s=50.0,
        replicas=4,
        drift_sd=0.3,
        drift_tau_s=120.0,
        held_out=True,
    ),
)

# Each shows one weakness that the policy has had.
WEAKNESSES = (
    World(name="bursts", providers=_each(_SIX, "seats", tuple(1.5 * seats for seats in _SEATS)), burst=6.0, replicas=2),
    World(
        name="flawed",  # the fastest starter's answers are often of no use
        providers=_each(_SIX, "flawed_share", (0.30, 0.01, 0.01, 0.01, 0.01, 0.01)),
    ),
    World(
        name="hang",
        providers=_ONE_BEST,
        calls_per_s=4.0,
        spell=Spell(provider="alder", begins_s=180.0, lasts_s=120.0, every_s=720.0),
        calls_share=1.8,
    ),
    World(
        name="longhang",
        providers=_ONE_BEST,
        calls_per_s=4.0,
        spell=Spell(provider="alder", begins_s=120.0, lasts_s=840.0, every_s=1800.0),
        calls_share=2.5,
    ),
    World(
        name="slowdown",
        providers=_ONE_BEST,
        calls_per_s=4.0,
        spell=Spell(provider="alder", begins_s=180.0, lasts_s=120.0, every_s=720.0, slow=10.0),
        calls_share=1.8,
    ),
    World(
        name="replicas",
        providers=_SIX,
        replicas=4,
        spell=Spell(provider="alder", begins_s=180.0, lasts_s=60.0, every_s=240.0),
    ),
    World(name="minute", providers=_SIX, calls_per_s=1 / 60, calls_share=0.25),
    World(name="fiveminutes", providers=_SIX, calls_per_s=1 / 300, calls_share=0.25),
    World(name="sizes", providers=_SIZES),
    World(name="tight", providers=_each(_SIX, "usd_per_mtok", _PRICES), prices=True, ttft_goal_s=0.25),
    World(name="deadlines", providers=_TIERS, held_out=True, prices=True),
    World(name="stalls", providers=(replace(_SIX[0], median_s=0.15, stalls=0.42), *_SIX[1:])),
    World(name="kinds", providers=_SPREAD, kinds=_MIXED_KINDS),
)


def _alike(name: str, number: int, **own: Any) -> tuple[Provider, ...]:
    """Return providers that differ in their draws only."""
    one = Provider(name=name, median_s=0.3, sigma=0.35, tail_share=0.02, prefill_s=0.03, tok_s=80, error_share=0.003)
    return tuple(replace(one, name=f"{name}{index}", **own) for index in range(number))


def _spells(names: str, *, begins_s: float, lasts_s: float, every_s: float, **own: Any) -> tuple[Spell, ...]:
    return tuple(
        Spell(provider=name, begins_s=begins_s, lasts_s=lasts_s, every_s=every_s, **own) for name in names.split()
    )


_LIMITED = tuple(replace(each, account=1.25 / len(_SIX)) for each in _SIX)  # all together a quarter more than needed
_BIMODAL = tuple(replace(each, tail_share=0.0, slow_mode=(0.2, 8.0)) for each in _SIX)
_THINKERS = _each(_alike("thinks", 6, tail_share=0.005), "median_s", (25.0, 30.0, 35.0, 42.0, 50.0, 60.0))
# One in a hundred never answers. Half of the calls ask for high effort, and have their first token fifty times later.
_HANGING = tuple(replace(each, median_s=0.6, tail_share=0.0, slow_mode=(0.01, 1e6)) for each in _SIX[:2])
_THINKING = (Kind(0.5, 700, 220, effort=Effort.LOW), Kind(0.5, 700, 900, effort=Effort.HIGH, thinks=50.0))
_SAME_FAULT = {"begins_s": 120.0, "lasts_s": 60.0, "every_s": 240.0}

# Where others saw the policy weak, or might: nothing was tuned to them but what docs/policy.md#constants names.
HARD = (
    World(
        name="alternate",  # fast and slow swap every five minutes
        providers=_ONE_BEST[:4],
        calls_per_s=2.0,
        spells=(
            *_spells("alder", begins_s=0.0, lasts_s=300.0, every_s=600.0, slow=4.0),
            *_spells("birch", begins_s=300.0, lasts_s=300.0, every_s=600.0, slow=4.0),
        ),
    ),
    World(name="cold", providers=_each(_SIX, "cold_s", (5.0,) * 6), calls_per_s=0.2, calls_share=0.5),
    World(name="rare", providers=_SIX, calls_per_s=1 / 600, drift_sd=0.3, drift_tau_s=14_400.0, calls_share=0.25),
    World(
        name="flapping",
        providers=_ONE_BEST,
        calls_per_s=4.0,
        spells=(
            *_spells("alder", begins_s=0.0, lasts_s=30.0, every_s=60.0, refuses=True),
            *_spells("cedar", begins_s=30.0, lasts_s=30.0, every_s=60.0),
        ),
    ),
    World(name="halfhang", providers=_SIX, spells=_spells("alder cedar birch", **_SAME_FAULT)),
    World(name="halfslow", providers=_SIX, spells=_spells("alder cedar birch", slow=6.0, **_SAME_FAULT)),
    World(name="batch", providers=_each(_SIX, "batch", (12.0, 10.0, 8.0, 6.0, 30.0, 16.0)), replicas=2),
    World(name="servers", providers=_each(_SIX, "servers", (8, 12, 4, 4, 30, 20)), replicas=2),
    World(
        name="volleys",  # bursts of 200
        providers=_each(_SIX, "seats", tuple(3 * seats for seats in _SEATS)),
        calls_per_s=2.0,
        together=200,
    ),
    World(name="crossover", providers=_each(_SIZES[:2], "prefill_s", (0.40, 0.01))),
    World(
        name="twenty",  # of which two are good
        providers=(*_alike("slow", 18, median_s=0.9), *_alike("good", 2)),
    ),
    World(name="pareto", providers=_each(_SIX, "pareto", (1.5,) * 6)),
    World(name="bimodal", providers=_BIMODAL),
    World(name="onebimodal", providers=(_BIMODAL[0], *_each(_SIX[1:], "median_s", (0.6, 0.7, 0.8, 0.9, 1.0)))),
    World(
        name="thinking",  # the first token comes after seconds of hidden reasoning, as long as the call is hard
        providers=_each(_SIX, "median_s", (4.0, 5.0, 3.5, 6.0, 8.0, 5.0)),
        calls_per_s=2.0,
        request_sd=0.8,
    ),
    World(name="slowthink", providers=_THINKERS, calls_per_s=0.5),  # the first visible token takes up to a minute
    World(name="twoslow", providers=_THINKERS[:2], calls_per_s=0.5),
    World(name="thinkmix", providers=_HANGING, calls_per_s=1.0, kinds=_THINKING),
    World(  # half of the calls think for 40 s, and nothing says which
        name="unseen",
        providers=_each(_each(_SIX[:3], "median_s", (0.6,) * 3), "tail_share", (0.0,) * 3),
        calls_per_s=1.0,
        kinds=(Kind(0.5, 700, 220), Kind(0.5, 700, 900, thinks=66.0)),
    ),
    World(name="allbad", providers=_each(_each(_SIX, "error_share", (0.3,) * 6), "tail_share", (0.2,) * 6)),
    World(name="equal", providers=_alike("same", 6)),
    World(  # no rival ever wins
        name="constant",
        providers=tuple(
            Provider(name=name, median_s=s, sigma=0.0, tail_share=0.0, prefill_s=0.0, tok_s=80, error_share=0.0)
            for name, s in (("near", 0.3), ("far", 0.5), ("farthest", 0.9))
        ),
        drift_sd=0.0,
        shared_sd=0.0,
        request_sd=0.0,
        day=0.0,
    ),
    World(name="region", providers=_SIX, region_slow=8.0),
    World(name="limited", providers=_LIMITED, windows=True, tells=False),
    World(name="told", providers=_LIMITED, windows=True),
    World(name="refilled", providers=_LIMITED, tells=False),
    World(  # the second best, that a race launches beside the best
        name="racerhang",
        providers=_ONE_BEST,
        calls_per_s=4.0,
        spell=Spell(provider="cedar", begins_s=180.0, lasts_s=120.0, every_s=720.0),
    ),
    World(name="slowday", providers=_SIX, calls_per_s=1 / 60, drift_sd=0.4, drift_tau_s=7200.0, calls_share=0.25),
    World(  # a free tier beside four that are as fast and have no limit
        name="freetier",
        providers=_each(_alike("same", 5), "account", (0.05, None, None, None, None)),
        windows=True,
        tells=False,
    ),
    World(name="nofreetier", providers=_alike("same", 5)[1:]),  # the same without it
    World(  # all have windows, of different sizes; together half more than needed
        name="allwindows",
        providers=_each(_SIX, "account", (0.30, 0.25, 0.25, 0.20, 0.30, 0.20)),
        windows=True,
        tells=False,
    ),
    World(  # each takes half of the traffic
        name="halffull", providers=_each(_SIX, "account", (0.5,) * 6), windows=True, tells=False
    ),
    World(name="tokenwindows", providers=_LIMITED, windows=True, tells=False, counts_tokens=True),
    World(name="tokenstold", providers=_LIMITED, windows=True, counts_tokens=True),
    World(name="limitedpair", providers=_each(_SIX[:2], "account", (0.625, 0.625)), windows=True, tells=False),
)


def _lone(name: str, *, spells: tuple[Spell, ...] = (), **own: Any) -> World:
    """Return a world of one deployment with a median of 0.6 s, and a fallback that always answers."""
    other = Provider(name="other", median_s=0.6, sigma=0.35, tail_share=0.0, prefill_s=0.0, tok_s=80, error_share=0.0)
    lone = replace(other, name="lone", **own)
    return World(name=name, providers=(lone,), fallback=(other,), calls_per_s=1.0, spells=spells)


# What a fallback beside a late model does (benchmarks/steering/beside.py).
BESIDE = (
    _lone("silent1", hang_share=0.01),
    _lone("silent5", hang_share=0.05),
    _lone("thinks", median_s=30.0),
    _lone("begins", spells=_spells("lone", begins_s=600.0, lasts_s=1e6, every_s=1e6, slow=50.0)),  # to think
    _lone("spells", spells=_spells("lone", begins_s=300.0, lasts_s=30.0, every_s=300.0, slow=30.0)),
)

WORLDS = {world.name: world for world in (*TUNED, *HELD_OUT, *WEAKNESSES, *HARD)}
