"""Steering: selects the deployments of the next race and their start times, and computes the leaderboard."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
