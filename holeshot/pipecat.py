"""Pipecat: ``RacedLLMService`` is its OpenAI service, raced in this process. Needs the extra ``pipecat``."""

from typing import Any

from openai import AsyncOpenAI
from pipecat.services.openai.llm import OpenAILLMService

from holeshot import Racer
from holeshot.clients import openai_client


class RacedLLMService(OpenAILLMService):  # type: ignore[misc] # mypy does not look into pipecat
    """The OpenAI service of a pipeline, on a Racer: frames, tools, interruptions, usage, metrics are that service's."""

    def __init__(self, racer: Racer, model: str | None = None, **options: Any) -> None:
        """``model`` is one of the Racer's, or is in ``settings``; ``options`` are those of ``OpenAILLMService``."""
        self._racer = racer
        settings = options.pop("settings", None) or self.Settings()
        if model is not None:
            settings.model = model
        super().__init__(settings=settings, **options)

    def create_client(self, **_: Any) -> AsyncOpenAI:
        """Return the client that asks the Racer."""
        return openai_client(self._racer)
