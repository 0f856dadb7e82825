BBBBBBB BBBBBBBBBBBBBBBBBBBBBB
BBBB BBBB
BBBBB BBBBBBB gettext(u'Sandbox CRMs') BBBBBBBB
BBBBB BBBB gettext(u"A sandbox is a CRM of the platform's own. It gets real leads on the real way, keeps them for an hour and shows them, and answers as you tell it: refuse, fail, be slow, be down. It raises no alert.") BBBBBBBB
BBBBB BBBBXXX XXXXXXXXXXXXXXBBB BBB BB BBBBXXXXBB BBBBBBBBXX XXXXXXBBB BBBBBBBBBBBBBBBBBBBBBBBBBBB BBBBBBXXXXXXBBBBBBBBBBB BBBBBBBBBBBBB XXXXX XXXXXXXXXXX XXXXX gettext(u'paused') XXXXXXXBBBB BBB BBBBBBBBBBB XXXXX XXXXXXXXXXX XXXXXXX gettext(u'off') XXXXXXXBBBBBXXXXXBBBBBBXXXXXBBBBBBBB
BBBBB BBBBBB gettext(u'Somebody who may add CRMs and policies makes one.') BBBBBBBB
BBBBB BBBBBBBBBXX XXXXXXXXXXXXXX gettext(u"With a policy that carries the platform's own leads to it. Both can be changed like others.") XXXXBBBBBBBB
