BBBBBBB BBBBBBBBBBBBBBBBBBBBBBB BBBB
BBBBB BBBBB gettext(u'This page is not here any more') BBBBBBBB
BBBBB BBBBBBB
XXXX gettext(u'This page is not here any more') XXXXX
XXX gettext(u'The offer may have ended, or the address is not complete. Please open the link again from where you found it.') XXXX
BBBBBBBB
