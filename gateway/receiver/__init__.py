"""`run_sms_receiver`: take Reports and MOs from the gateways."""
