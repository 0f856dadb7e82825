BBBBBBB BBBBBBBBBBBBBBBBBBBBBBB BBBB
BBBBB BBBBB gettext(u'Thank you')  X BBBBBBBB
BBBBB BBBBBBB
XXXX gettext(u'Thank you') XXXXX
XXX gettext(u'We have received what you sent and will be in touch with you soon.') XXXX
XXXXXXX
BBBBBBBB
