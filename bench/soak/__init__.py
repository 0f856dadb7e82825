"""A soak: all four flows under an open load for hours, with a ledger, samples and a judgement."""
