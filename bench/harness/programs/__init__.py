"""Programs that make or take in the work, and what they share: options, messages, counters."""
