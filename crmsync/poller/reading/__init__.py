"""Read a source: the rows that changed since a watermark, without losing one."""
