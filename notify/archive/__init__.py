"""`run_archiver`: final messages move to the archive, come back, and are deleted in the end."""
