BBBB BBBB
XXXX XXXXXXXXXXXXXX XXXXXBB BBB BBBBBBBBBBBBBBB BBB BBB BBBBBBBBBBBBBBBBBBBBB BBB BBB BBBBBBBBXX XXXXXXXXXXXXX XXXXXX gettext(u'Nothing is dead: no record waits for a person.') XXXXBBBBBXX XXXXXXXXXXXX
  BB BBBBBBBB BBB BBBBBBBBBBBBBBBBBBBBBBBBBBBBB BBB BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBXX XXXXXXXXXXXXXX XXXXXXXX gettext(u'Try all again') XXXXBBBBB
  XX XXXXXXXXXXXXXX XXXXXXXXXXXXXXXXXX gettext(u'Every state') XXXX
  XX XXXXXXXXXXXXXX XXXXXXXXX gettext(u'Open') XXXX
XXXXXX XXXXXXXXXXXXXX gettext(u'Records that the platform gave up, each with the reason. “Try all again” is there for open ones and without a search; it uses the other filters of this list, and counts before it starts.') XXXXXXXXXX
