"""Clients' keys at run time: those of the file and those of the database, which are in force, and how they change."""
