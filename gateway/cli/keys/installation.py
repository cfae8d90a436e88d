"""The installation whose keys are meant: where they are, and what its configuration says of clients.

It is read without what the command does not need: an administrator's machine may have no provider's key.
"""

import asyncio
import getpass
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from gateway.cli.configuration import report
from gateway.cli.terminal import FAILED, MISUSED, fail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.keys.store import Change, Decide, KeyStore
    from gateway.settings.installation import Installation

T = TypeVar("T")


def read_installation(config: Path | None) -> "Installation":
    """Return the installation, or print every problem and exit."""
    from gateway.settings import ConfigurationError, locate  # noqa: PLC0415 - pydantic only where it is needed
    from gateway.settings.loader import load_installation  # noqa: PLC0415 - likewise

    try:
        return load_installation(locate(config, os.environ), os.environ)
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(FAILED) from None


def demand_database(installation: "Installation", instead: str) -> None:
    """Exit unless keys are in the database; ``instead`` says what to do in the file."""
    if not installation.is_database:
        fail(
            f"keys are in the configuration file (keys: file): {instead}, or set `keys: database` and restart the"
            " gateway"
        )


def ask(installation: "Installation", question: "Callable[[KeyStore], Awaitable[T]]") -> T:
    """Return the answer of the database, or print why there is none and exit."""
    from gateway.errors import ApiError, InvalidRequest  # noqa: PLC0415 - SQLAlchemy only where it is needed
    from gateway.ledger.database import check_schema, create_engine  # noqa: PLC0415 - likewise
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - likewise
    from gateway.ledger.key_store import SqlKeyStore  # noqa: PLC0415 - likewise

    async def answer() -> T:
        url = installation.database_url.get_secret_value()
        engine = create_engine(url)
        try:
            await check_schema(engine)
        finally:
            await engine.dispose()
        store = SqlKeyStore(url)
        try:
            return await question(store)
        finally:
            await store.aclose()

    try:
        return asyncio.run(answer())
    except InvalidRequest as error:
        fail(error.message, MISUSED)
    except ApiError as error:
        fail(error.message)
    except LedgerError as error:
        fail(str(error))


def change(installation: "Installation", name: str, decide: "Decide") -> "Change":
    """Carry out a change and return it; a client of the file is left alone."""
    from gateway.keys.keys import check_not_configured  # noqa: PLC0415 - as above

    async def carry_out(store: "KeyStore") -> "Change":
        check_not_configured(name, installation.clients)
        return await store.change(name, decide, who=who(), at=now())

    return ask(installation, carry_out)


def check_fields(installation: "Installation", fields: dict[str, Any]) -> Any:
    """Return the settings that ``fields`` describe; raise InvalidRequest if they describe none."""
    from gateway.keys.fields import client_settings  # noqa: PLC0415 - as above

    return client_settings(fields, models=installation.models, providers=installation.providers)


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


def who() -> str:
    """Return who runs this command, for the table of changes."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
