"""The documentation as a site: its settings for Sphinx, and pages of reference made from the code."""
