"""The platform on one machine, under supervisord."""
