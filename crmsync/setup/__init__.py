"""The things that people set up for CRM sync, declared once for form, API, file and audit log."""
