"""The rules, each tried without a socket."""
