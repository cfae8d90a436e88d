"""Alerts: what is wrong now, said once for each incident, with the SQL that shows it."""
