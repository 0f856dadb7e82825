"""Functions of a company's own beside messages: people sign in, alerts reach people, one person's
data is found and erased, the audit log leaves with a proof."""
