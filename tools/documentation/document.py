"""The OpenAPI description, as a gateway serves it."""

from typing import Any, cast

import msgspec

from gateway.admin.openapi.document import document


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document as plain JSON values."""
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(document())))
