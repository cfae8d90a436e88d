"""Simulated providers that speak OpenAI's API over real HTTP on loopback: a fleet with personas, and scripted ones."""
