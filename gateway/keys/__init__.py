"""Clients' keys at run time: those of the file and of the database, their validity, and their changes."""
