"""Settings of the export of traces."""

from msgplatform import env

# -- export of traces ----------------------------------------------------------------------------
# The OTLP collector that gets traces, such as `http://otel-collector:4318`: spans go to its path
# `/v1/traces` as protobuf. It is the operator's own, so that its address may be private.
# By default: there are no traces
OTEL_EXPORTER_OTLP_ENDPOINT = env.url("OTEL_EXPORTER_OTLP_ENDPOINT", "", ("http", "https")).rstrip(
    "/"
)
# Headers for the collector, such as a key: `name=value`, separated by commas; values are
# percent-encoded, such as `Authorization=Bearer%20KEY`.
# By default: none
OTEL_EXPORTER_OTLP_HEADERS = env.headers("OTEL_EXPORTER_OTLP_HEADERS")
# Milliseconds that the collector may take for one request. No message waits for it.
OTEL_EXPORTER_OTLP_TIMEOUT = env.integer("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000, 100, 60_000)
# The name of the platform in traces.
OTEL_SERVICE_NAME = env.text("OTEL_SERVICE_NAME", "msgplatform")
