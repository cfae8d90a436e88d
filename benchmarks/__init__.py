"""Measurements: what a call costs, how well the policy chooses, whether figures are true."""
