BBBBBBB BBBBBBBBBBBBBBBBBBBBBBB BBBB
BBBBB BBBBB gettext(u'%(server)s does not answer') SSSSSSSSSS SSSS SSS SSSSSSBBBBBBBB
BBBBB BBBBBBB
XX XXXXXXXXXXXXXXXXXXXXXX
XXXX gettext(u'%(server)s does not answer') SSSSSSSSSS SSSS SSS SSSSSSXXXXX
XXX gettext(u'The console needs it for every page. Accepted messages are safe, and the programs go on by themselves once it answers.') XXXX
XXX gettext(u'The cause is in the log under this number:')  XXXXXXXXXXXXXXXXX
BBBBBBBB
