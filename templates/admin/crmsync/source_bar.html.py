BBBB BBBB
BB BBBBBBBBBBBBBBBBXXXX XXXXXXXXXXXXXX XXXXXXX XXXXXXXXXXXXXX gettext(u"The hive is the platform's own store of leads: it is always there and cannot be changed.") XXXXXXXXXX
BBBB BBBBBBBBBBBBBBBBBXXXX XXXXXXXXXXXXXX XXXXXXX XXXXXXXXXXXXXX gettext(u'Policies read it: its table, key and time of change can no longer be changed. Add another source for another table.') XXXXXXXXXXBBBBB
