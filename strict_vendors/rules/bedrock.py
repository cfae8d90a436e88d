"""Bedrock's rules for Converse: the fields as the service's own description has them, and what its models take.

The description is bedrock-runtime's ``service-2.json``, which botocore has and by which the service checks requests;
the rest is its words in public reports, read on 2026-11-27.
"""

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import botocore
from msgspec import Struct

from strict_vendors.shapes import Anything, Decimal, Flag, ListOf, MapOf, Record, Shape, Text, Whole

SERVICE = "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html"
CONSTRAINTS = "https://github.com/openclaw/openclaw/issues/12892"
ALTERNATE = "https://github.com/langgenius/dify/issues/9294"
FIRST = "https://github.com/strands-agents/sdk-typescript/issues/727"
RESULTS = "https://github.com/agno-agi/agno/issues/6698"
TOO_MANY = "https://github.com/strands-agents/harness-sdk/issues/1435"
NO_TOOLS = "https://github.com/langgenius/dify/issues/17545"
BLANK = "https://github.com/OpenHands/OpenHands/issues/5339"
WHITESPACE = "https://github.com/NousResearch/hermes-agent/pull/60628"
EMPTY = "https://github.com/earendil-works/pi/pull/3443"
EMPTY_ERROR = "https://github.com/aws-samples/sample-multi-agent-orchestration-chat-on-agentcore/issues/15"
NO_OBJECT = "https://github.com/aws/aws-sdk-js-v3/issues/7330"
LONGEST = "https://github.com/vercel/ai/issues/2772"
TOO_LONG = "https://github.com/continuedev/continue/issues/9592"
NOT_THIS_FIELD = "https://github.com/strands-agents/harness-sdk/issues/1241"
SAME_TURN = "https://github.com/quarkiverse/quarkus-langchain4j/issues/1983"
PROFILES = "https://docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-support.html"
REASONING = "https://github.com/spring-projects/spring-ai/issues/6413"
SAMPLING = "https://github.com/mem0ai/mem0/pull/4147"
CLAUDE = "https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-extended-thinking.html"
TABLE = "https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-supported-models-features.html"
# Read on 2026-11-29; the field's name at Bedrock, and the words about another one: https://github.com/vercel/ai/pull/20728.
BINDING = "https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-thinking-block-binding.html"
KEYS = "https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys-use.html"


@cache
def _described() -> dict[str, Any]:
    folder = Path(botocore.__file__).parent / "data" / "bedrock-runtime"
    newest = max(folder.glob("*/service-2.json*"))
    raw = newest.read_bytes()
    shapes: dict[str, Any] = json.loads(gzip.decompress(raw) if newest.suffix == ".gz" else raw)["shapes"]
    return shapes


@cache
def shape(name: str) -> Shape:
    """Return a shape of the service's description."""
    told = _described()[name]
    match told["type"]:
        case "structure" if told.get("document"):
            return Anything()
        case "structure":
            fields = {each: shape(inner["shape"]) for each, inner in told["members"].items()}
            return Record(fields=fields, needed=told.get("required", ()), page=SERVICE)
        case "list":
            return ListOf(
                of=shape(told["member"]["shape"]), fewest=told.get("min", 0), most=told.get("max"), page=SERVICE
            )
        case "map":
            return MapOf(most=told.get("max"), page=SERVICE)
        case "string":
            pattern = told.get("pattern")
            return Text(
                shortest=told.get("min", 0),
                longest=told.get("max"),
                only=told.get("enum"),
                pattern=f"^(?:{pattern})$" if pattern else None,
                page=SERVICE,
            )
        case "integer" | "long":
            return Whole(least=told.get("min"), most=told.get("max"), page=SERVICE)
        case "float" | "double":
            return Decimal(least=told.get("min"), most=told.get("max"), page=SERVICE)
        case "boolean":
            return Flag(page=SERVICE)
        case _:
            return Text(page=SERVICE)


def request_shape() -> Record:
    """Return the shape of a request's body: the model stands in the address."""
    found = shape("ConverseRequest")
    assert isinstance(found, Record)
    return found.without("modelId").also(needed=["messages"])


def one_of(name: str) -> frozenset[str]:
    """Return the members of a union, of which a value has exactly one."""
    return frozenset(_described()[name]["members"])


class BedrockModel(Struct, frozen=True):
    """What one model takes through Converse (``TABLE``)."""

    family: str
    context: int
    longest: int
    needs_profile: bool = False  # is asked by the name of an inference profile only
    thinks: bool = False
    pictures: bool = True
    tools: bool = True
    tools_in_streams: bool = True
    choices: frozenset[str] = frozenset({"auto", "any", "tool"})
    mixed_turns: bool = True  # texts beside uses and results of tools
    one_sampling: bool = False  # temperature or topP, not both
    effort: bool = False
    own: str = ""  # what a Claude is called in its own API, if it has the rules of this autumn there


_claude = BedrockModel("claude", 200_000, 64_000, needs_profile=True, thinks=True, one_sampling=True)
_nova = BedrockModel("nova", 300_000, 10_000)
_llama = BedrockModel(
    "llama",
    128_000,
    8_192,
    needs_profile=True,
    pictures=False,
    tools_in_streams=False,
    choices=frozenset({"auto"}),
    mixed_turns=False,
)
KNOWN: dict[str, BedrockModel] = {
    **{
        f"anthropic.{name}": BedrockModel("claude", 1_000_000, 128_000, needs_profile=True, thinks=True, own=name)
        for name in ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2")
    },
    "anthropic.claude-sonnet-4-5-20250929-v1:0": _claude,
    "anthropic.claude-haiku-4-5-20251001-v1:0": _claude,
    "anthropic.claude-opus-4-5-20251101-v1:0": _claude,
    "anthropic.claude-3-haiku-20240307-v1:0": BedrockModel("claude", 200_000, 4_096),
    "amazon.nova-pro-v1:0": _nova,
    "amazon.nova-lite-v1:0": _nova,
    "amazon.nova-micro-v1:0": BedrockModel("nova", 128_000, 10_000, pictures=False),
    "meta.llama3-3-70b-instruct-v1:0": _llama,
    "mistral.mistral-large-2402-v1:0": BedrockModel(
        "mistral", 32_000, 8_192, pictures=False, tools_in_streams=False, mixed_turns=False
    ),
}
_PROFILE = re.compile(r"^(?:us|eu|apac|au|jp|global|us-gov)\.")


def find(name: str) -> tuple[BedrockModel | None, bool]:
    """Return what is known of a model, and whether it was named by an inference profile."""
    last = name.rpartition("/")[2]
    base = _PROFILE.sub("", last)
    return KNOWN.get(base), base != last
