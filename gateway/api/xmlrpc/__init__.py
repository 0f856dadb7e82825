"""XML-RPC at `/rpc/`."""
