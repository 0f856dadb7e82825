"""Find messages (`index`, `in_flight`, `lines`), the page of one, and its state for its owner."""
