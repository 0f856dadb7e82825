"""CRM sync: from the landing page to every CRM."""
