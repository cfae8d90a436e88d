"""Tables of fields, bounds and pages that the vendors refuse by."""
