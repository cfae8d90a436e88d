"""Anthropic's Messages API as a dialect: requests and streams to and from chat completions, events, answers."""
