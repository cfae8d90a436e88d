"""Suggests the path that was meant when a request has an unknown one."""

import difflib
import re
from collections.abc import Sequence

_ALIKE = 0.8  # difflib's ratio, 0 to 1: a typing error, not another word
_VERSION = re.compile(r"^v\d+$")
# APIs of OpenAI and Anthropic that the gateway does not have: their state is at one provider, so nothing can be raced.
_NOT_OFFERED = (
    *("assistants", "batches", "chatkit", "containers", "conversations", "evals", "files", "fine_tuning", "fine-tunes"),
    *("messages/batches", "organization", "realtime", "responses/compact", "responses/input_tokens", "skills"),
    *("threads", "uploads", "vector_stores", "videos"),
)


def is_not_offered(path: str) -> bool:
    """Whether ``path`` belongs to an API that others have and the gateway does not."""
    bare = "/".join(_bare([word for word in path.split("/") if word]))
    return any(bare == api or bare.startswith(f"{api}/") for api in _NOT_OFFERED)


def nearest_path(path: str, known: Sequence[str]) -> str | None:
    """Return the ``known`` path most similar to ``path``; None if none is similar.

    Typical mistakes in base URLs are ignored: doubled slashes; ``/v1`` missing, doubled or after another prefix.
    """
    words = [word for word in path.split("/") if word]
    for start in range(len(words)):
        bare = _bare(words[start:])
        for candidate in known:
            if bare and bare == _bare(candidate.strip("/").split("/")):
                return candidate
    # Without their versions, which are alike in all of them.
    bare_known = {"/".join(_bare(candidate.strip("/").split("/"))): candidate for candidate in reversed(known)}
    wanted = "/".join(_bare(words))
    near = difflib.get_close_matches(wanted, bare_known, n=1, cutoff=_ALIKE) if wanted else []
    return bare_known[near[0]] if near else None


def _bare(words: Sequence[str]) -> list[str]:
    """Return ``words`` without leading versions."""
    start = next((at for at, word in enumerate(words) if not _VERSION.match(word)), len(words))
    return list(words[start:])
