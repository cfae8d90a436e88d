"""Steering: selects the deployments of the next race and their start times, and computes the leaderboard."""
