"""Archives. A flow describes its own (`description`); `partitions` makes its months and
`retention` deletes the oldest. Where rows come from hot tables, `walk` finds those that are old
enough and `copying` moves them, into a database of its own if there is one (`router`)."""
