"""What the programs share about operations: how their records ended, and their copies in Redis."""
