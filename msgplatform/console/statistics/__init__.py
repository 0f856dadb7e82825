"""Statistics: what is shown (form), its tables and charts, page and CSV file."""
