BBBBBBB BBBBBBBBBBBBBBBBBBB
BBBB BBBB
BBBBB BBBB
XXXXXXXX XXXXXXXXXXXXX
  XXXBB BBBBBBBBBB gettext(u"From then on you may sign in by the company's provider as the user that you are here. Your roles are those of your groups there, from the next such sign-in on.") BBBB gettext(u'From then on you may sign in by it as the user that you are here. Your roles stay as they are.') BBBBBXXXX
  BB BBBBBBBBBBBBXX XXXXXXXXXX XXXXXXXXXXX XXXXXXXXXXXXXX XXXXXXXXXXXXX XXXXXXXX gettext(u'Continue at the provider') XXXXXXXX
  BBBBXXXXX XXXXXXXXXXXXXXBBBBBBBBBBXX XXXXXXXXXX XXXXXXXXXXXXXXXX XXXXXXXXXXXXXXXX gettext(u'Link it') XXXXXXXXXXXXXXXXXXXXBBBBB
XXXXXXXXXX
BBBBBBBB
