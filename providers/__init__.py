"""Access to LLM providers, and their wire formats. Does not depend on the gateway."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
