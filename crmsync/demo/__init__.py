"""CRM sync's part of the demo."""
