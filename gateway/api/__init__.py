"""The REST API: `/api/v1/sms/`. `xmlrpc` is the same over XML-RPC."""
