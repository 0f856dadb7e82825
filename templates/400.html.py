BBBBBBB BBBBBBBBBBBBBBBBBBBBBBB BBBB
BBBBB BBBBB gettext(u'The request cannot be read') BBBBBBBB
BBBBB BBBBBBB
XX XXXXXXXXXXXXXXXXXXXXXX
XXXX gettext(u'The request cannot be read') XXXXX
XXX gettext(u'Go back, reload the page and try again.') XXXX
BBBBBBBB
