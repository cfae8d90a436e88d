"""What models are, take and cost, and what calls have used."""
