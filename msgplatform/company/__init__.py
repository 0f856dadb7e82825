"""Functions for a company beside messages: people sign in, alerts reach people, one person's data
is found and erased, the audit log is exported with a proof."""
