"""Checks of clients: each key belongs to one, and what they name exists."""

from collections.abc import Collection, Iterator

from gateway.settings.explain import nearest
from gateway.settings.model import ClientSettings, Settings
from gateway.settings.problems import Complaint, Place


def check_clients(settings: Settings) -> Iterator[Complaint]:
    """Yield what is wrong with the clients of the file together."""
    holders: dict[str, str] = {}
    for name, client in settings.clients.items():
        place: Place = ("clients", name)
        if len(set(client.key_sha256)) < len(client.key_sha256):
            yield Complaint((*place, "key_sha256"), "has the same key twice: remove one")
        for digest in client.key_sha256:
            other = holders.setdefault(digest, name)
            if other != name:
                yield Complaint(
                    (*place, "key_sha256"), f"is also the key of client {other!r}: give each client its own"
                )
        yield from unknown_names(place, client, settings.models, settings.providers)


def unknown_names(
    place: Place, client: ClientSettings, models: Collection[str], providers: Collection[str]
) -> Iterator[Complaint]:
    """Yield the models and providers that the client at ``place`` names and that are not configured."""
    for field, named, known in (
        ("models", client.models or (), models),
        ("only", client.only or (), providers),
        ("ignore", client.ignore, providers),
    ):
        for index, word in enumerate(named):
            if word not in known:
                what = "model" if field == "models" else "provider"
                yield Complaint((*place, field, index), f"there is no {what} {word!r}; {nearest(word, known)}")
