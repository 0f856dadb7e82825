"""Landing pages: the forms that people fill in."""
