"""The parts of a policy: its mapping, its schedule, and requests for runs."""
