"""Reasoning items that no Responses API issued: the API does not find their id, and refuses the request.

A client gets the reasoning of a chat model as a reasoning item with an id of ours. It sends this back with its next
request, which may go to a provider of Responses.
"""

from collections.abc import Mapping

import msgspec

from providers.dialects.wording import Loss, Wording, decoded, raw_json

TRANSLATED = "rs_translated"  # the beginning of the ids of translated reasoning

_MARK = f'"{TRANSLATED}'.encode()


def without_translated_thoughts(fields: Mapping[str, msgspec.Raw]) -> Wording:
    """Return a Responses request without translated reasoning items; unchanged, if there are none.

    Raises:
        Malformed: the input is not an array of items; only checked where such items seem to exist.

    """
    if _MARK not in bytes(fields.get("input", b"")):
        return Wording(fields)
    items = decoded(fields["input"], list[dict[str, msgspec.Raw]], "input")
    kept = [item for item in items if not bytes(item.get("id", b"")).startswith(_MARK)]
    losses = tuple(
        Loss(
            f"input[{number}]",
            "Responses refuses reasoning that was translated from another provider's model",
            hint=True,
        )
        for number, item in enumerate(items)
        if item not in kept
    )
    return Wording({**fields, "input": raw_json(kept)}, losses) if losses else Wording(fields)
