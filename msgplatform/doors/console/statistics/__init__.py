"""Statistics: the form, tables and charts, page and CSV file."""
