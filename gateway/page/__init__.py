"""The files of the page: ``gateway/admin/routes.py`` serves them."""
