"""The web process: `python -m msgplatform.doors.web`."""
