"""The platform on clusters: databases, Redis and proxies that are killed, frozen and cut off."""
