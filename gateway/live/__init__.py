"""Live events of races for viewers; without a viewer, they cost a call nothing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
