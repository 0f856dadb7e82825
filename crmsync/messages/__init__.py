"""Search over leads and records: `candidates` reads ids from an index, `matches` asks the rest of
the filter, `hits` makes the lines that are shown. `policies` and `crm_states` say which CRMs a lead
is for, and what each of them holds of it. `timeline` is the page of one: what happened to it
(`steps`), what was sent and answered (`tries`), a card for each CRM (`recipients`), and why a
record is where it is (`reasons`)."""
