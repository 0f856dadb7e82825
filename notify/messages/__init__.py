"""Search over hot and cold messages: `candidates` reads ids from an index, `matches` asks the rest
of the filter, `hits` makes the lines that are shown. `timeline` is the page of one: a card for each
delivery (`recipients`), why it is where it is (`reasons`), why there is none (`nobody`), and which
bulk jobs sent it again (`sent_again`)."""
