"""Races as they happen, for those who look: nothing of this costs a call while there is no viewer."""
