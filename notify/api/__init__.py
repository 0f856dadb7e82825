"""The REST API: `/api/v1/messages` and its queries."""
