"""`run_report_forwarder`: publish Reports and MOs as events of the business system."""
