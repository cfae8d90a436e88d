"""What is kept of recent answers that no provider stores: in this process, and sealed in Redis for other replicas."""
