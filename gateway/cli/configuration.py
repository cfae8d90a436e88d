"""Reads the configuration for commands, and handles its errors."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from gateway.cli.terminal import CONFIG, FAILED, fail, prose, say
from gateway.core.terminal_text import counted

if TYPE_CHECKING:
    from gateway.settings import ClickHouseSettings, ConfigurationError, LoadedTargets, References, Settings


def _keep(config: Path | None) -> Path | None:
    """Keep --config for the commands that errors name."""
    CONFIG.set(config)
    return config


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        callback=_keep,
        help="Configuration file. [default: $HOLESHOT_CONFIG, else config/gateway.yaml if it exists]",
    ),
]

# For commands that read the ledger.
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="HOLESHOT_SQL_URL",
        metavar="URL",
        help="Used instead of the configured database; in the variable, other users cannot see its password.",
    ),
]


def _unless_configured(context: typer.Context, url: str | None) -> str | None:
    """Return ``url``; None if it comes from the variable, and --config names another gateway or ledger."""
    source = context.get_parameter_source("url")  # options on the command line are parsed before variables
    is_variable = source is not None and source.name == "ENVIRONMENT"
    return None if is_variable and context.params.get("config") is not None else url


def _url_option(what: str, default: str) -> OptionInfo:
    text = f"{what}; --config beats the variable. [default: {default}]"
    return typer.Option(envvar="HOLESHOT_URL", show_envvar=True, callback=_unless_configured, help=text)  # type: ignore[no-any-return] # typer says Any


# For commands that ask a running gateway.
UrlOption = Annotated[str | None, _url_option("URL of the running gateway", "where the one beside this spool listens")]
# For commands that read the ledger, or ask a running gateway, which also works while the ledger is out of reach.
LookUrlOption = Annotated[str | None, _url_option("Ask the running gateway at this URL", "read the ledger")]
KeyOption = Annotated[
    str | None,
    typer.Option(
        envvar="HOLESHOT_KEY",
        show_envvar=True,
        help="The key of an admin, an operator or a viewer, if keys are required.",
    ),
]

# For commands that may ask a running gateway, with --url.
KeyForUrlOption = Annotated[
    str | None, typer.Option(envvar="HOLESHOT_KEY", show_envvar=True, help="The key for --url, if it needs one.")
]

_NOTHING: Mapping[str, object] = {}


def read_settings(
    config: Path | None,
    overrides: Mapping[str, object] = _NOTHING,
    *,
    exit_code: int = FAILED,
    references: "References | None" = None,
) -> "tuple[Settings, Path | None]":
    """Return the settings and their file, or print every problem and exit with ``exit_code``."""
    from gateway.settings import ConfigurationError, load, locate  # noqa: PLC0415 - pydantic only where it is needed

    path = locate(config, os.environ)
    try:
        return load(path, os.environ, overrides, references=references), path
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(exit_code) from None


def read_database_url(config: Path | None, *, for_reports: bool = False) -> str:
    """Return ``database_url``, even if the rest of the configuration is not usable.

    ``for_reports``: ``reports_database_url`` instead, if there is one, for commands that only read.
    """
    from gateway.settings import ConfigurationError, load_database_url, locate  # noqa: PLC0415 - as above

    try:
        path = locate(config, os.environ)
        return load_database_url(path, os.environ, for_reports=for_reports).get_secret_value()
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(FAILED) from None


# The paths of a gateway, behind its address. /api/v1 and /api are no such paths: there, /api is a proxy's prefix.
_OWN_PATH = re.compile(r"/(?:(?:v1|v1beta|v2|leaderboard|metrics|health)(?:/|$)|api/(?!v[12])).*")


def root_of(url: str) -> str:
    """Return the address of the gateway at ``url``; this may be the URL of its page, or of one of its paths."""
    if "@" in url.partition("?")[0]:
        return url  # a password may have any character; the request refuses such a URL
    scheme, mark, rest = re.split(r"[?#]", url, maxsplit=1)[0].rstrip("/").partition("://")
    host, slash, path = rest.partition("/")
    return scheme + mark + host + _OWN_PATH.sub("", slash + path).rstrip("/")


def gateway_url(url: str | None, config: Path | None) -> str:
    """Return the address of the running gateway: from ``url``, else from its note, else from the configuration."""
    if url is not None:
        return root_of(url)
    from gateway.settings import ConfigurationError, load_address, load_note, locate  # noqa: PLC0415 - as above

    try:
        path = locate(config, os.environ)
        address, note = load_address(path, os.environ), load_note(path, os.environ)
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(FAILED) from None
    if note is None or note.url == address:
        return address
    if note.is_alive():
        return note.url
    say(f"the gateway at {note.url} has ended (process {note.pid}); this asks {address}", err=True)
    return address


def read_clickhouse(config: Path | None) -> "ClickHouseSettings | None":
    """Return ``ledger.clickhouse``, even if the rest of the configuration is not usable."""
    from gateway.settings import ConfigurationError, load_clickhouse, locate  # noqa: PLC0415 - as above

    try:
        return load_clickhouse(locate(config, os.environ), os.environ)
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(FAILED) from None


def read_targets(config: Path | None) -> "LoadedTargets":
    """Return the targets and the database, even if the rest of the configuration is not usable."""
    from gateway.settings import ConfigurationError, load_targets, locate  # noqa: PLC0415 - as above

    try:
        return load_targets(locate(config, os.environ), os.environ)
    except ConfigurationError as error:
        report(error)
        raise typer.Exit(FAILED) from None


def check_place(path: Path, *, force: bool) -> None:
    """Exit if there is a folder at ``path``, or, unless ``force`` is set, a file."""
    try:
        is_there, is_folder = path.exists(), path.is_dir()
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}")
    if is_folder:
        fail(f"{path} is a folder: name a file in it")
    if is_there and not force:
        fail(f"{path} already exists; --force overwrites it")


def write_file(path: Path, text: str, *, force: bool) -> None:
    """Write a file and make its folders; exit if the file exists and ``force`` is not set, or writing fails."""
    check_place(path, force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # also FileExistsError, where a file is in the place of the folder
        fail(f"the folder {path.parent.absolute()} cannot be made: {error.strerror}; name a file in another one")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:  # made meanwhile, or a link to nowhere
        fail(f"{path} already exists; --force overwrites it")
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}")


def report(error: "ConfigurationError") -> None:
    """Print every problem on a line of standard error."""
    say(f"holeshot: the configuration has {counted(len(error.problems), 'problem')}", err=True)
    for problem in error.problems:
        prose(f"  {problem}", err=True)


def home() -> Path:
    """Return this user's folder; ``/`` without one, as a container's user need not have a name."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
