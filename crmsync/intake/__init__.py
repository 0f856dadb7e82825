"""The lead store: leads are taken in, changed and deleted, durably before the answer."""
