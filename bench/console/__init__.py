"""The console's pages and the API's lists beside large tables: one bench, and the rows it fills."""
