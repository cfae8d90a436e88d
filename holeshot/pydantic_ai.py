"""Pydantic AI: ``RacedModel`` is its model for chat completions, raced in this process. Extra ``pydantic-ai``."""

from typing import Any

from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from holeshot import Racer
from holeshot.clients import openai_client


class RacedModel(OpenAIChatModel):  # type: ignore[misc] # mypy does not look into pydantic_ai
    """The model of an agent, on a Racer: tools, structured output, streams, usage and errors are that model's."""

    def __init__(self, racer: Racer, model: str, **options: Any) -> None:
        """``model`` is one of the Racer's; ``options`` are those of ``OpenAIChatModel`` but ``provider``."""
        provider = OpenAICompatibleProvider("holeshot", openai_client=openai_client(racer))
        super().__init__(model, provider=provider, **options)
