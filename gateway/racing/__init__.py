"""The race engine: runs the launches a plan names, until one attempt has answered."""
