"""The platform file over the management API (`views`), and its JSON Schema (`schema`)."""
