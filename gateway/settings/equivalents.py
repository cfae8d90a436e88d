"""Open-weight models that several vendors sell, with each vendor's name for them: data for ``holeshot init``.

Names as in litellm's price table and the vendors' own lists. They change; ``holeshot check --live`` asks the vendors.
"""

from collections.abc import Mapping

import msgspec


class Equivalent(msgspec.Struct, frozen=True):
    """One model and its names. ``names``: the vendor's name in the catalog → the model's name at the vendor."""

    model: str  # the proposed public name
    names: Mapping[str, str]


# The first one that at least two of the found vendors sell is raced.
EQUIVALENTS = (
    Equivalent(
        "gpt-oss-120b",
        {
            "groq": "openai/gpt-oss-120b",
            "cerebras": "gpt-oss-120b",
            "sambanova": "gpt-oss-120b",
            "together": "openai/gpt-oss-120b",
            "fireworks": "accounts/fireworks/models/gpt-oss-120b",
            "deepinfra": "openai/gpt-oss-120b",
            "baseten": "openai/gpt-oss-120b",
            "nebius": "openai/gpt-oss-120b",
            "novita": "openai/gpt-oss-120b",
            "nvidia_nim": "openai/gpt-oss-120b",
            "openrouter": "openai/gpt-oss-120b",
        },
    ),
    Equivalent(
        "llama-3.3-70b",
        {
            "cerebras": "llama-3.3-70b",
            "sambanova": "Meta-Llama-3.3-70B-Instruct",
            "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
            "fireworks": "accounts/fireworks/models/llama-v3p3-70b-instruct",
            "deepinfra": "meta-llama/Llama-3.3-70B-Instruct",
            "hyperbolic": "meta-llama/Llama-3.3-70B-Instruct",
            "nebius": "meta-llama/Llama-3.3-70B-Instruct",
            "novita": "meta-llama/llama-3.3-70b-instruct",
            "nscale": "meta-llama/Llama-3.3-70B-Instruct",
            "nvidia_nim": "meta/llama-3.3-70b-instruct",
            "openrouter": "meta-llama/llama-3.3-70b-instruct",
        },
    ),
    Equivalent(
        "kimi-k2.6",
        {
            "moonshot": "kimi-k2.6",
            "together": "moonshotai/Kimi-K2.6",
            "fireworks": "accounts/fireworks/models/kimi-k2p6",
            "deepinfra": "moonshotai/Kimi-K2.6",
            "baseten": "moonshotai/Kimi-K2.6",
            "nebius": "moonshotai/Kimi-K2.6",
            "novita": "moonshotai/kimi-k2.6",
            "openrouter": "moonshotai/kimi-k2.6",
        },
    ),
)

# One well-known model of each vendor that sells none of the above.
EXAMPLES: Mapping[str, str] = {
    "openai": "gpt-4.1-mini",
    "anthropic": "claude-haiku-5-5",
    "gemini": "gemini-3.5-flash",
    "mistral": "mistral-small-latest",
    "deepseek": "deepseek-v4-flash",
    "xai": "grok-4.5",
    "perplexity": "sonar",
    "cohere": "command-a-03-2025",
    "dashscope": "qwen-plus",
    "minimax": "MiniMax-M3",
    "zai": "glm-4.6",
}
