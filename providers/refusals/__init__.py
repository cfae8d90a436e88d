"""What providers say instead of an answer: what it means, what it teaches, and what may be kept of its words."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
