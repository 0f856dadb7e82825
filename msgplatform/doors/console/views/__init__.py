"""The console's own pages. They use `core.flows` and name no flow."""
