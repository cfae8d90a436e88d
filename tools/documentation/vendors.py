"""The page of the vendors that need no address and no quirks from the operator, from their catalog."""

from providers import Vendor, apis_of, load_catalog
from tools.documentation.tables import code, table

_HEAD = """# Vendors

A provider with one of these names needs its key only; a `preset` with it starts another provider from its row
([providers](../providers.md)). An empty cell is not known, or there is none. *Bills*: whether a whole answer is paid
for although it was cancelled. Vendors without an address have one for each customer, which you set as `base_url`. What
each accepts in a history is in [conversations](conversations.md#what-vendors-accept-in-a-history).
"""
_BILLS = {None: "", True: "yes", False: "no"}


def page() -> str:
    """Return the text of docs/reference/vendors.md."""
    columns = ("name", "address", "key in", "APIs", "bills")
    return "\n".join([_HEAD, *table(columns, map(_row, load_catalog().values())), ""])


def _row(vendor: Vendor) -> tuple[str, ...]:
    name = f"[{code(vendor.name)}]({vendor.docs_url})" if vendor.docs_url else code(vendor.name)
    address = code(vendor.base_url) if vendor.base_url else "through litellm" if vendor.kind == "litellm" else ""
    return (
        name,
        address,
        " or ".join(map(code, vendor.key_env)),
        ", ".join(apis_of(vendor, None)),
        _BILLS[vendor.bills_after_disconnect],
    )
