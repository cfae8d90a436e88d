"""Comparing deployments: prompts by class, sent in turns, measured as races are, judged with intervals."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
