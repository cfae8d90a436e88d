"""``holeshot migrate``: updates the ledger's tables and views."""

import asyncio
from typing import Annotated

import typer

from gateway.cli.configuration import ConfigOption, read_database_url
from gateway.cli.terminal import fail, say


def migrate(
    config: ConfigOption = None,
    down_to: Annotated[
        str | None,
        typer.Option(metavar="REVISION", help="Go back to an older schema; 'base' drops every row."),
    ] = None,
) -> None:
    """Update the ledger's tables and views.

    Run it before `serve` on Postgres, once per release; `serve` itself migrates SQLite. It reads only database_url, so
    it needs no provider's key.

    Example: HOLESHOT_DATABASE_URL=postgresql://... holeshot migrate
    """
    url = read_database_url(config)
    from alembic.util import CommandError  # noqa: PLC0415 - SQLAlchemy and Alembic only here
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - likewise

    from gateway.ledger import database  # noqa: PLC0415 - likewise
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - likewise

    try:
        if down_to is None:
            asyncio.run(database.migrate(url))
        else:
            asyncio.run(database.downgrade(url, down_to))
    except (LedgerError, CommandError) as error:
        fail(str(error))
    except SQLAlchemyError as error:
        fail(f"the database refuses: {str(getattr(error, 'orig', None) or error).partition(chr(10))[0]}")
    say(f"the ledger's schema is {down_to or database.head_revision()}")
