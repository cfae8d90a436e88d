"""The options that describe a client, and how their texts become settings."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from gateway.cli.terminal import MISUSED, fail

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")

RoleOption = Annotated[
    str | None,
    typer.Option(
        metavar="client|viewer|admin",
        help="client: makes calls. viewer: reads /metrics, /leaderboard and the list of keys. admin: all of that, and"
        " changes keys.",
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Refuse its keys from then on: 2030-01-31, 2030-01-31T18:00:00Z, 30d, or never."),
]
ModelsOption = Annotated[
    str | None, typer.Option(metavar="A,B", help="Only these models; `all` removes the restriction.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any setting that a client has in the file, as YAML: rpm=60, usd_per_day=5, only=[groq], require.zdr=true."
        " An empty value sets the default. Can be repeated.",
    ),
]


def patch(
    *,
    role: str | None = None,
    expires: str | None = None,
    models: str | None = None,
    assignments: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return what the options change, as a merge patch; exit if one cannot be understood."""
    fields: dict[str, Any] = {}
    for assignment in assignments or ():
        _assign(fields, assignment)
    if role is not None:
        fields["role"] = role
    if expires is not None:
        fields["expires"] = None if expires == "never" else _instant(expires)
    if models is not None:
        fields["models"] = None if models == "all" else [name for name in models.split(",") if name]
    return fields


def seconds(duration: str, option: str) -> float:
    """Return a duration like 90, 30m, 12h or 7d in seconds; exit if it is none."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        fail(f"{option}: {duration!r} is no duration: write it like 90s, 30m, 12h, 7d or 2w", MISUSED)
    return float(found[1]) * _UNITS[found[2] or "s"]


def _instant(text: str) -> str:
    found = _DURATION.fullmatch(text)
    if found is None or not found[2]:
        return text  # a date or an instant; the settings check it
    try:
        return (datetime.now(UTC) + timedelta(seconds=seconds(text, "--expires"))).isoformat(timespec="seconds")
    except OverflowError:
        fail(f"--expires: {text!r} is too far away: write `never`", MISUSED)


def _assign(fields: dict[str, Any], assignment: str) -> None:
    """Put ``a.b=value`` into ``fields``."""
    import yaml  # noqa: PLC0415 - heavy imports belong to the verb that runs

    path, equals, text = assignment.partition("=")
    if not equals or not path:
        fail(f"--set {assignment}: write it like --set rpm=60", MISUSED)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        fail(f"--set {path}: the value is not YAML; quote it", MISUSED)
    *sections, field = path.split(".")
    inner = fields
    for section in sections:
        inner = inner.setdefault(section, {})
        if not isinstance(inner, dict):
            fail(f"--set {path}: {section} is set to a value already", MISUSED)
    inner[field] = value
