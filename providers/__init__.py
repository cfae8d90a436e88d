"""Access to LLM providers, and their wire formats. It does not depend on the gateway."""
