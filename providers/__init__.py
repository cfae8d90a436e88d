"""How LLM providers are reached and what they really send. Knows nothing of the gateway."""
