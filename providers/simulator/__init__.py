"""Simulated providers with OpenAI's API over real HTTP on loopback: a fleet with personas, and scripted providers."""
