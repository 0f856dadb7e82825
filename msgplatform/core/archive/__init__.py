"""What archives share: a flow describes its own (`description`), and has it kept in partitions by
month (`partitions`) and for so many days (`retention`), in a database of its own if it wants
(`router`)."""
