"""Data of a person: the stores that hold it, and its erasure and export in payloads."""
