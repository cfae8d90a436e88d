"""Thoughts in a conversation that no Responses API issued: it looks for them by their id, and refuses the request.

What a chat model thought is shown to the client as a reasoning item with an id of ours. The client sends it back, as it
should, and the next call of that conversation may go to a provider that speaks Responses itself.
"""

from collections.abc import Mapping

import msgspec

from providers.dialects.wording import Loss, Wording, decoded, raw_json

TRANSLATED = "rs_translated"  # begins the ids of thoughts that were translated

_MARK = f'"{TRANSLATED}'.encode()


def without_translated_thoughts(fields: Mapping[str, msgspec.Raw]) -> Wording:
    """Return a Responses request without the thoughts that were translated; untouched, if there are none.

    Raises:
        Malformed: the input is no array of items; seen only where there seem to be such thoughts.

    """
    if _MARK not in bytes(fields.get("input", b"")):
        return Wording(fields)
    items = decoded(fields["input"], list[dict[str, msgspec.Raw]], "input")
    kept = [item for item in items if not bytes(item.get("id", b"")).startswith(_MARK)]
    losses = tuple(
        Loss(f"input[{number}]", "no provider of Responses knows thoughts of another's model", hint=True)
        for number, item in enumerate(items)
        if item not in kept
    )
    return Wording({**fields, "input": raw_json(kept)}, losses) if losses else Wording(fields)
