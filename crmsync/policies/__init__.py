"""What a policy consists of: its mapping, its schedule, and the runs that people ask for."""
