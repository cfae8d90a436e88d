"""The page in a real Chromium: how soon each view is drawn, and the pictures of README.md."""
