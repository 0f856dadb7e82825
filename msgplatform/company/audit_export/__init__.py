"""The audit log as signed, chained lines that leave the platform."""
