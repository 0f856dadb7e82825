"""`run_sms_sender`: pack messages into Submits and send them to the gateways."""
