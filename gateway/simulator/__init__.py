"""`run_smg_simulator`: a gateway with personalities, for tests and the demo."""
