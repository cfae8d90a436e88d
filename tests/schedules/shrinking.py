"""Making a scenario that fails smaller: what can be left out or made plain is, as long as it still fails."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tests.schedules.scenario import Ask, Client, Scenario
from tests.support.behaviour import Behaviour

PLAIN = Behaviour()


def shrunk(scenario: Scenario, fails: Callable[[Scenario], bool], most_runs: int = 400) -> Scenario:
    """Return the smallest scenario found that still ``fails``, within so many runs."""
    runs = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _simpler(scenario):
            runs += 1
            if runs > most_runs:
                return scenario
            if fails(candidate):
                scenario, smaller = candidate, True
                break
    return scenario


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with one thing less, the largest steps first."""
    clients = scenario.clients
    for number in range(len(clients)):
        yield replace(scenario, clients=(*clients[:number], *clients[number + 1 :]))
    if scenario.shutdown_s is not None:
        yield replace(scenario, shutdown_s=None)
    if scenario.reloads:
        yield replace(scenario, reloads=scenario.reloads[1:])
    if scenario.max_in_flight:
        yield replace(scenario, max_in_flight={})
    if scenario.most_calls is not None:
        yield replace(scenario, most_calls=None)
    if scenario.keepalive_s is not None:
        yield replace(scenario, keepalive_s=None)
    for shuffle in (0.0, 0.1):
        if scenario.shuffle > shuffle:
            yield replace(scenario, shuffle=shuffle)
    for number, client in enumerate(clients):
        for simpler in _simpler_client(client):
            yield replace(scenario, clients=(*clients[:number], simpler, *clients[number + 1 :]))
    for key in scenario.race:
        if key != "mode":
            yield replace(scenario, race={name: value for name, value in scenario.race.items() if name != key})
    for name, behaviours in scenario.behaviours.items():
        if len(behaviours) > 1:
            for kept in behaviours:
                yield replace(scenario, behaviours={**scenario.behaviours, name: (kept,)})
        for number, behaviour in enumerate(behaviours):
            for plainer in _plainer(behaviour):
                changed = (*behaviours[:number], plainer, *behaviours[number + 1 :])
                yield replace(scenario, behaviours={**scenario.behaviours, name: changed})


def _simpler_client(client: Client) -> Iterator[Client]:
    for number in range(len(client.asks) if len(client.asks) > 1 else 0):
        yield replace(client, asks=(*client.asks[:number], *client.asks[number + 1 :]))
    if client.leaves_s is not None:
        yield replace(client, leaves_s=None)
    if client.stops_reading_s is not None:
        yield replace(client, stops_reading_s=None, reads_on_s=None)
    plain = Ask()
    for number, ask in enumerate(client.asks):
        for field in ask.__struct_fields__:
            if field in {"dialect", "model"} or getattr(ask, field) == getattr(plain, field):
                continue
            if field == "stream" and ask.dialect in {"embeddings", "speech"}:
                continue
            changed = replace(ask, **{field: getattr(plain, field)})
            yield replace(client, asks=(*client.asks[:number], changed, *client.asks[number + 1 :]))


def _plainer(behaviour: Behaviour) -> Iterator[Behaviour]:
    if behaviour != PLAIN:
        yield PLAIN
    for field in behaviour.__struct_fields__:
        if getattr(behaviour, field) != getattr(PLAIN, field):
            yield replace(behaviour, **{field: getattr(PLAIN, field)})
