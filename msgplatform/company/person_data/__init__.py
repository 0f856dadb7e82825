"""One person's data over all flows: found, exported and erased; and the list of erasures, by which
they are repeated after a restore from a backup."""
