BBBBBBB BBBBBBBBBBBBBBBBBBBBBBB BBBB
BBBBB BBBBB gettext(u'Something failed on our side') BBBBBBBB
BBBBB BBBBBBB
XX XXXXXXXXXXXXXXXXXXXXXX
XXXX gettext(u'Something failed on our side') XXXXX
XXX gettext(u'The cause is in the log under this number:') XXXX
XXXXXXXXXXXXXXXXXXXX
BBBBBBBB
