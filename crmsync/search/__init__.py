"""Search over leads and records: `candidates` reads ids from an index, `matches` asks the rest of
the filter, `hits` makes the lines that are shown, `timeline` lists what happened to one. `policies`
and `crm_states` say which CRMs a lead is for, and what each of them holds of it."""
