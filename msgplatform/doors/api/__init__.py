"""The part that every flow's REST views share: keys, errors, JSON, pages of lists, the schema."""
