"""Is what a replay says true? Seeded fleets that know all their draws."""
