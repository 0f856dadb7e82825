"""Operations, for all programs: counts of how their records ended, and copies in Redis."""
