"""The parts of a search: `candidates` reads ids from an index, `matches` asks the rest of the
filter, `hits` makes the lines that are shown, `story` tells all about one message."""
