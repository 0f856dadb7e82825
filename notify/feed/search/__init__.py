"""Search over posts and events: `candidates` reads ids from an index, `matches` applies the rest of
the filter, `hits` makes the lines that are shown, `timeline` lists what happened to one of them."""
