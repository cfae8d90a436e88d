"""Alerts: one message for each incident, with the SQL that shows its evidence; and what detects who got slower."""
