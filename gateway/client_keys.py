"""Composes the keys of a gateway's clients: the file's, and with ``keys: database`` the database's."""

from gateway.ingress.admission import Client, client_of
from gateway.keys.keys import Keys
from gateway.ledger.key_store import SqlKeyStore
from gateway.runtime import Runtime
from gateway.settings.model import Settings


def client_keys(settings: Settings, runtime: Runtime) -> Keys[Client]:
    """Return the keys. Nothing is read from the database before they are started.

    Raises:
        DatabaseUrlError: the database URL is invalid.

    """
    store = SqlKeyStore(settings.database_url.get_secret_value()) if settings.keys == "database" else None
    return Keys(
        client_of,
        settings.clients,
        store,
        clock=runtime.clock,
        unix_clock=runtime.unix_clock,
        utc_now=runtime.utc_now,
    )
