BBBB BBBB
XXXX XXXXXXXXXXXXXX XXXXXXX XXXXXXXXXXXXXX gettext(u'What business systems publish, described for those who write publishers and consumers. A system that validates its events (see its page) has events refused that do not match the schema of their type; event types that are not listed here pass.') XXXXXXXXXX
