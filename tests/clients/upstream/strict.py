"""What the upstream refuses as the strict stand-ins of vendors do: types, bounds, ids, and orders of a history.

Not fields that are unknown: cases are about whether those arrive. Nor what only a model of one vendor refuses.
"""

from typing import Any

from strict_vendors import Refused as RefusedByVendor
from strict_vendors import wrong_in
from tests.clients.upstream.errors import Refused

Json = dict[str, Any]


def check(path: str, body: Json) -> None:
    """Refuse a request of one of the three APIs that their vendors refuse."""
    try:
        for refused in wrong_in(path, body):
            raise refused
    except RefusedByVendor as refused:
        raise Refused(refused.status, refused.message) from refused
