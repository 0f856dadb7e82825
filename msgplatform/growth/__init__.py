"""What an installation needs that outgrows one database: a business system moves to another
cell."""
