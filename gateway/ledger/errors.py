"""The ledger's errors, and the URLs of databases that the ledger accepts.

LedgerError
├── DatabaseUrlError          the setting is not a database that the ledger can use
├── DatabaseUnreachableError  no connection, or it broke
├── SchemaOutdatedError       the tables are missing or old: ``holeshot migrate``
├── SchemaTooNewError         the tables were made by a later version of Holeshot
├── SchemaBlockedError        another transaction keeps the tables from being changed (blocked.py)
├── SpoolError                the spool folder cannot be written
└── QueryError                a SQL query was refused or failed
"""

import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError


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


# The address of the database.

_DRIVERS = {
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
}
# libpq's parameters of TLS beside sslmode; asyncpg has the same.
_OF_TLS = (
    "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "ssl_min_protocol_version", "ssl_max_protocol_version",
)  # fmt: skip
# libpq's ways to write hosts: a socket's folder, or several hosts with commas, also in the place of one host.
_OF_HOSTS = ("host", "port", "target_session_attrs")
_SEVERAL = re.compile(r"(postgres[a-z+]*://(?:[^/?#]*@)?)([^@/?#]*,[^@/?#]*)((?:/[^?#@]*)?)(?:\?([^#]*))?")
_ONE = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]*))(?::(\d*))?")
_PORT, _HIGHEST_PORT = "5432", 65_535
_FILES_OF_TLS = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl"})


def is_sqlite(url: URL) -> bool:
    """Whether ``url`` is a SQLite file; otherwise the database is Postgres."""
    return url.get_backend_name() == "sqlite"


def parse_url(url: str, setting: str = "database_url") -> URL:
    """Return ``url`` with an asynchronous driver; ``postgres(ql)://…`` and ``sqlite:///…`` are accepted.

    ``setting``: the name of the setting, for errors.

    Raises:
        DatabaseUrlError: it is another database, no URL, or a URL that no server can have.

    """
    try:
        parsed = make_url(_with_hosts_apart(url))
    except (ArgumentError, ValueError):
        raise DatabaseUrlError(f"{setting} is not a URL; write postgresql://user@host/name or sqlite:///file") from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise DatabaseUrlError(f"{setting}: {parsed.drivername!r} is not supported; use postgresql:// or sqlite:///")
    parsed = parsed.set(drivername=driver)
    if driver.startswith("sqlite"):
        if parsed.database in (None, "", ":memory:"):
            raise DatabaseUrlError(f"{setting}: SQLite in memory keeps nothing; name a file, sqlite:///var/holeshot.db")
        return parsed
    if (parsed.port or 0) > _HIGHEST_PORT:
        raise DatabaseUrlError(f"{setting}: there is no port {parsed.port}: the highest is {_HIGHEST_PORT}")
    if "@" in (parsed.host or ""):
        raise DatabaseUrlError(f"{setting}: write an @ in the user or the password as %40")
    return parsed.set(query=_parameters(parsed, setting))


def _parameters(parsed: URL, setting: str) -> dict[str, Any]:
    """Return the parameters of a URL of Postgres, with the driver's names.

    Raises:
        DatabaseUrlError: the driver does not have one of the parameters.

    """
    query = dict(parsed.query)
    if "sslmode" in query:  # libpq's word; asyncpg takes the same values as ssl
        query["ssl"] = query.pop("sslmode")
    unknown = query.keys() - {"ssl", *_OF_TLS, *_OF_HOSTS, "application_name"}
    unknown |= {"port"} & query.keys() if "host" not in query else set()
    if unknown:
        allowed = ", ".join(("sslmode", *_OF_TLS, *_OF_HOSTS, "application_name"))
        words = "write the port behind the host" if unknown == {"port"} else f"those that are taken are {allowed}"
        raise DatabaseUrlError(f"{setting}: remove the parameter {min(unknown)!r}; {words}")
    if "host" in query:
        ports = _ports(str(query["host"]).count(",") + 1, str(query.get("port", parsed.port or "")))
        if ports is None or not all(str(query["host"]).split(",")) or not isinstance(query["host"], str):
            words = "write several hosts as host1:5432,host2:5432, and a socket's folder as ?host=/folder"
            raise DatabaseUrlError(f"{setting}: {words}")
        query["port"] = ports
    return query


def _with_hosts_apart(url: str) -> str:
    """Return ``url`` with the hosts as parameters, if there are several in the place of one, as libpq takes them."""
    parts = _SEVERAL.fullmatch(url)
    if parts is None:
        return url
    begin, several, path, query = parts.groups()
    hosts = [_ONE.fullmatch(each) for each in several.split(",")]
    names = ",".join("" if each is None else quote(each[1] or each[2], safe="") for each in hosts)
    ports = ",".join("none" if each is None else each[3] or _PORT for each in hosts)
    return f"{begin}{path}?host={names}&port={ports}{'&' * bool(query)}{query or ''}"


def _ports(hosts: int, given: str) -> str | None:
    """Return the port of each host, ``given`` for each or once for all; None: not valid."""
    ports = [each or _PORT for each in given.split(",")]
    ports *= hosts if len(ports) == 1 else 1
    are_good = len(ports) == hosts and all(each.isdecimal() and int(each) <= _HIGHEST_PORT for each in ports)
    return ",".join(ports) if are_good else None


def tls_parameters(url: URL) -> dict[str, str]:
    """Return libpq's parameters of TLS in a parsed ``url``; empty if there is at most ``sslmode``.

    Raises:
        DatabaseUrlError: a parameter names a file that is missing.

    """
    tls = {name: _of_tls(name, str(value)) for name, value in url.query.items() if name in _OF_TLS}
    return tls | {"sslmode": str(url.query["ssl"])} if tls and "ssl" in url.query else tls


def _of_tls(name: str, value: str) -> str:
    if name == "sslrootcert" and value == "system":  # libpq's word for the machine's trusted authorities
        paths = ssl.get_default_verify_paths()
        value = paths.cafile or paths.openssl_cafile
    if name in _FILES_OF_TLS and not Path(value).is_file():
        raise DatabaseUrlError(f"{name} of the database's URL names no file that can be read: {value!r}")
    return value
