"""Instants in the file: a date or an ISO 8601 instant, in UTC unless it says otherwise."""

from datetime import UTC, date, datetime, time
from typing import Annotated

from pydantic import BeforeValidator, Field

_WORDS = "must be a date or an instant, like 2027-01-31 or 2027-01-31T18:00:00Z"
_Written = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$")]


def as_instant(value: object) -> object:
    """Return ``value`` as an instant in UTC. A date is its beginning; without a time zone, UTC is meant.

    Raises:
        ValueError: it is neither a date nor an instant.

    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(_WORDS) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError(_WORDS)  # noqa: TRY004 - pydantic makes a sentence of a ValueError
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:  # the last hours of the year 9999
        raise ValueError(_WORDS) from None


Instant = Annotated[datetime, BeforeValidator(as_instant, json_schema_input_type=_Written)]
