BBBBBBB BBBBBBBBBBBBBBBBBBB
BBBB BBBB BBBBBBB
BBBBB BBBB
XXXXX XXXXXXXXXXX XXXXXXXX XXXXXXXXXXXXXXBBBBBBBBBB
  XXXX gettext(u'A new signing secret for %(consumer)s') S SSS SSSSSSS SSSSSS SSS SSSSSSSSSSSSXXXXX
  XXX gettext(u'The new secret is shown once, on the next page. Both secrets sign for as long as you say here, so that the consumer can change over without refusing a message.') XXXX
  BB BBBBBBBBBBBBBBBXX XXXXXXXXXXXXX XXXXXX gettext(u'A secret from an earlier rotation still signs until %(until)s. At most two secrets sign: if you rotate again now, it stops at once.') S SSSSSS SSSS SS SSSSSSS SSSSSSSS SSSSS SSSSS SSSSS SSSSSSSSSS SS SSSS SSS SSSSSSS SSSSS SS SSS SSSSSS SSSSS SSSS SS SSSSS SS SSSSSXXXXBBBBB
  
  
  XXXXXXX XXXXXXXXXXXXXXXBBB BBBBB BB BBBBBBBBBBBBBBBBBXXXXXXXXXBBBBBBXXXXXXXX
  XX XXXXXXXXXXXXXXXXXXX XXXXXXXXXXXXXXXX gettext(u'Rotate the secret') XXXXXXXXX XX XXXXXXXXXXXXXX XXXXXXXX gettext(u'Cancel') XXXXXXXX
XXXXXXX
BBBBBBBB
