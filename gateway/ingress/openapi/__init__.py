"""/openapi.json and /docs: what the gateway answers, described."""
