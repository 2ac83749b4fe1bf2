"""What a curious coalition does with a transcript."""
