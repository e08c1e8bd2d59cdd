"""The window on a directory: web pages of topics, records and groups, in a browser of this machine. Needs the extra `ui`."""
