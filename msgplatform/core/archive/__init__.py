"""Archives. A flow describes its archive (`description`); `partitions` makes the months and
`retention` deletes the oldest. `walk` finds old rows in hot tables and `copying` moves these rows
to the archive, which may be in a database of its own (`router`)."""
