"""SMS in the console.

gateways    the operator's SMGs, with their live links and what waits for them
accounts    how business systems send
archive     parts of the archive's lists; MOs, Reports, changes of users
sent        messages sent: the list, all fields of one
again       resending chosen messages
fields      form fields: passwords that are never shown, one item a line
codes       SGIP's numbers and what they mean
"""

from gateway.admin import accounts, archive, gateways, sent

__all__ = ["accounts", "archive", "gateways", "sent"]
