BBBBBBB BBBBBBBBBBBBBBBBBBBBBBB BBBB
BBBBB BBBBB gettext(u'This form is too old') BBBBBBBB
BBBBB BBBBBBB
XX XXXXXXXXXXXXXXXXXXXXXX
XXXX gettext(u'This form is too old') XXXXX
XXX gettext(u'Nothing was changed. You may have logged in or out since it was opened.') XXXX
XXXXX XXXXXXXX gettext(u'Open it again') XXXX  gettext(u'and send it once more; if your login is over, you are asked to log in first. Cookies must be allowed.') XXXX
BBBBBBBB
