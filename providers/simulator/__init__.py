"""Simulated providers with OpenAI's API over real HTTP on loopback: a fleet with personas, and scripted providers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
