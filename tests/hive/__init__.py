"""The addresses and scopes of the hive, served for tests: CRM sync registers no flow yet."""
