"""What people set up for Notify, declared once for form, API, platform file and audit log."""
