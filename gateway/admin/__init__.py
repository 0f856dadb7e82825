"""SMS in the console.

gateways    the operator's SMGs, with their live links and what waits for them
accounts    how business systems send
archive     what the archive's lists share; what was received, Reports, changes of users
sent        messages sent: the list, all fields of one
again       sending chosen ones once more
fields      form fields: passwords that are never shown, one item a line
codes       SGIP's numbers and what they mean
cells       cells of the lists
"""

from gateway.admin import accounts, archive, gateways, sent

__all__ = ["accounts", "archive", "gateways", "sent"]
