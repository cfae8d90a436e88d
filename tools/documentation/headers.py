"""Every header that the gateway reads from requests, and every header that it adds to answers."""

from collections.abc import Mapping
from typing import Any

from tools.documentation.tables import code

_HEAD = """## Headers

All are optional. An answer has only those that apply to it; those of a streamed answer are sent with its first token.
`x-holeshot-narrowed` has one of [these reasons](../policy.md#fewer-attempts).

"""


def section(document: Mapping[str, Any]) -> str:
    """Return the section of docs/reference/http-api.md about headers, of the OpenAPI ``document``."""
    read: dict[str, Any] = {}
    for path in document["paths"].values():
        for operation in path.values():
            for each in operation.get("parameters", []):
                one = _resolved(document, each)
                if one["in"] == "header":
                    read.setdefault(one["name"], one)
    sent = document["components"].get("headers", {})
    return "\n".join(
        [
            _HEAD,
            "### Of requests",
            "",
            *(f"- {code(name)}: {read[name].get('description', '')}" for name in sorted(read)),
            "",
            "### Of answers",
            "",
            *(f"- {code(name)}: {_resolved(document, sent[name]).get('description', '')}" for name in sorted(sent)),
            "",
        ]
    )


def _resolved(document: Any, one: Any) -> Any:
    if "$ref" not in one:
        return one
    found = document
    for name in one["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return found
