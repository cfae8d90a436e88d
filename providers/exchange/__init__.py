"""One request to a provider and its answer: the interface, and the forms in which a request is sent."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
