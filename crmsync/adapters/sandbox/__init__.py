"""A CRM of the platform's own, for trying things out."""
