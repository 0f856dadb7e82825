"""Search over posts and events: `candidates` reads ids from an index, `matches` applies the rest of
the filter, `hits` makes the lines that are shown. `timeline` is the page of one: what happened to
it, and a card for its timelines (`fan_out`)."""
