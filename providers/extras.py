"""What a small installation lacks, and what to type for it."""

from importlib.util import find_spec

LITELLM = "pip install 'holeshot[litellm]'"


def has_litellm() -> bool:
    """Tell whether litellm is installed; it is not imported for it, which takes seconds."""
    return find_spec("litellm") is not None
