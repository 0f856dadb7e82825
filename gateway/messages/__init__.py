"""Find messages, the state of some for their owner (`states`), what was received (`incoming`), and
the page of one: what happened to it (`timeline`), its steps at the gateway (`steps`), how it stands
(`recipient`), and which message repeats which (`resent`)."""
