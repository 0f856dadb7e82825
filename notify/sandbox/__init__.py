"""The platform's own receiver: it keeps a sandbox's requests, and answers as a person has set."""
