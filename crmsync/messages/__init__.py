"""Leads and records as the platform's engine finds them: `fields`, the sources in `index` and
`records`, their `lines`. `policies` and `states` say which CRMs a lead is for, and which version
each of them holds. `page` is the page of one: `timeline` and `explanations`."""
