"""`run_smg_simulator`: a gateway that behaves well or badly, for tests and the demo."""
