"""The strikes of a storm over a peer, and over ours beside it: `make storm PEER=bullmq`."""
