"""Errors as problem+json: their kinds, exceptions as problems, the pages outside the API."""
