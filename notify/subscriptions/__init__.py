"""What the settings of a subscription and of its consumer mean; no I/O.

`limits` says which values they may have, `matching` which messages a subscription wants,
`signing` how requests are signed, `shown` what a person sees of them.
"""
