"""OpenAI's chat completions as a dialect."""
