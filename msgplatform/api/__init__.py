"""What every flow's REST views share: keys, errors, JSON, pages of lists, rates, the schema."""
