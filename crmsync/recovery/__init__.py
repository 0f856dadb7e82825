"""What a person does about dead records, and sending again what was sent. Used by the console,
`run_bulk` and `sync_recover`."""
