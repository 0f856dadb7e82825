"""Real traffic through Notify, accounted for by the client's and the sinks' own records."""
