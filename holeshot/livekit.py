"""LiveKit Agents: ``RacedLLM`` is its OpenAI plugin, raced in this process. Needs the extra ``livekit``."""

from typing import Any

from livekit.plugins import openai

from holeshot import Racer
from holeshot.clients import openai_client


class RacedLLM(openai.LLM):  # type: ignore[misc] # mypy does not look into livekit
    """The LLM of an agent's session, on a Racer: tools, interruptions, usage, errors and metrics are the plugin's."""

    def __init__(self, racer: Racer, model: str, **options: Any) -> None:
        """``model`` is one of the Racer's; ``options`` are those of ``livekit.plugins.openai.LLM``."""
        super().__init__(model=model, client=openai_client(racer), **options)
