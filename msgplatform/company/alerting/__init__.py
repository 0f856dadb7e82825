"""Alerts to people: by chat robots, mail, pagers, over the library apprise.

    alert ── turn ──▶ notices ── rule, window, quiet hours ──▶ message ── child process ──▶ people

An alert is a row, and so is all that follows from it: whichever process ends at whichever moment,
another one goes on. apprise is imported in the child process only.
"""
