"""Callers who listen: when does the voice begin, and when does it fall silent?"""
