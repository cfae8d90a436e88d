"""Wrong keys and good ones from one address, in any order, with clients that leave and gateways that stop."""

from random import Random

import pytest

from gateway.access.auth import FREE
from tests.schedules.checks import wrong
from tests.schedules.faults import FIRST, OTHERS, WELL
from tests.schedules.scenario import KEY, Ask, Client, Scenario
from tests.schedules.simulation import Evidence, run

SEEDS = range(1, 41)
GUESS = "hs-of-nobody"


def drawn(seed: int) -> Scenario:
    dice = Random(seed)

    def guesser() -> Client:
        asks = tuple(Ask(key=dice.choice((GUESS, GUESS, GUESS, KEY))) for _ in range(dice.randint(1, 6)))
        return Client(at_s=dice.random() * 2, asks=asks, leaves_s=dice.choice((None, None, dice.random() * 3)))

    def good() -> Client:
        return Client(at_s=dice.random() * 4, asks=(Ask(key=KEY), Ask(key=KEY, stream=False)))

    return Scenario(
        seed=seed,
        shuffle=dice.choice((0.0, 0.5, 1.0)),
        race={"mode": "single"},
        behaviours={FIRST: (WELL,), **dict.fromkeys(OTHERS, (WELL,))},
        clients=(*(guesser() for _ in range(dice.randint(2, 24))), good(), good()),
        reloads=(1.0,) if dice.random() < 0.2 else (),
        shutdown_s=dice.random() * 6 if dice.random() < 0.3 else None,
        has_clients=True,
    )


def statuses(evidence: Evidence, key: str) -> set[int | None]:
    return {seen.status for client in evidence.clients for seen in client.seen if seen.is_whole and seen.ask.key == key}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_wrong_key_is_always_refused_a_good_one_never_and_nothing_is_left(seed: int) -> None:
    evidence = run(drawn(seed))
    assert not wrong(evidence)
    assert statuses(evidence, GUESS) <= {401}
    if evidence.scenario.shutdown_s is None:
        assert statuses(evidence, KEY) == {200}


def test_good_keys_take_as_long_as_without_any_guess() -> None:
    good = Client(at_s=3.0, asks=(Ask(key=KEY),))
    guessers = tuple(Client(at_s=0.1, asks=(Ask(key=GUESS),)) for _ in range(4 * FREE))

    def took_ms(*others: Client) -> float | None:
        evidence = run(Scenario(seed=1, behaviours={FIRST: (WELL,)}, clients=(*others, good), has_clients=True))
        assert not wrong(evidence)
        assert evidence.gateway.context.wrong_keys.delayed == max(0, len(others) - FREE)
        [call] = evidence.store.calls.values()
        return call.total_ms

    assert took_ms() == pytest.approx(took_ms(*guessers))


def test_stopping_waits_for_no_delay() -> None:
    guessers = tuple(Client(at_s=0.1, asks=(Ask(key=GUESS),)) for _ in range(4 * FREE))
    evidence = run(Scenario(seed=1, clients=guessers, has_clients=True, shutdown_s=0.2, grace_s=1.0))
    assert not wrong(evidence)
    assert statuses(evidence, GUESS) == {401}
    assert all(seen.is_whole for client in evidence.clients for seen in client.seen)
