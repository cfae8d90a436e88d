"""OpenAI's Responses API as a dialect: requests and streams to and from chat completions, events, answers."""
