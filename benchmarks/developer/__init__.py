"""What one developer gains who has keys of three vendors."""
