"""How much a request asks the model to think, in the fields of each API and of vendors: a class of its own."""

import msgspec
import pytest

from gateway.api.endpoints import COMPLETIONS_ENDPOINT, CHAT_ENDPOINT, GEMINI_ENDPOINT, MESSAGES_ENDPOINT, RESPONSES_ENDPOINT
from gateway.api.json_body import Contents
from gateway.core.prompt_classes import Effort

LOW, HIGH = Effort.LOW, Effort.HIGH
