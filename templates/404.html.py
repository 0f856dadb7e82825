BBBBBBB BBBBBBBBBBBBBBBBBBBBBBB BBBB
BBBBB BBBBB gettext(u'There is nothing here') BBBBBBBB
BBBBB BBBBBBB
XX XXXXXXXXXXXXXXXXXXXXXX
XXXX gettext(u'There is nothing here') XXXXX
XXXBB BBBBBBBBBB gettext(u'The address is wrong, or the page does not exist any more.') BBBBBXXXX
BBBBBBBB
