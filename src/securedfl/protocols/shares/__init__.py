"""Averages by random shares: perfect masks, coalitions withstood, crashes survived."""
