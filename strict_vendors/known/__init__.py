"""The vendors that there are: a file each."""
