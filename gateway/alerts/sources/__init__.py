"""Where alerts come from: a file for each kind of evidence."""
