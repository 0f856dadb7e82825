"""What the bulk actions of every flow use: the cursor of a job, and what it would change."""
