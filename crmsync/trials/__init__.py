"""Questions to other systems outside of the queues: a CRM's connection, and a made-up lead."""
