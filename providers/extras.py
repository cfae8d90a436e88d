"""Optional dependencies, and the commands that install them."""

from importlib.util import find_spec

LITELLM = "pip install 'holeshot[litellm]'"


def has_litellm() -> bool:
    """Whether litellm is installed. It is not imported for this check, which would take seconds."""
    return find_spec("litellm") is not None
