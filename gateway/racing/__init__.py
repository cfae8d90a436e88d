"""The race engine: runs a plan's launches until one attempt has answered."""
