"""The page of the vendors that need no address and no quirks from the operator, from ``providers/vendors.toml``."""

from providers import Vendor, apis_of, load_catalog
from tools.documentation.tables import code, table

_HEAD = """# Vendors

Which vendors does Holeshot know, and what does it know of each? A provider with one of these names needs its key only;
a `preset` with it starts another provider from its row. [Providers](../providers.md) says what else may be set, and
what to do for a server that is not here.

`make docs` makes this page from `providers/vendors.toml`, where the reason for each quirk stands; a test compares them.
An empty cell is not known, or there is none. *Bills after a hang-up*: whether a whole answer is paid for although the
gateway has dropped it, as it does with those that lose a race. Vendors without an address have one for each customer,
which you set as `base_url`; those of kind `litellm` are asked through that library, which knows their addresses.
[Conversations](conversations.md#what-vendors-accept-in-a-history) has what each accepts in a history.
"""
_BILLS = {None: "", True: "yes", False: "no"}


def page() -> str:
    """Return the text of docs/reference/vendors.md."""
    columns = ("name", "vendor", "address", "key in", "APIs", "bills after a hang-up")
    return "\n".join([_HEAD, *table(columns, map(_row, load_catalog().values())), ""])


def _row(vendor: Vendor) -> tuple[str, ...]:
    title = f"[{vendor.title}]({vendor.docs_url})" if vendor.docs_url else vendor.title
    address = code(vendor.base_url) if vendor.base_url else "through litellm" if vendor.kind == "litellm" else ""
    return (
        code(vendor.name),
        title,
        address,
        " or ".join(map(code, vendor.key_env)),
        ", ".join(apis_of(vendor, None)),
        _BILLS[vendor.bills_after_disconnect],
    )
