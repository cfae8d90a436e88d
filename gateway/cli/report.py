"""``holeshot report``: one page about a provider's month, to send to it."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.configuration import ConfigOption, read_database_url, write_file
from gateway.cli.terminal import MISUSED, fail, say, waiting, write_json

_MONTH = re.compile(r"(\d{4})-(\d{2})")
_MONTHS = 12


def report(  # noqa: PLR0917 - options are named on the command line
    provider: Annotated[str, typer.Option("--provider", "-p", help="Its name in the configuration.")],
    month: Annotated[
        str | None,
        typer.Option("--month", metavar="2026-10", help="A month in UTC; the default is the last whole one."),
    ] = None,
    config: ConfigOption = None,
    as_html: Annotated[bool, typer.Option("--html", help="One HTML file instead of Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there, not to the terminal.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
) -> None:
    """Write a page of evidence to send to a provider.

    It has first-token percentiles that heed the requests that were cut, when and how requests failed, samples with
    the provider's own request ids, and how all this was measured. It has no prompts, answers, clients or keys.

    Example: holeshot report --provider groq --month 2026-10 --html -o groq.html
    """
    if as_html and as_json:
        fail("choose --html or --json", MISUSED)
    since, until = _months(month)
    url = read_database_url(config, for_reports=True)
    from gateway.cli.reported import UnknownProviderError, evidence  # noqa: PLC0415 - likewise
    from gateway.cli.terminal import as_json as written  # noqa: PLC0415 - slow imports only where they are used
    from gateway.ledger import LedgerError  # noqa: PLC0415 - likewise

    if until > datetime.now(UTC):
        say("this month is not over: the report is of what there is", err=True)
    try:
        with waiting(f"reading the attempts of {provider}"):
            found = asyncio.run(evidence(url, provider, since, until))
    except (LedgerError, UnknownProviderError) as error:
        fail(str(error))
    if as_json and output is None:
        write_json(found)
        return
    from gateway.cli import reported  # noqa: PLC0415 - as above

    text = written(found) if as_json else reported.as_html(found) if as_html else reported.as_markdown(found)
    if output is None:
        typer.echo(text)
    else:
        write_file(output, text + "\n", force=force)
        say(f"written to {output}", err=True)


def _months(month: str | None) -> tuple[datetime, datetime]:
    """Return when a month begins and when the next one does."""
    now = datetime.now(UTC)
    if month is None:
        year, number = (now.year, now.month - 1) if now.month > 1 else (now.year - 1, _MONTHS)
    else:
        match = _MONTH.fullmatch(month)
        year, number = (int(match[1]), int(match[2])) if match is not None else (0, 0)
        if match is None or not (1 <= number <= _MONTHS and year):
            fail(f"--month {month!r} is not a month; write it like {now:%Y-%m}", MISUSED)
    since = datetime(year, number, 1, tzinfo=UTC)
    if since > now:
        fail(f"--month {month}: that is in the future", MISUSED)
    return since, datetime(year + number // _MONTHS, number % _MONTHS + 1, 1, tzinfo=UTC)
