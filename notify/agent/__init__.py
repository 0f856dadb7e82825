"""The outbox of a business system, and the Agent that relays the outbox to Notify's intake.

apps, models, schema, outbox, migrations   the Django app: needs Django 5, nothing of the platform
ddl/                                       the same tables as SQL, for everybody else
relay, client, store                       the Agent (`manage.py run_agent`): runs on the platform's
                                           code, beside the business system's database
"""
