"""A scenario: who asks what and when, how providers behave, what happens meanwhile. Drawn from a seed, or written."""

from random import Random
from typing import Any

import msgspec

from tests.support.behaviour import NEVER_S, Behaviour

PROVIDERS = ("ada", "bee", "cid", "dot")
DIALECTS = ("chat", "messages", "responses", "completions")
KEY = "hs-of-the-only-client"
MODEL, OTHER_MODEL, SPARE_MODEL, VECTORS, VOICE = "raced", "other", "spare", "vectors", "voice"
LONE_MODEL = "lone"  # one deployment; ``spare`` is its fallback
SPARE_VOICE = "spare-voice"  # the fallback of ``voice``, where there is to be one
SPARE_VECTORS = "spare-vectors"  # likewise, of ``vectors``, with the same model

TTFT_S, STALL_S, TOTAL_S = 1.5, 1.0, 20.0

REFUSALS = (
    "connect_error",
    "connect_timeout",
    "rate_limited",
    "server_error",
    "provider_auth",
    "bad_request",
    "not_found",
    "disconnected",
    "local_resources",
)
VALID_SHARE = 0.15  # of the scenarios are about win_on: valid
RIVAL_SHARE = 0.25  # are about race.keep_rival
HOLD_SHARE = 0.25  # are about race.hold
RESCUE_SHARE = 0.2  # are about takeover.slow
MODELS_SHARE = 0.2  # are about several models, all kinds of answers, and limits
UNREAD_SHARE = 0.2  # of what is asked there is for vectors, whose answers are not read
BLANK_SHARE = 0.15  # of the answers there begin with empty lines
OPEN_SHARE = 0.1  # have bodies that stay open after their answer, for good
HABITS = ("repeats", "trims", "no word", "two words", "anew", "reasoning", "tool")  # the first two continue a text
LIES = ("garbage", "error_event", "empty", "html", "no_finish", "foreign_shape")


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a client."""

    dialect: str = "chat"  # or embeddings, speech
    key: str | None = None
    model: str = MODEL
    stream: bool = True
    wants_usage: bool = False
    prompt: int = 20  # characters
    max_tokens: int | None = None
    race: str | None = None  # x-holeshot-race
    fallback: str | None = None  # a model of its own
    deadline_ms: float | None = None
    pieces: int = 1  # reads in which it arrives
    waits_s: float = 0.0  # since the answer before it
    json: bool = False  # JSON is asked for; only in chat
    order: tuple[str, ...] = ()  # providers, which are asked in this order


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A connection, and what is asked on it one after the other. Seconds count from its first byte."""

    at_s: float
    asks: tuple[Ask, ...]
    leaves_s: float | None = None
    stops_reading_s: float | None = None
    reads_on_s: float | None = None  # None: never
    buffer_bytes: int = 2000  # taken by the network before it says that it is full


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    seed: int
    shuffle: float = 0.0
    race: dict[str, Any] = {}  # of the raced model
    max_in_flight: dict[str, int] = {}  # by provider
    queue_timeout_s: float = 2.0
    most_calls: int | None = None  # at once; None: as many as there is memory for
    queue: int = 8  # calls that may wait for one of these seats
    queue_wait_s: float = 0.1
    keepalive_s: float | None = None
    behaviours: dict[str, tuple[Behaviour, ...]] = {}  # by provider, in turn
    clients: tuple[Client, ...] = ()
    remembered: dict[str, tuple[float, float]] = {}  # by provider: TTFT in seconds and tok/s, as the ledger knows them
    reloads: tuple[float, ...] = ()  # each takes a provider away, or brings it back with other limits
    shutdown_s: float | None = None  # None: when all is over
    grace_s: float = 1.0
    has_clients: bool = False  # one, whose key is KEY
    takeover: dict[str, Any] | None = None  # of the raced model
    continues: str = "prefix"  # how deployments continue a text, where there is takeover; or no
    usual_tps: dict[str, float] = {}  # by provider: what is known of its speed
    known_streams: dict[str, int] = {}  # by provider: streams of before, none of which paused
    stall_s: float = STALL_S
    ttft_s: float = TTFT_S
    total_s: float = TOTAL_S
    models: dict[str, Any] = {}  # more of them, as a configuration has them
    settings: dict[str, dict[str, Any]] = {}  # further ones of the usual models
    limits: dict[str, float] = {}  # of the client

    def written(self) -> str:
        """Return it as JSON."""
        return msgspec.json.encode(self).decode()


