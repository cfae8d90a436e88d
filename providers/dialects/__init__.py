"""The ways in which an answer can be asked for, and how each is said in another."""
