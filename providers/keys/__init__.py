"""The keys of a provider: which is used, how one is replaced, and what has to be fetched."""
