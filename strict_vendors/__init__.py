"""Strict vendors: stand-ins over real HTTP that refuse what the real vendor refuses, in its words.

    python -m strict_vendors openai anthropic   # serve them; prints their base URLs and keys

    async with running_vendor("openai") as vendor:     # in a test
        ...vendor.base_url, vendor.key...
        assert vendor.refusals == []                   # by which rule it refused, with the rule's page

**What they answer** is in ``script.py``: offered tools are called (two when the text says "parallel", twice when it
says "twice"), their results are told, schemas are filled, thinking models think. Lines of the last user's text decide:
``say: words``, ``call: tool {"its": "arguments"}``, ``then: tool {...}``, ``data: {...}``, ``think: thoughts``,
``echo: body``, ``fail: 500``, ``fail: 500 times 1 KEY``, ``slow: 2``, ``cut: now``, ``cut: once KEY``.

**To add a vendor:** one file in ``known/`` named as the vendor, with a class ``VENDOR`` that inherits ``Vendor`` (or
``ChatVendor`` of ``apis/chat.py``, when it is a dialect of OpenAI's chat completions): its name, base, key, routes, its
shape of errors, and the address of each page that its rules come from. Its rules are a table in ``rules/`` of the same
name: shapes (``shapes.py``) for the fields of each API, and a table of models (``models.py``). What is in no table is
refused, not accepted. An API that no other vendor has gets a module in ``apis/``: it reads a request into what the
script needs (``script.Asked``), says what of a history is wrong, and writes an answer whole and as a stream.
``words.py`` turns a fault of a shape into the vendor's words: add a function there if its words are new. Nothing else
has to be told: the command, ``running_vendor`` and ``NAMES`` find the file.
"""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from strict_vendors.models import Model
from strict_vendors.rules.google import GoogleModel
from strict_vendors.schemas import sample
from strict_vendors.script import Asked, Broken, Call, Given, Said
from strict_vendors.serving import Served, send, served
from strict_vendors.shapes import Fault, Shape
from strict_vendors.vendor import Breaks, Ids, Refusal, Refused, Reply, Request, Route, Vendor, as_data

__all__ = [
    "NAMES",
    "Asked",
    "Breaks",
    "Broken",
    "Call",
    "Fault",
    "Given",
    "GoogleModel",
    "Ids",
    "Model",
    "Refusal",
    "Refused",
    "Reply",
    "Request",
    "Route",
    "Said",
    "Served",
    "Shape",
    "Vendor",
    "as_data",
    "made",
    "running_vendor",
    "sample",
    "send",
    "served",
]

NAMES = tuple(sorted(path.stem for path in (Path(__file__).parent / "known").glob("*.py") if path.stem != "__init__"))


def made(name: str, *, seed: str = "", account: str = "", key: str = "", context: int = 0) -> Vendor:
    """Return a new stand-in of a vendor, which has seen and kept nothing yet.

    It serves two accounts, each with its own key. Two of one ``account`` open what the other has sealed, but keep nothing for each other. Another ``key`` than the
    vendor's usual one is another account's, unless both are told one. ``context`` is how many tokens its models hold; 0: as many as each really does.
    """
    if name not in NAMES:
        raise LookupError(f"no stand-in of {name!r}; there are: {', '.join(NAMES)}")
    vendor: type[Vendor] = importlib.import_module(f"strict_vendors.known.{name}").VENDOR
    found = vendor(seed, account or key)
    found.key, found.context = key or vendor.key, context or vendor.context
    return found


@asynccontextmanager
async def running_vendor(
    name: str, *, port: int = 0, seed: str = "", account: str = "", key: str = "", context: int = 0
) -> AsyncIterator[Served]:
    """Serve a new stand-in on loopback while the block runs; ``made`` says what the arguments are."""
    async with served(made(name, seed=seed, account=account, key=key, context=context), port) as vendor:
        yield vendor
