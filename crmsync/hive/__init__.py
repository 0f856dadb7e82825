"""The hive: leads come in, are changed and deleted; and the landing page that people fill in."""
