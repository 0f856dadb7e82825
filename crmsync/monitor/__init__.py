"""What is counted and told of CRM sync: statistics, metrics, alerts, the state of runs."""
