"""Comparing deployments: prompts by class, sent in turns, measured as races are, judged with intervals."""
