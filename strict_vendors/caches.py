"""What a vendor keeps of prompts whose sender marks it, and how much of the next one it has: by prefix, block by block.

Claude's rules: what is before a mark is kept, and read by a mark behind the same blocks, or up to twenty blocks behind.
Nothing shorter than a model's least is kept. It is kept as long as the vendor is: tests take no five minutes.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

PAGE = "https://platform.claude.com/docs/en/build-with-claude/prompt-caching"
_BACK = 20  # blocks
_LETTERS_OF_A_TOKEN = 4
_LEAST: Mapping[str, int] = {
    "haiku-4-5": 4096, "opus-4-5": 4096, "opus-4-6": 4096, "opus-4-7": 2048, "opus-5": 512, "sonnet-5-5": 512,
    "fable": 512, "mythos": 512,
}  # fmt: skip
_USUAL_LEAST = 1024


Json = dict[str, Any]


class Block(NamedTuple):
    """A block of a prompt, and whether a mark stands behind it."""

    said: Any
    is_marked: bool


class Used(NamedTuple):
    """What a prompt counts for: tokens that were read, that were written, and all others."""

    read: int = 0
    written: int = 0
    rest: int | None = None  # None: nothing is marked


NONE_USED = Used()
_BREAKS = re.compile(r"gpt-(?:5\.[6-9]|[6-9])")


def breaks(model: str) -> bool:
    """Whether a model of OpenAI's reads its cache up to marks alone."""
    return _BREAKS.match(model) is not None


def is_marked(parts: Any) -> bool:
    """Whether the last part of a message has OpenAI's mark."""
    return isinstance(parts, list) and bool(parts) and "prompt_cache_breakpoint" in parts[-1]


class Prefixes:
    """What a vendor caches by itself, without marks: each beginning of a prompt that an account has sent.

    OpenAI's: https://developers.openai.com/api/docs/guides/prompt-caching, 1,024 tokens or more, read on 2026-11-29.
    ``whole``: only whole prompts are kept, as where a prompt "can only hit the cache if it fully matches a unit".
    """

    def __init__(self, least: int = 1024, *, whole: bool = False) -> None:
        self._least = least
        self._whole = whole
        self._kept: set[tuple[str, bytes]] = set()

    def of_openai(self, body: Json, blocks: Iterable[tuple[Block, int]]) -> Used:
        """Return what a prompt counts for at OpenAI, by the rules of its model."""
        if not breaks(body["model"]):
            return Used(self.read(body["model"], blocks))
        return self.used(
            body["model"], blocks, implicit=(body.get("prompt_cache_options") or {}).get("mode") != "explicit"
        )

    def read(self, model: str, blocks: Iterable[tuple[Block, int]]) -> int:
        """Return how many tokens of a prompt are cached, and keep all of it."""
        digest, tokens, read, places = hashlib.sha256(), 0, 0, list[tuple[str, bytes]]()
        for block, its in blocks:
            digest.update(json.dumps(block.said, sort_keys=True).encode())
            tokens += its
            places.append((model, digest.digest()))
            if places[-1] in self._kept and tokens >= self._least:
                read = tokens
        self._kept.update(places[-1:] if self._whole else places)
        return read

    def used(self, model: str, blocks: Iterable[tuple[Block, int]], *, implicit: bool = True) -> Used:
        """Return what a prompt counts for where it is read up to a mark alone, or to the newest turn of another one.

        OpenAI's from GPT-5.6 on: https://developers.openai.com/api/docs/guides/prompt-caching, read on 2026-11-30.
        """
        digest, tokens = hashlib.sha256(), 0
        ends: list[tuple[tuple[str, bytes], int, bool]] = []
        for block, its in blocks:
            digest.update(json.dumps(block.said, sort_keys=True).encode())
            tokens += its
            ends.append(((model, digest.digest()), tokens, block.is_marked))
        kept = [end for end in ends if end[1] >= self._least]
        read = max((size for place, size, _ in kept if place in self._kept), default=0)
        marked = [end for end in kept if end[2] or (implicit and end is ends[-1])][-4:]
        written = max((size for _, size, _ in marked), default=0)
        self._kept.update(place for place, _, _ in marked)
        return Used(read, max(0, written - read), tokens - max(read, written))


class Caches:
    """The caches of one account."""

    def __init__(self) -> None:
        self._kept: set[tuple[str, bytes]] = set()

    def used(self, model: str, blocks: Sequence[Block]) -> Used:
        """Return what a prompt counts for, and keep what it marks."""
        digest, end, ends, digests = hashlib.sha256(model.encode()), 0, list[int](), list[bytes]()
        for block in blocks:
            text = json.dumps(block.said, sort_keys=True)
            digest.update(text.encode())
            end += len(text)
            ends.append(end // _LETTERS_OF_A_TOKEN)
            digests.append(digest.digest())
        least = next((tokens for name, tokens in _LEAST.items() if name in model), _USUAL_LEAST)
        marked = [place for place, block in enumerate(blocks) if block.is_marked and ends[place] >= least]
        if not marked:
            return NONE_USED
        near = {place for mark in marked for place in range(max(0, mark - _BACK), mark + 1)}
        read = max((ends[place] for place in near if (model, digests[place]) in self._kept), default=0)
        written = max(0, ends[marked[-1]] - read)
        self._kept.update((model, digests[place]) for place in marked)
        return Used(read, written, ends[-1] - read - written)
