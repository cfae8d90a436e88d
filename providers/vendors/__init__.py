"""What vendors are, as rows of data, and what of a request they may be asked to do without."""