def read(text: str) -> Scenario:
    """Return the scenario of ``written``."""
    return msgspec.json.decode(text, type=Scenario)


def drawn(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rescues, opens = Random(f"{seed} rescue").random() < RESCUE_SHARE, Random(f"{seed} opens")
    is_valid = Random(f"{seed} valid").random() < VALID_SHARE  # few find a defect there
    if Random(f"{seed} together").random() < MODELS_SHARE and not is_valid:
        scenario = of_models(seed)
    else:
        scenario = dribbling(seed) if rescues else _raced(seed)
    return _left_open(scenario, opens) if opens.random() < OPEN_SHARE else scenario


def _raced(seed: int) -> Scenario:
    scenario, dice = _drawn(seed), Random(f"{seed} valid")
    if dice.random() < VALID_SHARE:
        scenario = _valid(scenario, dice)
    if Random(f"{seed} hold").random() < HOLD_SHARE:
        scenario = _held(scenario, dice)
    return _kept(scenario, dice) if Random(f"{seed} rival").random() < RIVAL_SHARE else scenario


def of_models(seed: int) -> Scenario:
    """Return a scenario of models that are asked beside each other, for all kinds of answers, and under limits."""
    scenario, dice, unread = _drawn(seed), Random(f"{seed} models"), Random(f"{seed} unread")
    chain = {MODEL: [OTHER_MODEL, SPARE_MODEL], OTHER_MODEL: [SPARE_MODEL], LONE_MODEL: [SPARE_MODEL]}
    chain[VOICE] = [SPARE_VOICE]
    settings: dict[str, dict[str, Any]] = {
        name: {"fallbacks": fallbacks, "fallback_after": dice.choice(("auto", "failure", 0.05, 0.1, 0.3))}
        for name, fallbacks in chain.items()
    }
    for name in (OTHER_MODEL, VECTORS, VOICE, SPARE_VOICE):
        settings[name] = {**settings.get(name, {}), "race": _race(dice)}
    late = unread.choice(("auto", "failure", 0.05, 0.1, 0.3))
    settings[VECTORS] |= {"fallbacks": [SPARE_VECTORS], "fallback_after": late}
    for name in (MODEL, SPARE_MODEL, VOICE):
        if dice.random() < 0.15:
            settings.setdefault(name, {})["usd_per_day"] = dice.choice((0.0, 0.0001, 1.0))
    takes_over = dice.random() < 0.3
    return msgspec.structs.replace(
        scenario,
        settings=settings,
        takeover={"when": "always"} if takes_over else None,
        behaviours={
            name: tuple(_silent_or_whole(each, dice, prose=takes_over) for each in several)
            for name, several in scenario.behaviours.items()
        },
        clients=tuple(
            msgspec.structs.replace(client, asks=tuple(_asked_of_models(ask, dice, unread) for ask in client.asks))
            for client in scenario.clients
        ),
        has_clients=True,
        limits=_limits(dice),
    )


def _silent_or_whole(behaviour: Behaviour, dice: Random, *, prose: bool) -> Behaviour:
    changes: dict[str, Any] = {"prose": True, "thoughts": 0} if prose else {}
    if dice.random() < 0.2:
        changes |= dice.choice(({"opens_s": NEVER_S}, {"first_s": 0.5}, {"breaks_at": dice.randint(0, 3)}))
    return msgspec.structs.replace(behaviour, **changes)


def _asked_of_models(ask: Ask, dice: Random, unread: Random) -> Ask:
    if dice.random() < 0.2:
        return Ask(dialect="speech", key=KEY, model=VOICE, stream=False, deadline_ms=ask.deadline_ms)
    if unread.random() < UNREAD_SHARE:
        return Ask(dialect="embeddings", key=KEY, model=VECTORS, stream=False, deadline_ms=ask.deadline_ms)
    if ask.dialect in {"embeddings", "speech"}:
        return msgspec.structs.replace(ask, key=KEY)
    model = dice.choice((MODEL, MODEL, OTHER_MODEL, LONE_MODEL))
    return msgspec.structs.replace(ask, key=KEY, model=model, stream=dice.random() < 0.5)


def _limits(dice: Random) -> dict[str, float]:
    """Return limits of the client; some are reached."""
    found: dict[str, float] = {}
    if dice.random() < 0.2:
        found["rpm"] = dice.choice((1, 3, 100))
    if dice.random() < 0.2:
        found["tpm"] = dice.choice((50, 2_000, 100_000))
    if dice.random() < 0.2:
        found["max_parallel"] = dice.choice((1, 2))
    if dice.random() < 0.2:
        found["usd_per_day"] = dice.choice((0.0001, 0.01, 1.0))
    return found


def dribbling(seed: int, clients: int | None = None, shuffle: float | None = None) -> Scenario:
    """Return a scenario whose streams become slow, break, or both, and others may go on with them.

    With ``clients``: so many that ask once, of whom few leave.
    """
    dice, blank = Random(f"{seed} dribbles"), Random(f"{seed} blanks")
    several = clients or dice.choice((1, 1, 2, 4))
    return Scenario(
        seed=seed,
        shuffle=dice.choice((0.0, 0.1, 0.5, 1.0, 1.0)) if shuffle is None else shuffle,
        race={"mode": "single", "budget": 0.0, "audit_share": 0.0},
        max_in_flight={name: 1 for name in PROVIDERS if clients is None and dice.random() < 0.1},
        takeover={
            "when": "always",
            "within_s": dice.choice((2.0, 10.0, 30.0)),
            "slow": {"budget": dice.choice((0.02, 1.0)) if clients is None else 1.0},
        },
        usual_tps={name: dice.choice((40.0, 100.0)) for name in PROVIDERS if clients or dice.random() < 0.9},
        keepalive_s=dice.choice((None, None, 0.5)),
        stall_s=6.0,
        total_s=300.0,
        behaviours={
            name: tuple(_begun_blank(_dribble(dice), blank) for _ in range(clients or dice.randint(1, 4)))
            for name in PROVIDERS
        },
        clients=tuple(_dribbled(dice, often=clients is None) for _ in range(several)),
        shutdown_s=dice.random() * 10 if clients is None and dice.random() < 0.1 else None,
        grace_s=dice.choice((0.0, 1.0)),
    )


def spoken(seed: int) -> Scenario:
    """Return a scenario of callers who listen: as ``dribbling``, but raced, and most providers say the same."""
    scenario, dice = dribbling(seed), Random(f"{seed} spoken")
    alike, raced = dice.random() < 0.7, dice.random() < 0.85
    race = {
        "profile": "voice",
        "audit_share": dice.choice((0.0, 0.0, 0.5)),
        "sentence_words": dice.choice((1, 2, 3)),
        **({"keep_rival": False} if dice.random() < 0.1 else {}),
    }
    return msgspec.structs.replace(
        scenario,
        race=race,
        continues=dice.choice(("prefix", "no")),
        behaviours={
            name: tuple(msgspec.structs.replace(each, alike=alike) for each in several)
            for name, several in scenario.behaviours.items()
        },
        clients=tuple(
            msgspec.structs.replace(client, asks=tuple(map(_in_no_order, client.asks))) if raced else client
            for client in scenario.clients
        ),
    )


def _in_no_order(ask: Ask) -> Ask:
    return msgspec.structs.replace(ask, order=None)


def _dribble(dice: Random) -> Behaviour:
    words = dice.randint(4, 40)
    slow_at = dice.randint(1, words) if dice.random() < 0.7 else None
    recovers, breaks = slow_at is not None and dice.random() < 0.3, dice.random() < 0.3
    return Behaviour(
        opens_s=dice.choice((0.0, 0.01, 0.3)),
        first_s=dice.choice((0.01, 0.05, 0.5)),
        gap_s=dice.choice((0.0, 0.01, 0.05)),
        tokens=words,
        prose=True,
        slow_at=slow_at,
        fast_at=slow_at + dice.randint(2, 12) if recovers and slow_at is not None else None,
        slow_gap_s=1.0 / dice.uniform(0.8, 2.0),
        breaks_at=dice.randint(1, 2 * words) if breaks else None,
        stalls_at=dice.randint(1, words // 2) if dice.random() < 0.05 else None,
        lie=dice.choice(("no_finish", "garbage")) if dice.random() < 0.05 else None,
        refusal=dice.choice(REFUSALS) if dice.random() < 0.06 else None,
        per_read=dice.choice((1, 1, 1, 2, 100)),
        torn=dice.random() < 0.1,
        habit=dice.choice(HABITS) if dice.random() < 0.5 else dice.choice(HABITS[:2]),
    )


def _begun_blank(behaviour: Behaviour, dice: Random) -> Behaviour:
    """Return one that may begin with empty lines, and be slow before there is anything to see."""
    if dice.random() < BLANK_SHARE:
        slow_at = dice.choice((behaviour.slow_at, 1, 2))
        return msgspec.structs.replace(behaviour, blanks=dice.randint(1, 8), slow_at=slow_at)
    return behaviour


def _dribbled(dice: Random, *, often: bool) -> Client:
    stops = dice.random() * 8 if dice.random() < 0.15 else None
    ask = Ask(
        dialect=dice.choice(("chat", "chat", "completions", "messages", "responses")),
        wants_usage=dice.random() < 0.3,
        order=tuple(dice.sample(PROVIDERS, len(PROVIDERS))),
    )
    return Client(
        at_s=dice.choice((0.0, 0.05, dice.random())) if often else dice.random() * 100,
        asks=(ask,),
        leaves_s=dice.random() * 15 if dice.random() < (0.2 if often else 0.03) else None,
        stops_reading_s=stops,
        reads_on_s=None if stops is None else stops + dice.choice((0.01, 0.5, 3.0)),
        buffer_bytes=dice.choice((0, 500, 50_000)),
    )


def _drawn(seed: int) -> Scenario:
    dice = Random(seed)
    calm, knows = dice.random() < 0.15, dice.random() < 0.5
    return Scenario(
        seed=seed,
        shuffle=dice.choice((0.0, 0.1, 0.5, 1.0, 1.0)),
        race=_race(dice),
        max_in_flight={name: dice.choice((1, 2, 3)) for name in PROVIDERS if dice.random() < 0.3},
        queue_timeout_s=dice.choice((0.0, 0.05, 0.5, 2.0)),
        keepalive_s=0.05 if dice.random() < 0.15 else None,
        behaviours={
            name: tuple(_behaviour(dice, calm=calm or dice.random() < 0.5) for _ in range(dice.randint(1, 4)))
            for name in PROVIDERS
        },
        clients=tuple(_client(dice) for _ in range(dice.choice((1, 1, 2, 3, 4, 6)))),
        remembered={
            name: (dice.choice((0.02, 0.1, 0.5)), dice.choice((5.0, 30.0, 300.0)))
            for name in PROVIDERS
            if knows and dice.random() < 0.8
        },
        reloads=tuple(sorted(dice.random() * 2 for _ in range(dice.choice((0, 0, 0, 1, 2))))),
        shutdown_s=dice.random() * 2 if dice.random() < 0.15 else None,
        grace_s=dice.choice((0.0, 0.05, 1.0)),
        most_calls=dice.choice((1, 1, 2, 3)) if dice.random() < 0.3 else None,
        queue=dice.choice((0, 1, 2, 32)),
        queue_wait_s=dice.choice((0.01, 0.1, 2.0)),
    )


def _valid(scenario: Scenario, dice: Random) -> Scenario:
    """Return a scenario in which the first valid answer wins, and some are not."""
    changes = {"win_on": "valid", "invalid": dice.choice(("error", "best"))}
    if scenario.race["mode"] == "single":
        changes["mode"] = "race"
    behaviours = {
        name: tuple(msgspec.structs.replace(each, json=dice.choice(("good", "good", "bad"))) for each in several)
        for name, several in scenario.behaviours.items()
    }
    clients = tuple(
        msgspec.structs.replace(
            client,
            asks=tuple(
                msgspec.structs.replace(ask, json=ask.dialect == "chat" and dice.random() < 0.8) for ask in client.asks
            ),
        )
        for client in scenario.clients
    )
    return msgspec.structs.replace(scenario, race={**scenario.race, **changes}, behaviours=behaviours, clients=clients)


def _held(scenario: Scenario, dice: Random) -> Scenario:
    """Return a scenario in which ``hold`` is written: the first with a token decodes slowest, as is known of it."""
    objective = dice.choice(("auto", "completion", "completion"))
    race = {**scenario.race, "hold": dice.random() < 0.8, "objective": objective}
    if race["mode"] == "single":
        race["mode"] = "auto"
    starts = {PROVIDERS[0]: (0.01,)}
    return msgspec.structs.replace(
        scenario,
        race=race,
        behaviours={
            name: tuple(
                msgspec.structs.replace(each, first_s=dice.choice(starts.get(name, (0.05, 3.0))), tokens=30, gap_s=0.1)
                for each in several
            )
            for name, several in scenario.behaviours.items()
        },
        remembered=dict(zip(PROVIDERS, ((0.02, 150.0), (0.02, 200.0), (0.02, 250.0), (0.02, 300.0)), strict=True)),
    )


def _kept(scenario: Scenario, dice: Random) -> Scenario:
    """Return a scenario in which a rival runs on behind the winner of a whole answer; most are asked for."""
    mode = "race" if scenario.race["mode"] == "single" else scenario.race["mode"]
    clients = tuple(
        msgspec.structs.replace(
            client,
            asks=tuple(msgspec.structs.replace(ask, stream=ask.stream and dice.random() < 0.3) for ask in client.asks),
        )
        for client in scenario.clients
    )
    return msgspec.structs.replace(scenario, race={**scenario.race, "mode": mode, "keep_rival": True}, clients=clients)


def _left_open(scenario: Scenario, dice: Random) -> Scenario:
    """Return a scenario in which every other body stays open after its answer."""
    behaviours = {
        name: tuple(msgspec.structs.replace(each, lingers_s=dice.choice((each.lingers_s, NEVER_S))) for each in several)
        for name, several in scenario.behaviours.items()
    }
    return msgspec.structs.replace(scenario, behaviours=behaviours)


def _race(dice: Random) -> dict[str, Any]:
    mode = dice.choice(("race", "race", "hedge", "auto", "single"))
    race: dict[str, Any] = {
        "mode": mode,
        "budget": dice.choice((0.0, 0.1, 0.5, 1.0, 3.0)),
        "audit_share": dice.choice((0.0, 0.5, 1.0)),
        "objective": dice.choice(("auto", "first_token", "completion", "reading")),
        "win_on": dice.choice(("any", "any", "answer")),
    }
    if mode == "race":
        race["width"] = dice.randint(1, len(PROVIDERS))
    if mode == "hedge" and dice.random() < 0.5:
        race["hedge_delay_s"] = dice.choice((0.0, 0.02, 0.1))
    if dice.random() < 0.2:
        race["ttft_ms"] = dice.choice((20.0, 100.0, 500.0))
    if dice.random() < 0.15:
        race["usd_per_day"] = dice.choice((0.0, 0.0001, 1.0))
    if dice.random() < 0.15:
        race["extra_usd_per_call"] = dice.choice((0.0, 0.00001, 1.0))
    return race


def _behaviour(dice: Random, *, calm: bool) -> Behaviour:
    tokens = dice.choice((1, 2, 4, 8, 30))
    plain = Behaviour(
        opens_s=_instant(dice),
        first_s=_instant(dice),
        gap_s=dice.choice((0.0, 0.001, 0.02, 0.1)),
        tokens=tokens,
        thoughts=dice.choice((0, 0, 0, 1, 3)),
        usage=dice.random() < 0.8,
        done=dice.random() < 0.9,
        per_read=dice.choice((1, 1, 2, 5, 100)),
        torn=dice.random() < 0.2,
        sends=2 if dice.random() < 0.1 else 1,
        lingers_s=dice.choice((0.0, 0.0, 0.05, 1.0)),
    )
    if calm:
        return plain
    event = dice.randint(0, tokens + 2)
    match dice.randrange(6):
        case 0:
            retry_after_s = dice.choice((None, 0.1, 5.0))
            return msgspec.structs.replace(plain, refusal=dice.choice(REFUSALS), retry_after_s=retry_after_s)
        case 1:
            return msgspec.structs.replace(plain, stalls_at=event)
        case 2:
            return msgspec.structs.replace(plain, breaks_at=event)
        case 3:
            return msgspec.structs.replace(plain, lie=dice.choice(LIES))
        case 4:
            return msgspec.structs.replace(plain, opens_s=NEVER_S)
    return msgspec.structs.replace(plain, first_s=dice.choice((0.5, 3.0)))


def _instant(dice: Random) -> float:
    """Return some time; often the same as others', so that what is to be ordered comes together."""
    return dice.choice((0.0, 0.01, 0.01, 0.05, 0.05, dice.random() * 0.2))


def _client(dice: Random) -> Client:
    asks = tuple(_ask(dice) for _ in range(dice.choice((1, 1, 1, 2, 3))))
    stops = dice.random() * 0.5 if dice.random() < 0.15 else None
    return Client(
        at_s=dice.choice((0.0, 0.0, 0.05, dice.random())),
        asks=asks,
        leaves_s=dice.choice((0.0, 0.01, 0.05, dice.random())) if dice.random() < 0.2 else None,
        stops_reading_s=stops,
        reads_on_s=None if stops is None or dice.random() < 0.3 else stops + dice.choice((0.01, 0.5, 2.0)),
        buffer_bytes=dice.choice((0, 500, 50_000)),
    )


def _ask(dice: Random) -> Ask:
    dialect = dice.choice(
        ("chat", "chat", "chat", "chat", "messages", "responses", "completions", "embeddings", "speech")
    )
    if dialect == "embeddings":
        return Ask(dialect=dialect, model=VECTORS, stream=False, waits_s=_instant(dice))
    if dialect == "speech":
        return Ask(dialect=dialect, model=VOICE, stream=False, waits_s=_instant(dice))
    return Ask(
        dialect=dialect,
        model=dice.choice((MODEL, MODEL, MODEL, OTHER_MODEL)),
        stream=dice.random() < 0.7,
        wants_usage=dice.random() < 0.3,
        prompt=dice.choice((1, 20, 5000)),
        max_tokens=dice.choice((None, None, 100)),
        race=dice.choice((None, None, None, "single", "race", "hedge")),
        fallback=SPARE_MODEL if dice.random() < 0.2 else None,
        deadline_ms=dice.choice((None, None, None, 30.0, 300.0)),
        pieces=dice.choice((1, 1, 2, 5)),
        waits_s=_instant(dice),
    )
