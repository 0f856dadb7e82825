"""The objects that people set up for Notify, declared once for form, API, file and audit log."""
