"""The typed configuration: from a YAML file, environment variables and options to ``Settings``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
