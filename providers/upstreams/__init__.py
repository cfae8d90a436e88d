"""Providers, as they can be asked: over HTTP, at Bedrock and Vertex AI, through litellm; and what each needs."""
