"""Functions for an installation that outgrows one database: a business system moves to another
cell."""
