"""Spans of traced messages go to a collector of OpenTelemetry."""
