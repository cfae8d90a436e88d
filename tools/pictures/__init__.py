"""The pictures of README.md and the site: the page in a real Chromium, and a race that moves."""
