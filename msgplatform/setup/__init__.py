"""The objects that people set up: each kind is declared once, as a Resource.

declaration    fields in groups, secrets, rules, removal, texts of one kind
resource       its objects: created, replaced, deleted, with the entries of the audit log
fields         the body that describes a whole object, and its fields as JSON has them
refusals       the errors by which a change is refused, field by field
platform_file  all objects as a file that is kept in a repository and applied

A Resource makes the console's form (`doors/admin/resource_admin.py`), the management API
(`doors/api/management/resources.py`), the platform file, and the entries of the audit log.
"""
