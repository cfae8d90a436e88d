"""OpenAI's Responses API as a dialect."""
