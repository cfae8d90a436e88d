"""Errors between the gateway and its ledger.

LedgerError
├── DatabaseUrlError          the setting is not a database that the ledger can use
├── DatabaseUnreachableError  no connection, or it broke
├── SchemaOutdatedError       the tables are missing or old: ``holeshot migrate``
├── SchemaTooNewError         the tables were made by a later version of Holeshot
├── SpoolError                the spool folder cannot be written
└── QueryError                a SQL query was refused or failed
"""


class LedgerError(Exception):
    """Base class of the ledger's errors. Messages tell the operator what to do and contain no password."""


class DatabaseUrlError(LedgerError):
    """``database_url`` is not a database that the ledger can use."""


class DatabaseUnreachableError(LedgerError):
    """The database cannot be reached, or the connection broke."""


class SchemaOutdatedError(LedgerError):
    """The ledger's tables are missing, or older than this version of Holeshot needs."""


class SchemaTooNewError(LedgerError):
    """The ledger's tables were made by a later version of Holeshot."""


class SpoolError(LedgerError):
    """The spool folder cannot be made or written."""


class QueryError(LedgerError):
    """A read-only query was refused or failed; the message is the database's."""
