"""What peers agree on, and what to do next."""
