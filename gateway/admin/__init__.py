"""SMS in the console.

gateways    the operator's SMGs, with their live links and what waits for them
accounts    how business systems send
archive     what was sent and received, Reports, changes of users: lists of any size
reports     statistics per day, by gateway, account and error code, and as CSV
fields      form fields: passwords that are never shown, one item a line
cells       cells of the lists
"""

from gateway.admin import accounts, archive, gateways

__all__ = ["accounts", "archive", "gateways"]
