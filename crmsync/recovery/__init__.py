"""What a person does about records that are dead, and sending again what was sent; console,
`run_bulk` and `sync_recover` use it."""
