"""The admin of what all flows share: systems and keys, people, jobs, alerts, the audit log."""
