"""CRM sync's part of the demo: people fill in forms, systems send leads, two CRMs take them."""
