BBBBBBB BBBBBBBBBBBBBBBBBBBBBBB BBBB
BBBBB BBBBB gettext(u'This is not allowed') BBBBBBBB
BBBBB BBBBBBB
XX XXXXXXXXXXXXXXXXXXXXXX
XXXX gettext(u'This is not allowed') XXXXX
XXXBB BBBBBBBBBB gettext(u'Your account lacks the permission. Ask an administrator for it.') BBBBBXXXX
BBBBBBBB
