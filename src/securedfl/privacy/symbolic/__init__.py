"""The protocol's own code on symbols, and exact linear algebra."""
