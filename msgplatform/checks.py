"""Configuration faults as system checks: each names the variable and the mend."""
