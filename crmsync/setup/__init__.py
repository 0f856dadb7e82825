"""What people set up for CRM sync, declared once for form, API, platform file and audit log."""
