"""``holeshot race``: races one prompt and shows the race."""

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.configuration import ConfigOption, KeyForUrlOption, read_settings, root_of
from gateway.cli.terminal import FAILED, MISUSED, discard_standard_output, fail, on_a_terminal, read_standard_input, say
from gateway.core.modes import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.cli.race_lanes import Lanes
    from gateway.cli.race_run import RacePrompt
    from gateway.cli.race_view import View
    from gateway.settings import Settings

STOPPED = 130  # by Ctrl-C; the usual exit code


def race(  # noqa: PLR0917 - options are named on the command line
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A model, or provider/model,provider/model. [default: the first model]"),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(help="How many run, and when. [default: the model's]"),
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, max=8, help="Attempts that start at once; implies --mode race.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="A system prompt.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Maximum number of tokens in the answer.")] = None,
    times: Annotated[
        int, typer.Option("-n", min=1, help="Number of races, one after the other; then print the wins of each.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per race, one per line.")] = False,
    url: Annotated[
        str | None,
        typer.Option(help="Race at the running gateway at this URL. [default: in this process, without a gateway]"),
    ] = None,
    key: KeyForUrlOption = None,
    config: ConfigOption = None,
) -> None:
    """Race a prompt and watch.

    It runs in this process, with the same configuration, ledger and leaderboard as `serve`. Without keys, simulated
    providers race. When piped, standard output has only the answer; progress goes to standard error, if that is a
    terminal.

    With --url a running gateway races, with its own limits and budget. The lanes are then shown when the call has
    ended, if the key is that of an admin, an operator or a viewer.

    The first race includes the time to connect; -n 5 shows races without it.

    Example: holeshot race "Why is the sky blue?" -m groq/openai/gpt-oss-120b,cerebras/gpt-oss-120b --width 2
    """
    if width is not None and mode not in {None, Mode.RACE}:
        fail(f"--width goes with --mode race, not {mode}", MISUSED)
    text = read_standard_input() if prompt == "-" else prompt
    if not text.strip():
        fail("the prompt is empty", MISUSED)
    settings = None if url is not None else read_settings(config)[0]
    from gateway.cli.race_run import RacePrompt  # noqa: PLC0415 - likewise

    question = RacePrompt(
        model=model or "",
        prompt=text,
        system=system,
        max_tokens=max_tokens,
        mode=mode,
        width=width,
    )
    view = _view(as_json=as_json, times=times)
    try:
        if url is not None:
            answered = _race_at(root_of(url), key, question, view, times)
        else:
            assert settings is not None
            answered = asyncio.run(_race(settings, question, view, times))
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED) from None
    except BrokenPipeError:
        discard_standard_output()
        raise typer.Exit(FAILED) from None
    if not answered:
        raise typer.Exit(FAILED)


def _race_at(url: str, key: str | None, question: "RacePrompt", view: "View", times: int) -> bool:
    """Run the races at a gateway; return whether all were answered."""
    from gateway.cli.race_run import models_of, race_at  # noqa: PLC0415 - as above
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - likewise

    try:
        question = _with_model(question, () if question.model else models_of(url, key))
    except GatewayError as error:
        fail(str(error))
    races = [race_at(url, key, question, view) for _ in range(times)]
    _sum_up(races, view)
    return all(lanes.error is None for lanes in races)


async def _race(settings: "Settings", question: "RacePrompt", view: "View", times: int) -> bool:
    """Run the races; return whether all were answered."""
    from gateway.cli.race_run import check_model, open_gateway, run_race  # noqa: PLC0415 - as above
    from gateway.core.errors import ApiError  # noqa: PLC0415 - likewise
    from gateway.ledger import LedgerError  # noqa: PLC0415 - likewise
    from gateway.settings import ConfigurationError  # noqa: PLC0415 - likewise
    from gateway.watching import logs  # noqa: PLC0415 - likewise

    logs.configure("error", settings.log_format)  # errors are shown here; a log line would damage the picture
    try:
        if question.model:
            await check_model(settings, question.model)
        async with open_gateway(settings, _announce_demo) as gateway:
            question = _with_model(question, gateway.context.fleet.models)
            races = [await run_race(gateway, question, view) for _ in range(times)]
    except typer.Exit:  # a RuntimeError too, but already reported
        raise
    except (ApiError, ConfigurationError, LedgerError, RuntimeError) as error:
        fail(str(error))
    _sum_up(races, view)
    if gateway.ledger.pending:
        say(f"holeshot: the database is unreachable; the rows wait in {settings.spool_dir}", err=True)
    return all(lanes.error is None for lanes in races)


def _sum_up(races: "Sequence[Lanes]", view: "View") -> None:
    """Show the outcome of several races; a race that a gateway refused has no record, and nothing to show."""
    records = [lanes.record for lanes in races if lanes.record is not None]
    if len(races) > 1 and records:
        view.sums_up(records)


def _with_model(question: "RacePrompt", models: "Iterable[str]") -> "RacePrompt":
    """Return the question with its model; the first configured one by default."""
    import msgspec  # noqa: PLC0415 - as above

    name = question.model or next(iter(models), None)
    if name is None:
        fail("no model is configured; name deployments: -m provider/model,provider/model", MISUSED)
    return msgspec.structs.replace(question, model=name)


def _view(*, as_json: bool, times: int) -> "View":
    from gateway.cli.race_view import DrawnView, JsonView, PlainView  # noqa: PLC0415 - as above

    if as_json:
        return JsonView()
    if on_a_terminal() and os.environ.get("TERM") not in ("dumb", "unknown"):
        return DrawnView(brief=times > 1)
    return PlainView(progress=sys.stderr.isatty())


def _announce_demo() -> None:
    say("no provider keys were found: racing simulated providers", err=True)
