"""``holeshot schema``: the JSON Schema of the configuration file."""

from gateway.cli.terminal import write_json


def schema() -> None:
    """Print the JSON Schema of the configuration file.

    Editors complete and check the file with it while you type.

    `holeshot init` writes it beside the configuration, which names it in its first line:
    # yaml-language-server: $schema=gateway.schema.json

    Example: holeshot schema > config/gateway.schema.json
    """
    from gateway.settings.schema import json_schema  # noqa: PLC0415 - pydantic only where it is needed

    write_json(json_schema())
