"""The objects that people set up: each kind is declared once, as a Resource. The console's form,
the management API, the platform file and the entries of the audit log are made from it."""
