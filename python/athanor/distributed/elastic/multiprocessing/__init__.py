"""See errors."""
