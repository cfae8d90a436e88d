"""Two scripted providers, of which the second never answers, and the arguments of a ``Racer`` that races them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from providers.simulator import Gate, Hang, RoleOnly, ScriptedProvider, answer

RACE = {"mode": "race", "width": 2, "audit_share": 0}


class Raced(NamedTuple):
    """Two providers, of which the second never answers, and the arguments that race them."""

    fast: ScriptedProvider
    slow: ScriptedProvider
    arguments: dict[str, Any]


@asynccontextmanager
async def two_providers(kind: str = "openai_compatible") -> AsyncIterator[Raced]:
    """Serve them while the block runs; ``kind`` is how they are asked."""
    async with AsyncExitStack() as stack:
        fast = await stack.enter_async_context(ScriptedProvider(answer("Hel", "lo", "!")))
        slow = await stack.enter_async_context(ScriptedProvider([RoleOnly(), Hang()]))
        fast.script = [Gate(slow.requested), *fast.script]
        addresses = {"fast": fast.base_url, "slow": slow.base_url}
        providers = {name: {"kind": kind, "base_url": url} for name, url in addresses.items()}
        models = {"chat": {"deployments": ["fast/m", "slow/m"], "race": RACE}}
        yield Raced(fast, slow, {"providers": providers, "models": models})
