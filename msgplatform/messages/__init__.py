"""Messages of every flow, found by its declaration (`core/flows/messages.py`)."""
