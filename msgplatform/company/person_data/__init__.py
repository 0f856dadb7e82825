"""One person's data over all flows: found, exported and erased; and the list of erasures, which are
repeated from it after a restore from a backup."""
