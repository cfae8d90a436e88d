"""Frameworks for voice, with ``holeshot``'s adapters, at stand-ins that dribble, stall, break and are cold."""
