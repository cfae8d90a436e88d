"""Steering: who runs the next race, when the second one starts, and what the leaderboard says."""
