"""Recent answers that no provider stores, kept in this process and, sealed, in Redis for other replicas."""
