"""The catalogue of event types as an AsyncAPI 3.0 document: its parts and its view."""
