"""Traces (OpenTelemetry): spans of traced messages, which `operation/trace_export` sends to a
collector.

Traces are off unless OTEL_EXPORTER_OTLP_ENDPOINT is set. While they are off, OpenTelemetry is not
imported, and no row, key or field is written or read. A message is traced if its caller's
`traceparent` says so, or, without one, at the rate OTEL_TRACES_SAMPLER_ARG. Later programs read
this decision from the message: from its row of `message_trace`, or in Redis from its own fields.
"""
