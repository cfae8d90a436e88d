"""The limits that last longer than a minute: a limit added at run time also counts the use before."""

import msgspec

from gateway.access import KeyAdmission
from gateway.limits import REMEMBERED, UTC_ZONE, level_of_key, level_of_team
from gateway.settings import EndUserSettings, LimitSettings, Settings


class LastingLimit(msgspec.Struct, frozen=True):
    """An added limit: its owner, its name, and the zone of its windows."""

    owner: str
    name: str
    zone: str
    is_of_payers: bool = False  # teams and end users: their use is in the rows of calls


def lasting_limits(settings: Settings, admission: KeyAdmission) -> frozenset[LastingLimit]:
    """Return the limits of all clients, teams, end users and models."""
    zone = settings.limits_zone
    lasting = {
        LastingLimit(level_of_key(client.name, {}).owner, name, client.zone or zone)
        for client in (admission.local, *admission.keys.table.holders)
        if client.limits
        for name in REMEMBERED & client.limits.keys()
    }
    for model, of_model in settings.models.items():
        lasting |= {LastingLimit(f"model:{model}", name, zone) for name in REMEMBERED & of_model.by_name.keys()}
        if of_model.race.usd_per_day is not None:
            lasting.add(LastingLimit(f"model:{model}", "race", UTC_ZONE))
    people: list[tuple[str, LimitSettings | EndUserSettings]] = []
    if settings.end_users is not None:
        people.append(("users", settings.end_users))
    for team, of_team in settings.teams.items():
        owner = level_of_team(team, {}).owner
        people.append((owner, of_team))
        if of_team.end_users is not None:
            people.append((f"users of {owner}", of_team.end_users))
    for owner, limits in people:
        named = limits.named.items() if isinstance(limits, EndUserSettings) else ()
        for payer, each in ((owner, limits), *((f"{owner}: {name}", of_one) for name, of_one in named)):
            lasting |= {LastingLimit(payer, name, zone, is_of_payers=True) for name in REMEMBERED & each.by_name.keys()}
    return frozenset(lasting)
