"""Client connections: how they are accepted, limited, timed and closed."""
