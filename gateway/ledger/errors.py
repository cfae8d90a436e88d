"""What can go wrong between the gateway and its ledger.

LedgerError
├── DatabaseUrlError          the setting names no database the ledger can use
├── DatabaseUnreachableError  no connection, or it broke
├── SchemaOutdatedError       the tables are missing or old: ``holeshot migrate``
├── SchemaTooNewError         the tables were made by a later version of Holeshot
├── SpoolError                the spool folder cannot be written
└── QueryError                a question in SQL was refused or wrong
"""


class LedgerError(Exception):
    """Root of the ledger's errors. Messages tell the operator what to do and hold no password."""


class DatabaseUrlError(LedgerError):
    """``database_url`` names no database the ledger can use."""


class DatabaseUnreachableError(LedgerError):
    """The database cannot be reached, or the connection broke."""


class SchemaOutdatedError(LedgerError):
    """The ledger's tables are missing, or older than this version of Holeshot needs."""


class SchemaTooNewError(LedgerError):
    """The ledger's tables were made by a later version of Holeshot."""


class SpoolError(LedgerError):
    """The spool folder cannot be made or written."""


class QueryError(LedgerError):
    """A read-only question was refused or failed; the message is the database's own."""
