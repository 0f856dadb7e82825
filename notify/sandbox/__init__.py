"""The platform's own receiver: it keeps what a sandbox gets, and answers as it was told to."""
