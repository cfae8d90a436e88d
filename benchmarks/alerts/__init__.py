"""Alerts in a simulated month: which fired, and which should have."""
