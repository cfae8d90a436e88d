"""The steering simulator: the gateway's own policy and board against other policies, and an oracle."""
