"""``holeshot keys rotate``: gives a client a new key."""

from typing import Annotated

import typer

from gateway.cli.configuration import ConfigOption
from gateway.cli.keys.installation import change, demand_database, now, read_installation, who
from gateway.cli.keys.new import SHOWN_ONCE
from gateway.cli.keys.options import seconds
from gateway.cli.terminal import MISUSED, fail, say, write_json


def rotate(
    name: Annotated[str, typer.Argument(help="Name of the client.")],
    config: ConfigOption = None,
    *,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the old keys stay valid: 90s, 30m, 12h, 7d.")
    ] = "0",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Give a client of the database a new key, and print it once. Its settings stay.

    Without --grace the old keys end at once, and calls that run with them are cut. In the file, list the new key
    beside the old one under key_sha256, and remove the old one later.

    Example: holeshot keys rotate my-team --grace 24h
    """
    from gateway.errors import InvalidRequest  # noqa: PLC0415 - heavy imports belong to the verb that runs
    from gateway.ids import new_id  # noqa: PLC0415 - likewise
    from gateway.keys import changes  # noqa: PLC0415 - likewise
    from gateway.keys.key import new_key  # noqa: PLC0415 - likewise
    from gateway.keys.shown import shown_stored  # noqa: PLC0415 - likewise

    grace_s = seconds(grace, "--grace")
    installation = read_installation(config)
    demand_database(installation, f"add the SHA-256 of a new key to key_sha256 of {name!r} there")
    key, at = new_key(), now()
    try:
        decide = changes.rotated(name, key, grace_s=grace_s, key_id=new_id(), who=who(), at=at)
    except InvalidRequest as error:
        fail(error.message, MISUSED)
    made = change(installation, name, decide)
    if as_json:
        left = [row for row in made.rows if row.revoked_at is None]
        write_json({**shown_stored(name, left, at), "key": key.text})
        return
    old = f"The old keys are valid for {grace} more." if grace_s else "The old keys have ended."
    say(f"The new key of {name}, {SHOWN_ONCE}:\n\n  {key.text}\n\n{old} All replicas follow within two seconds.")
