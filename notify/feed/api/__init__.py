"""The REST API under `/api/v1/feed/`: posts, relations and timelines."""
