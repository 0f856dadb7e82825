"""The audit log as signed, chained lines that leave the platform.

lines      one line: its form, its signature; a chain verifies the lines of files
address    the setting AUDIT_EXPORT, and its faults as system checks
exporter   hands over what is new to standard output, syslog or a webhook, in one process at a time,
           with a cursor in the database
"""
