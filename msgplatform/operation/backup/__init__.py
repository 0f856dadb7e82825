"""A backup of the platform in a folder, and the way back (`manage.py backup` and `restore`)."""
