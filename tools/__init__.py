"""What only developers run: pages of reference, alert rules, locks and releases. No product, no test."""
