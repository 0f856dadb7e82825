"""JSON: as people read it, how deeply it is nested, and whether it matches a schema."""
