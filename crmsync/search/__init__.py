"""Find a lead, and its page in the console."""
