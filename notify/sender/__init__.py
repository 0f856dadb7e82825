"""`run_sender`: deliver work orders over HTTP. Each subscription has a lane."""
