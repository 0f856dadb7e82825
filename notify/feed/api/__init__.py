"""The REST API: `/api/v1/feed/` with posts, relations and timelines."""
